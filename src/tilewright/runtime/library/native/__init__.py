"""The functions of a library as LLVM IR, one text a file; `$NAME$` stands for what glue.py puts in.

Names of functions and tables that one text uses of another are those of the module that they make together. Nothing has
state but contexts, the pool's workers, and which program of the library runs on this machine.
"""
