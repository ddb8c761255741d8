"""Writes out the iterations of `unroll` loops of constant extent, one after the other."""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.expr.nodes import Const, const
from tilewright.loops.edit import fresh_copy, substitute_expressions, transform_statements
from tilewright.loops.nodes import For, Function, LoopKind, Seq, seq


def unroll(function: Function) -> Function:
    """The function without `unroll` loops; one whose extent is no constant runs serially."""

    def change(node: Node) -> Node:
        if not isinstance(node, For) or node.kind is not LoopKind.UNROLL:
            return node
        if not (isinstance(node.begin, Const) and isinstance(node.end, Const)):
            return node.replace(kind=LoopKind.SERIAL)
        values = range(int(node.begin.value), int(node.end.value))
        copies = [substitute_expressions(fresh_copy(node.body), {node.var: const(v)}) for v in values]
        return seq(*copies) if copies else Seq(())

    body = transform_statements(function.body, change)
    return function if body is function.body else function.replace(body=body)
