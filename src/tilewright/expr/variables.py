"""What occurs in an expression, its variables above all: what rewriting and proofs ask for again and again."""

from __future__ import annotations

from tilewright.expr.nodes import Expr, Var


def variables_of(e: Expr) -> frozenset[Var]:
    """The variables in an expression, also in the indices of its loads."""
    return e.variables


def bits_of(*classes: type[Expr]) -> int:
    """These classes as a set of bits, to compare with the `kinds` of an expression: `e.kinds & bits_of(Min, Max)`."""
    bits = 0
    for kind in classes:
        bits |= kind.bit
    return bits
