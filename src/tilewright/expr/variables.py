"""What occurs in an expression, its variables above all: what rewriting and proofs ask for again and again."""

from __future__ import annotations

from typing import TypeVar

from tilewright.expr.nodes import Expr, Var

T = TypeVar("T")


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
        sets: list[frozenset[Var]] = []
        waiting: list[Expr] = []
        for c in inner:
            try:
                sets.append(c._variables)
            except AttributeError:
                if isinstance(c, Var):
                    sets.append(frozenset((c,)))
                else:
                    waiting.append(c)
        if waiting:
            stack += waiting
            continue
        stack.pop()
        object.__setattr__(node, "_variables", _union(sets))
    return root._variables


def kinds_in(e: Expr) -> frozenset[type[Expr]]:
    """The classes of the expressions in an expression. The answer is kept in the expression."""
    try:
        return e._kinds
    except AttributeError:
        pass
    stack: list[Expr] = [e]
    while stack:
        node = stack[-1]
        inner = [c for c in node.children() if isinstance(c, Expr)]
        waiting = [c for c in inner if not hasattr(c, "_kinds")]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        object.__setattr__(node, "_kinds", _union([frozenset((type(node),)), *[c._kinds for c in inner]]))
    return e._kinds


def _union(sets: list[frozenset[T]]) -> frozenset[T]:
    """The union: one of the sets, where that holds all others, so that few sets are made."""
    if not sets:
        return frozenset()
    largest = max(sets, key=len) if len(sets) > 1 else sets[0]
    for s in sets:
        if s is not largest and not s <= largest:
            return largest.union(*sets)
    return largest
