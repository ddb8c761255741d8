"""What an expression takes to compute, counted in instructions on vectors.

    work_of(exp(x) * y)      21 chained ones, a plain one       work_of(sigmoid(x))      18 chained ones, a quotient

Functions like exp count as what they are expanded to in f32 (`FUNCTIONS`); tests hold the counts to the expansions.
What an instruction takes is the machine's to say (`target.core`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.nodes import Call, Cast, Const, Div, Expr, FloorDiv, Mod, Rem, Var


@dataclass(frozen=True, slots=True)
class Work:
    """Instructions for one vector of results, by what runs them.

    plain      additions, products, comparisons, choices, conversions
    chained    the same, each of which waits for the one before: functions
    divides    quotients
    roots      square roots
    shuffles   permutes of lanes out of two registers
    gathers    vectors filled from addresses of their own
    steps      instructions for each element, one after the other, each waiting for the one before
    """

    plain: float = 0.0
    chained: float = 0.0
    divides: float = 0.0
    roots: float = 0.0
    shuffles: float = 0.0
    gathers: float = 0.0
    steps: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f) + getattr(other, f) for f in self.__slots__))


FUNCTIONS: Final[dict[str, Work]] = {
    "exp": Work(chained=21),
    "expm1": Work(chained=21),
    "log": Work(chained=34, divides=1),
    "log1p": Work(chained=37, divides=2),
    "tanh": Work(chained=30, divides=1),
    "erf": Work(chained=24),
    "sigmoid": Work(chained=18, divides=1),
    "sin": Work(chained=35),
    "cos": Work(chained=34),
    "sinh": Work(chained=69, divides=2),
    "cosh": Work(chained=52, divides=2),
    "asinh": Work(chained=92, divides=6, roots=2),
    "acosh": Work(chained=91, divides=4, roots=2),
    "atanh": Work(chained=90, divides=6),
    "tan": Work(chained=92, divides=2),
    "asin": Work(chained=55, roots=2),
    "acos": Work(chained=59, roots=2),
    "atan": Work(chained=64, divides=2),
    "pow": Work(chained=168, divides=2),
    "sqrt": Work(roots=1),
}
"""The functions that are more than one instruction, in f32. An instruction in f64 counts as two: a vector of results is
two vectors of these."""

_FREE = frozenset({"bits", "from_bits"})
_ROUNDED = frozenset({dtypes.bf16})
_ROUNDING = Work(plain=8)
"""To nearest, ties to even, in integers: the bits that are lost, the last that stays, a carry, and NaN."""
_INTEGER_DIVISION = Work(plain=4, divides=2)
"""Rounded quotients of integers run in floats: two conversions, a quotient of each half, and corrections."""


@lru_cache(maxsize=1 << 10)
def work_of(e: Expr) -> Work:
    """What an expression takes; a part that stands in it several times is computed once."""
    total = Work()
    for node in dict.fromkeys(preorder(e)):
        match node:
            case Const() | Var():
                pass
            case Div() if node.dtype.is_float:
                total += Work(divides=1)
            case Div() | FloorDiv() | Mod() | Rem():
                total += _INTEGER_DIVISION
            case Cast(a) if a.dtype.bits == node.dtype.bits and a.dtype.kind in "iu" and node.dtype.kind in "iu":
                pass
            case Cast() if node.dtype in _ROUNDED:
                total += _ROUNDING
            case Call(fn):
                total += FUNCTIONS.get(fn.name, Work(plain=0 if fn.name in _FREE else 1))
            case Expr():
                total += Work(plain=1)
    return total
