"""Rewrites functions like exp and sin into basic operations, which run in vector lanes.

    y[i] = tanh(x[i])     =>     y[i] = copysign(select(abs(x[i]) < 0.55, fma(…), 1 - …), x[i])

So are numbers that are rounded and made bytes, as quantization does.

The expansions are rules of expressions: expr/functions/.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr.functions.bytes import expand_dot
from tilewright.expr.functions.expansions import expand_call, expand_sum
from tilewright.expr.functions.nearest import expand_nearest, expand_nearest_number
from tilewright.expr.nodes import Add, Call, Cast, Expr
from tilewright.loops.edit import map_expressions
from tilewright.loops.nodes import Function


def expand_math(function: Function, fused: bool = True, dots: bool = False) -> Function:
    """The function without calls that have an expansion. `fused` says that the target has fused multiply-adds, `dots`
    that it has an instruction for `dot_bytes`."""
    if not function.body.kinds() & Call.bit:
        return function
    wholes: dict[Node, Node] = {}
    memo: dict[Node, Node] = {}

    def change_whole(node: Node) -> Node:
        if isinstance(node, Cast):
            return expand_nearest_number(node)
        return expand_sum(node, fused) if isinstance(node, Add) else node

    def change(node: Node) -> Node:
        if isinstance(node, Cast):
            return expand_nearest(node)
        if isinstance(node, Call) and node.fn.name == "dot_bytes":
            return node if dots else expand_dot(node)
        return expand_call(node, fused) if isinstance(node, Call) else node

    def calls_nothing(node: Node) -> bool:
        return isinstance(node, Expr) and not node.kinds & Call.bit

    def expanded(e: Expr) -> Expr:
        return transform(transform(e, change_whole, wholes, calls_nothing), change, memo, calls_nothing)

    body = map_expressions(function.body, expanded, lambda stmt: not stmt.kinds() & Call.bit)
    return function if body is function.body else function.replace(body=body)
