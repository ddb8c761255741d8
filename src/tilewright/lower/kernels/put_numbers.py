"""Readers of a local buffer that holds one number everywhere have the number itself.

    alloc half: f32[] in arena
    block full(): half[] = 0.5                            =>
    for i in 0..n: block y(vi = i): y[vi] = x[vi]*half[]        for i in 0..n: block y(vi = i): y[vi] = x[vi]*0.5

Inlining does the same, one buffer at a time, and proves each time what definitions of operators say.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.expr.nodes import Const, Expr
from tilewright.loops.edit import loaded_buffers, map_loads, plain_nest, statements, stored_buffers
from tilewright.loops.nodes import Alloc, Buffer, CallFunction, Load, Seq, Stmt, Store, View, seq


def put_numbers(body: Stmt) -> Stmt:
    """The body of a kernel as operators define it, without the buffers that hold one number."""
    parts = body.body if isinstance(body, Seq) else (body,)
    local = {s.buffer for s in parts if isinstance(s, Alloc)}
    filling = {s: found for s in parts if (found := _filled(s)) is not None and found[0] in local}
    if not filling:
        return body
    others = {b for s in parts if s not in filling for b in _changed(s)}
    once = [buffer for buffer, _ in filling.values()]
    numbers = {b: number for b, number in filling.values() if b not in others and once.count(b) == 1}

    def change(load: Load) -> Expr:
        return numbers.get(load.buffer, load)

    def stays(s: Stmt) -> bool:
        return not isinstance(s, Seq) and loaded_buffers(s).isdisjoint(numbers)

    gone = {s for s, (buffer, _) in filling.items() if buffer in numbers}
    kept = [s for s in parts if s not in gone and not (isinstance(s, Alloc) and s.buffer in numbers)]
    return map_loads(seq(*kept), change, stays=stays)


def _filled(stmt: Stmt) -> tuple[Buffer, Const] | None:
    """The buffer that a nest fills with one number, each element by an iteration of its loops, and the number."""
    nest = plain_nest(stmt)
    if nest is None or nest[1].init is not None:
        return None
    (loops, block), store = nest, nest[1].body
    if not isinstance(store, Store) or not isinstance(store.value, Const) or store.value.lanes != 1:
        return None
    points = tuple(axis.var for axis in block.axes) == store.indices
    return (store.buffer, store.value) if points and [loop.end for loop in loops] == list(store.buffer.shape) else None


def _changed(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that a statement may store to, or that get other names in it."""
    yield from stored_buffers(stmt)
    for s in statements(stmt):
        if isinstance(s, CallFunction):
            yield from s.arguments
        elif isinstance(s, View):
            yield s.source
