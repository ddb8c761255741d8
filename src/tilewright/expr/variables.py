"""The variables of an expression: what rewriting and proofs ask for again and again."""

from __future__ import annotations

from functools import lru_cache

from tilewright.core.walk import preorder
from tilewright.expr.nodes import Expr, Var


@lru_cache(maxsize=1 << 14)
def variables_of(e: Expr) -> frozenset[Var]:
    """The variables in an expression, also in the indices of its loads."""
    return frozenset([v for v in preorder(e) if isinstance(v, Var)])
