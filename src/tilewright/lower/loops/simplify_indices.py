"""Simplifies every index, bound and condition, knowing the ranges of the loops around it.

    for i in 0..n, j in 0..4:  y[(i*4 + j) // 4] = …      =>      y[i] = …

A loop whose extent is provably 1 disappears, one that never runs, too; a branch that is decided is taken. Indices are
taken to be far from overflow; what is computed from loaded integers is data, which may wrap around, and stays.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import substitute, transform
from tilewright.expr.nodes import And, Const, Expr, Not, Or, Select, Var, const
from tilewright.expr.rules import rules_for
from tilewright.expr.simplify import Facts, simplify
from tilewright.loops.edit import substitute_expressions
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    Block,
    For,
    Function,
    If,
    Let,
    Load,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)
from tilewright.lower.loops.masks import decided


def simplify_indices(function: Function) -> Function:
    """The function with simplified index arithmetic."""
    body = _simplify(function.body, {})
    return function if body is function.body else function.replace(body=body)


Ranges = dict[Var, tuple[Expr, Expr]]


class _Scope:
    """The facts of one place in the program, and a memo that lives as long as they hold."""

    def __init__(self, ranges: Ranges) -> None:
        self.facts = Facts(ranges)
        self.values: dict[Node, Node] = {}

    def index(self, e: Expr) -> Expr:
        return simplify(e, self.facts)

    def value(self, e: Expr) -> Expr:
        """A value: the indices of its loads and the parts without loads are simplified, and what is then decided."""
        if not e.kinds & Load.bit:
            return simplify(e, self.facts)
        stack: list[Expr] = [e]
        seen: set[Expr] = set()
        while stack:
            node = stack.pop()
            if node in self.values or node in seen:
                continue
            seen.add(node)
            if isinstance(node, Load):
                self.values[node] = Load(node.buffer, tuple(self.index(i) for i in node.indices))
            elif not node.kinds & Load.bit:
                self.values[node] = simplify(node, self.facts)
            else:
                stack.extend(c for c in node.children() if isinstance(c, Expr))
        return transform(e, self.decided, self.values)

    def decided(self, node: Node) -> Node:
        """The node, or what is left of it when a condition in it is known."""
        while isinstance(node, And | Or | Not | Select):
            better = next((r for rule in rules_for(node) if (r := rule(node, self.facts)) is not None), None)
            if better is None:
                break
            node = better
        return node


def _simplify(stmt: Stmt, ranges: Ranges) -> Stmt:
    return _step(stmt, _Scope(ranges), ranges)


def _step(stmt: Stmt, scope: _Scope, ranges: Ranges) -> Stmt:
    match stmt:
        case Seq(body):
            return _same_or(stmt, [_step(s, scope, ranges) for s in body])
        case For():
            return _loop(stmt, scope, ranges)
        case Store(_, indices, value):
            return stmt.replace(indices=tuple(scope.index(i) for i in indices), value=scope.value(value))
        case Let(_, value):
            return stmt.replace(value=scope.value(value))
        case Alloc(_, offset):
            return stmt if offset is None else stmt.replace(offset=scope.index(offset))
        case If(cond, then, otherwise):
            return _branch(stmt, scope.value(cond), then, otherwise, scope, ranges)
        case While(cond, body):
            return While(scope.value(cond), _step(body, scope, ranges))
        case Assert(cond, _, values):
            decided = scope.value(cond)
            if isinstance(decided, Const) and decided.value:
                return Seq(())
            return stmt.replace(cond=decided, values=tuple(scope.value(v) for v in values))
        case Prefetch(place, _):
            return stmt.replace(place=scope.value(place))
        case Block():
            return stmt.replace(body=_step(stmt.body, scope, ranges))
    return stmt


def _same_or(stmt: Seq, parts: list[Stmt]) -> Stmt:
    kept = [p for p in parts if not (isinstance(p, Seq) and not p.body)]
    if len(kept) == len(stmt.body) and all(a is b for a, b in zip(kept, stmt.body, strict=True)):
        return stmt
    return seq(*kept) if kept else Seq(())


def _loop(loop: For, scope: _Scope, ranges: Ranges) -> Stmt:
    begin, end = scope.index(loop.begin), scope.index(loop.end)
    extent = scope.index(end - begin)
    if isinstance(extent, Const) and extent.value <= 0:
        return Seq(())
    if isinstance(extent, Const) and extent.value == 1 and loop.kind is not LoopKind.THREAD:
        return _step(_only_iteration(loop, begin, scope), scope, ranges)
    inner = _simplify(loop.body, {**ranges, loop.var: (begin, scope.index(end - 1))})
    if isinstance(inner, Seq) and not inner.body:
        return inner
    return loop.replace(begin=begin, end=end, body=inner)


def _only_iteration(loop: For, begin: Expr, scope: _Scope) -> Stmt:
    """What a loop of one iteration runs, and each loop directly inside it that has only one, too."""
    values: dict[Expr, Expr] = {loop.var: begin}
    body = loop.body
    while isinstance(body, For) and body.kind is not LoopKind.THREAD:
        first, end = (scope.index(substitute(e, values)) for e in (body.begin, body.end))
        if scope.index(end - first) is not const(1):
            break
        values[body.var] = first
        body = body.body
    return substitute_expressions(body, values)


def _branch(stmt: If, cond: Expr, then: Stmt, otherwise: Stmt | None, scope: _Scope, ranges: Ranges) -> Stmt:
    known = decided(cond) if isinstance(cond, Const) or cond.lanes > 1 else None
    if known is not None:
        chosen = then if known else otherwise
        return _step(chosen, scope, ranges) if chosen is not None else Seq(())
    rest = _step(otherwise, scope, ranges) if otherwise is not None else None
    return If(cond, _step(then, scope, ranges), rest)
