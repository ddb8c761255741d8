"""Writes out the iterations of `unroll` loops of constant extent, one after the other."""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr.nodes import Binary, Broadcast, Compare, Const, Expr, Select, binary, const, select
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import defines, fresh_copy, map_expressions, transform_statements
from tilewright.loops.nodes import For, Function, LoopKind, Seq, Stmt, seq


def unroll(function: Function) -> Function:
    """The function without `unroll` loops; one whose extent is no constant runs serially."""

    def change(node: Node) -> Node:
        if not isinstance(node, For) or node.kind is not LoopKind.UNROLL:
            return node
        if not (isinstance(node.begin, Const) and isinstance(node.end, Const)):
            return node.replace(kind=LoopKind.SERIAL)
        values = range(int(node.begin.value), int(node.end.value))
        fresh = defines(node.body)
        copies = [_iteration(node, fresh_copy(node.body) if fresh else node.body, v) for v in values]
        return seq(*copies) if copies else Seq(())

    body = transform_statements(function.body, change)
    return function if body is function.body else function.replace(body=body)


def _iteration(loop: For, body: Stmt, value: int) -> Stmt:
    """The body for one value of the loop variable. Arithmetic on constants is done on the way (indices of register
    buffers must be numbers), and what a number decides is decided."""
    memo: dict[Node, Node] = {loop.var: const(value)}

    def fold(node: Node) -> Node:
        if isinstance(node, Binary) and node.lanes == 1 and node.dtype.is_int:
            return binary(type(node), node.a, node.b)
        if isinstance(node, Compare) and node.lanes == 1 and node.a.dtype.is_int:
            return binary(type(node), node.a, node.b)
        if isinstance(node, Select):
            cond = node.cond.a if isinstance(node.cond, Broadcast) else node.cond
            return select(cond, node.a, node.b) if isinstance(cond, Const) else node
        return node

    def stays(node: Node) -> bool:
        return isinstance(node, Expr) and loop.var not in variables_of(node)

    def replace(e: Expr) -> Expr:
        return transform(e, fold, memo, stays)

    return map_expressions(body, replace, lambda stmt: loop.var not in stmt.variables())
