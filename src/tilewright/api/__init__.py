"""What `import tilewright as tw` offers, in parts that are loaded when they are needed.

`compile.py` finds what was compiled before without loading the compiler; `programs.py` has all that needs it.
"""
