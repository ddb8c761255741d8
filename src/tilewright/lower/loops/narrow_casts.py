"""Rewrites casts from and to narrow types into integer arithmetic on their codes.

    y[i] = f32(x[i])          =>      y[i] = f32(i8(bits(x[i]) & 15 ^ 8) + -8)          x: i4, y: f32

The expansions are rules of expressions: expr/functions/narrow_casts.py. What is left of narrow types for code
generation are loads, stores, selections, and their bits.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr.functions.narrow_casts import expand_cast
from tilewright.expr.nodes import Cast, Expr
from tilewright.loops.edit import map_expressions
from tilewright.loops.nodes import Function


def expand_narrow_casts(function: Function) -> Function:
    """The function without casts from or to narrow types."""
    if not function.body.kinds() & Cast.bit:
        return function
    memo: dict[Node, Node] = {}

    def change(node: Node) -> Node:
        return expand_cast(node) if isinstance(node, Cast) else node

    def casts_nothing(node: Node) -> bool:
        return isinstance(node, Expr) and not node.kinds & Cast.bit

    body = map_expressions(
        function.body, lambda e: transform(e, change, memo, casts_nothing), lambda stmt: not stmt.kinds() & Cast.bit
    )
    return function if body is function.body else function.replace(body=body)
