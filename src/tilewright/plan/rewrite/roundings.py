"""How often sums round an element: error bounds add these roundings to those of the products."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.expr.nodes import Const, Expr, Var


def longest_chain(terms: Iterable[Expr]) -> int:
    """The most operations between a variable of some terms and their result."""
    return max(map(_chain, terms), default=0)


def _chain(e: Expr) -> int:
    if isinstance(e, Const | Var):
        return 0
    return 1 + longest_chain(c for c in e.children() if isinstance(c, Expr))
