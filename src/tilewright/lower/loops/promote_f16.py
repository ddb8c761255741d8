"""Computes 16-bit floats in f32: each operation on f16 or bf16 becomes the f32 operation, rounded back at once.

    a + b        =>      f16(f32(a) + f32(b))

For +, -, *, / and square root the result is the same as that of one rounding (f32 has more than 2p + 2 bits), and it is
what NumPy computes. What is left for code generation are loads, stores, selections and casts of 16-bit floats.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr import dtypes
from tilewright.expr.build import cast
from tilewright.expr.nodes import Binary, Call, Cast, Compare, Expr
from tilewright.loops.edit import map_expressions
from tilewright.loops.nodes import Function

F16_TYPES = (dtypes.f16, dtypes.bf16)


def promote_f16(function: Function) -> Function:
    """The function without arithmetic on 16-bit floats."""
    memo: dict[Node, Node] = {}
    body = map_expressions(function.body, lambda e: transform(e, _promote, memo))
    return function if body is function.body else function.replace(body=body)


def _promote(node: Node) -> Node:
    match node:
        case Call(fn, _) if fn.result == "bits":
            return node
        case Binary() | Call() if isinstance(node, Expr) and _operand(node) in F16_TYPES:
            wide = node.rebuild(tuple(cast(c, dtypes.f32) for c in node.children() if isinstance(c, Expr)))
            return cast(wide, node.dtype)
        case Compare(a, b) if a.dtype in F16_TYPES:
            return node.rebuild((cast(a, dtypes.f32), cast(b, dtypes.f32)))
        case Cast(a, dtype) if _pivot(a.dtype, dtype):
            return cast(cast(a, dtypes.f32), dtype)
    return node


def _operand(node: Expr) -> dtypes.DType:
    first = node.children()[0]
    assert isinstance(first, Expr)
    return first.dtype


def _pivot(source: dtypes.DType, to: dtypes.DType) -> bool:
    """Whether a cast passes through f32: from f16 or bf16 to anything but f32, or from a narrow integer to f16 or bf16.
    (From f64 and wide integers code generation rounds once.)"""
    if source in F16_TYPES:
        return to is not dtypes.f32
    return to in F16_TYPES and source is not dtypes.f32 and (source.bits <= 16 or source.is_bool)
