"""Computes 16-bit floats in f32: each operation on f16 or bf16 becomes the f32 operation, rounded back at once.

    a + b        =>      f16(f32(a) + f32(b))

For +, -, *, / and square root the result is the same as that of one rounding (f32 has more than 2p + 2 bits), and it is
what NumPy computes. What is left for code generation are loads, stores, selections and casts of 16-bit floats.

The greatest of some numbers is one of them, and needs no rounding: registers that hold nothing else hold f32.

    t[0] = max(t[0], x[i])      =>      t[0] = max(t[0], f32(x[i]))                            t: bf16, now f32
"""

from __future__ import annotations

import math

from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr import dtypes
from tilewright.expr.build import cast
from tilewright.expr.nodes import Binary, Call, Cast, Compare, Const, Expr, Max, Min, Select
from tilewright.loops.edit import allocations, map_expressions, named_buffers, statements, transform_statements
from tilewright.loops.nodes import Alloc, Buffer, CallFunction, For, Function, Load, Stmt, Store, View
from tilewright.types.scopes import Scope

F16_TYPES = (dtypes.f16, dtypes.bf16)


def promote_f16(function: Function) -> Function:
    """The function without arithmetic on 16-bit floats."""
    memo: dict[Node, Node] = {}
    body = map_expressions(function.body, lambda e: transform(e, _promote, memo))
    return function if body is function.body else function.replace(body=_hold_wide(body))


def _hold_wide(body: Stmt) -> Stmt:
    """Statements with registers of f32 for those of 16-bit floats to which nothing is stored that has to be rounded."""
    values = {
        b: Buffer(b.name, dtypes.f32, b.shape, b.scope)
        for b in allocations(body)
        if b.scope is Scope.REGISTER and b.dtype in F16_TYPES
    }
    for s in statements(body) if values else ():
        others: frozenset[Buffer] = frozenset()
        if isinstance(s, Store):
            others = others if _is_exact(s.value) else frozenset((s.buffer,))
        elif isinstance(s, View | CallFunction) or (isinstance(s, For) and s.instruction is not None):
            others = named_buffers(s)  # it takes them as they lie
        values = {b: wide for b, wide in values.items() if b not in others}
    if not values:
        return body

    def narrowed(node: Node) -> Node:
        if isinstance(node, Load) and node.buffer in values:
            return cast(Load(values[node.buffer], node.indices), node.dtype)
        if isinstance(node, Cast) and isinstance(node.a, Cast) and isinstance(node.a.a, Load):
            return node.a.a if node.a.a.buffer in wide and node.dtype is dtypes.f32 else node
        return node

    def widened(node: Node) -> Node:
        if isinstance(node, Alloc) and node.buffer in values:
            return node.replace(buffer=values[node.buffer])
        if isinstance(node, Store) and node.buffer in values:
            value = node.value
            value = value.a if isinstance(value, Cast) and value.a.dtype is dtypes.f32 else cast(value, dtypes.f32)
            return Store(values[node.buffer], node.indices, value)
        return node

    wide = frozenset(values.values())
    memo: dict[Node, Node] = {}
    return transform_statements(map_expressions(body, lambda e: transform(e, narrowed, memo)), widened)


def _is_exact(e: Expr) -> bool:
    """Whether a value is one of 16 bits for certain, though it may be computed in f32."""
    match e:
        case Cast(a, dtype) if dtype in F16_TYPES and a.dtype is dtypes.f32:
            return _is_exact(a)
        case Cast(a, dtypes.f32):
            return a.dtype in F16_TYPES
        case Max(a, b) | Min(a, b) | Select(_, a, b):
            return _is_exact(a) and _is_exact(b)
        case Const(value, dtypes.f32):
            return value == 0 or math.isinf(value)
    return e.dtype in F16_TYPES and isinstance(e, Load | Const)


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
