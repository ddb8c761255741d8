"""Blocks become plain statements: axes replaced by what they are bound to, predicates by branches."""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.expr.nodes import Expr
from tilewright.loops.decompose import decompose
from tilewright.loops.edit import substitute_expressions, transform_statements
from tilewright.loops.nodes import Block, Function, If, Stmt


def lower_blocks(function: Function) -> Function:
    """The function with no block in it."""

    def change(node: Node) -> Node:
        if not isinstance(node, Block):
            return node
        bindings: dict[Expr, Expr] = {a.var: a.binding for a in node.axes}
        body: Stmt = substitute_expressions(node.body, bindings)
        if node.where is None:
            return body
        return substitute_expressions(If(node.where, body), bindings)

    function = decompose(function)
    body = transform_statements(function.body, change)
    return function if body is function.body else function.replace(body=body)
