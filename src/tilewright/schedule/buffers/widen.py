"""widen: a local buffer holds its elements in a wider type.

block x.cache: x.cache[i, k] = x[i, k]                          block x.cache: x.cache[i, k] = i16(x[i, k])
block dot: y[i, j] += i32(x.cache[i, k]) * i32(w[k, j])   =>    block dot: y[i, j] += i32(x.cache[i, k]) * i32(w[k, j])

                 widen("x.cache", "i16")           x.cache: i8[33, 77] becomes x.cache: i16[33, 77]
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr.build import cast
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.nodes import Cast
from tilewright.loops.edit import map_expressions, statements, transform_statements
from tilewright.loops.nodes import Alloc, Buffer, Function, Load, Prefetch, Stmt, Store
from tilewright.schedule.buffers.layout import require_local
from tilewright.schedule.find import find_buffer
from tilewright.schedule.step import Step, refusal


def widen(function: Function, buffer: str, dtype: str) -> Step:
    """The local buffer holds its elements in a type that has all values of its own type. Stored values are converted.
    Loaded values are converted back, or directly to the type that the reader converts them to.

    x.cache[i] = x[i]; y[i] = i32(x.cache[i])     =>     x.cache[i] = i16(x[i]); y[i] = i32(x.cache[i])
    """
    found = find_buffer(function, buffer)
    what = f"cannot hold {buffer} as {dtype}"
    require_local(function, found, what)
    alloc = next(s for s in statements(function.body) if isinstance(s, Alloc) and s.buffer is found)
    for s in statements(function.body):
        if isinstance(s, Prefetch) and s.place.buffer is found:
            raise refusal(function, what, s, why=f"it asks for {buffer} by its place in memory")
    wide = DTYPES.get(dtype)
    if wide is None or wide is found.dtype or not wide.holds(found.dtype):
        able = [d.name for d in DTYPES.values() if d is not found.dtype and d.holds(found.dtype)]
        why = f"{dtype} is no type" if wide is None else f"{wide} does not have all values of {found.dtype} and more"
        fix = f"take {' or '.join(able)}" if able else None
        raise refusal(function, what, alloc, why=why, fix=fix, part=buffer)
    made = found.replace(dtype=wide)
    evidence = (f"{wide} has every value of {found.dtype}",)
    return Step(function.replace(body=_retyped(function.body, found, made)), None, evidence)


def _retyped(body: Stmt, old: Buffer, made: Buffer) -> Stmt:
    """The statement with one buffer in place of the other."""

    def of_expression(node: Node) -> Node:
        match node:
            case Load() if node.buffer is old:
                return cast(Load(made, node.indices), old.dtype)
            case Cast(Cast(Load(buffer) as load, dtype), to) if (
                buffer is made and dtype is old.dtype and to.holds(dtype)
            ):
                return cast(load, to)
        return node

    def of_statement(node: Node) -> Node:
        match node:
            case Store() if node.buffer is old:
                return Store(made, node.indices, cast(node.value, made.dtype))
            case Alloc() if node.buffer is old:
                return node.replace(buffer=made)
        return node

    memo: dict[Node, Node] = {}
    return transform_statements(map_expressions(body, lambda e: transform(e, of_expression, memo)), of_statement)
