"""Writes out the iterations of `unroll` loops of constant extent, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.core.node import Node
from tilewright.expr.nodes import And, Binary, Broadcast, Compare, Const, Expr, Or, Select, Var, binary, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import defines, fresh_copy, map_expressions, statements, transform_statements
from tilewright.loops.nodes import For, Function, If, Load, LoopKind, Seq, Stmt, seq

_Made = Callable[[Expr, tuple[Expr, ...]], Expr]


def unroll(function: Function) -> Function:
    """The function without `unroll` loops; one whose extent is no constant runs serially."""

    def change(node: Node) -> Node:
        if not isinstance(node, For) or node.kind is not LoopKind.UNROLL:
            return node
        if not (isinstance(node.begin, Const) and isinstance(node.end, Const)):
            return node.replace(kind=LoopKind.SERIAL)
        values = range(int(node.begin.value), int(node.end.value))
        if defines(node.body):
            copies = [_Body(fresh_copy(node.body), node.var).at(v) for v in values]
        else:
            body = _Body(node.body, node.var)
            copies = [body.at(v) for v in values]
        if any(isinstance(s, If) and node.var in s.cond.variables for s in statements(node.body)):
            copies = [transform_statements(copy, _decided) for copy in copies]
        return seq(*_joined(copies)) if copies else Seq(())

    body = transform_statements(function.body, change)
    return function if body is function.body else function.replace(body=body)


class _Body:
    """The body of a loop over a variable; `over` are the expressions that the variable is in, parts before wholes, each
    with its parts and with what makes it of others."""

    def __init__(self, body: Stmt, var: Var) -> None:
        self.body, self.var = body, var
        self.over: dict[Expr, tuple[tuple[Expr, ...], _Made]] = {}
        map_expressions(body, self._find, self._stays)

    def at(self, value: int) -> Stmt:
        """The body for one value of the variable. Arithmetic on constants is done on the way (indices of register
        buffers must be numbers), and what a number decides is decided."""
        made: dict[Expr, Expr] = {self.var: const(value)}
        known = made.get
        for e, (parts, folded) in self.over.items():
            made[e] = folded(e, tuple([known(c, c) for c in parts]))
        return map_expressions(self.body, lambda e: known(e, e), self._stays)

    def _stays(self, stmt: Stmt) -> bool:
        return self.var not in stmt.variables()

    def _find(self, root: Expr) -> Expr:
        over, var = self.over, self.var
        stack = [root] if root is not var and root not in over and var in root.variables else []
        while stack:
            node = stack[-1]
            waiting = [c for c in node.children() if c is not var and c not in over and var in c.variables]
            if waiting and node not in over:
                stack += waiting[::-1]
                continue
            over[stack.pop()] = node.children(), _folding(node)
        return root


def _decided(node: Node) -> Node:
    """What is left of an `if` whose condition is a number; another one with its condition simplified."""
    if type(node) is not If or node.cond.kinds & Load.bit:
        return node
    cond = simplify(node.cond)
    if not isinstance(cond, Const):
        return node.replace(cond=cond)
    return (node.then if cond.value else node.otherwise) or Seq(())


def _joined(copies: Sequence[Stmt]) -> list[Stmt]:
    """The iterations, with those that are all of a branch with the same condition, one after the other, in one."""
    found: list[Stmt] = []
    for copy in copies:
        last = found[-1] if found else None
        if type(copy) is If and type(last) is If and copy.cond is last.cond and _is_plain(copy) and _is_plain(last):
            found[-1] = last.replace(then=seq(last.then, copy.then))
        else:
            found.append(copy)
    return found


def _is_plain(branch: If) -> bool:
    """Whether a branch has one side, and a condition that no statement changes."""
    return branch.otherwise is None and not branch.cond.kinds & Load.bit


def _folding(node: Expr) -> _Made:
    """What makes an expression of other parts, and folds it."""
    match node:
        case Binary(a) | Compare(a) if node.lanes == 1 and a.dtype.is_int:
            return _computed
        case And() | Or():
            return _connected
        case Select():
            return _selected
    return type(node).refilled


def _computed(node: Expr, parts: tuple[Expr, ...]) -> Expr:
    assert isinstance(node, Binary | Compare)
    return binary(type(node), *parts)


def _connected(node: Expr, parts: tuple[Expr, ...]) -> Expr:
    first, second = parts
    for part, other in ((first, second), (second, first)):
        if isinstance(part, Const):
            return other if bool(part.value) is isinstance(node, And) else part
    return node.refilled(parts)


def _selected(node: Expr, parts: tuple[Expr, ...]) -> Expr:
    cond, then, otherwise = parts
    decided = cond.a if isinstance(cond, Broadcast) else cond
    if isinstance(decided, Const):
        return then if decided.value else otherwise
    return node.refilled(parts)
