"""The variables of an expression: what rewriting and proofs ask for again and again."""

from __future__ import annotations

from tilewright.expr.nodes import Expr, Var

_NONE: frozenset[Var] = frozenset()


def variables_of(e: Expr) -> frozenset[Var]:
    """The variables in an expression, also in the indices of its loads. The answer is kept in the expression."""
    try:
        return e._variables
    except AttributeError:
        return frozenset((e,)) if isinstance(e, Var) else _found(e)


def _found(root: Expr) -> frozenset[Var]:
    """A variable does not keep its own set: it would hold itself."""
    stack: list[Expr] = [root]
    while stack:
        node = stack[-1]
        inner = [c for c in node.children() if isinstance(c, Expr)]
        waiting = [c for c in inner if not isinstance(c, Var) and not hasattr(c, "_variables")]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        sets = {frozenset((c,)) if isinstance(c, Var) else c._variables for c in inner}
        largest = max(sets, key=len, default=_NONE)
        union = largest if all(s <= largest for s in sets) else _NONE.union(*sets)
        object.__setattr__(node, "_variables", union)
    return root._variables
