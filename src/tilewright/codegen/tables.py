"""Operators and named functions in LLVM's words: one row each.

Rows are templates of instructions over `{t}` (the value type), `{a}`, `{b}` (operands) and `{n}` (fresh names are made
by the emitter). What needs more than one instruction to keep its promise (division, shifts) is in expressions.py.
"""

from __future__ import annotations

FLOAT_BINARY = {"Add": "fadd", "Sub": "fsub", "Mul": "fmul", "Div": "fdiv", "Rem": "frem"}
INT_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "BitAnd": "and", "BitOr": "or", "BitXor": "xor"}

FLOAT_COMPARE = {"Eq": "oeq", "Ne": "une", "Lt": "olt", "Le": "ole"}
SIGNED_COMPARE = {"Eq": "eq", "Ne": "ne", "Lt": "slt", "Le": "sle"}
UNSIGNED_COMPARE = {"Eq": "eq", "Ne": "ne", "Lt": "ult", "Le": "ule"}

INTRINSICS = {
    "floor": "llvm.floor",
    "ceil": "llvm.ceil",
    "trunc": "llvm.trunc",
    "round": "llvm.roundeven",
    "sqrt": "llvm.sqrt",
    "exp": "llvm.exp",
    "log": "llvm.log",
    "sin": "llvm.sin",
    "cos": "llvm.cos",
    "tan": "llvm.tan",
    "asin": "llvm.asin",
    "acos": "llvm.acos",
    "atan": "llvm.atan",
    "sinh": "llvm.sinh",
    "cosh": "llvm.cosh",
    "tanh": "llvm.tanh",
    "pow": "llvm.pow",
    "copysign": "llvm.copysign",
    "fma": "llvm.fma",
}
"""Functions of floats that LLVM has an intrinsic for; where the target has no instruction they call the C library."""

LIBRARY = {
    "log1p": "log1p",
    "expm1": "expm1",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "erf": "erf",
}
"""Functions that are calls to the C library, lane by lane; the f32 form has an `f` behind its name."""

FAR = {"sin_far": "sin", "cos_far": "cos", "tan_far": "tan"}
"""Functions that replace a value where the argument is far from zero: the row of INTRINSICS that they take it from."""
