"""Layouts: where the elements of a local buffer are stored in memory, and padding beyond its end.

for k, j: block w.cache: w.cache[k, j] = w[k, j]                      for jo, k, ji: block w.cache:
for …: block dot: y[i, j] += x[i, k] * w.cache[k, j]           =>       w.cache[jo, k, ji] = w[k, jo*16 + ji]
                                                                      for …: block dot: y[i, j] += x[i, k] *
             transform_layout("w.cache", "k, j -> j // 16, k, j % 16")           w.cache[j // 16, k, j % 16]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.analysis.accesses import accesses
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.build import conjunction, minimum, select
from tilewright.expr.nodes import Const, Expr, Lt, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import (
    blocks,
    loads,
    loads_of,
    loops_around,
    map_loads,
    replace,
    statements,
    transform_statements,
)
from tilewright.loops.nodes import (
    Alloc,
    Axis,
    Block,
    Buffer,
    CallFunction,
    For,
    Function,
    Load,
    LoopKind,
    Publish,
    Seq,
    Stmt,
    Store,
    View,
)
from tilewright.schedule.buffers.cache import point_nest
from tilewright.schedule.buffers.index_map import IndexMap, read_map, written
from tilewright.schedule.find import find_buffer
from tilewright.schedule.names import unique_loops
from tilewright.schedule.step import Step, refusal


def transform_layout(
    function: Function, buffer: str, map: str | Callable[..., object], *, pad: float | None = None
) -> Step:
    """Stores a local buffer in another layout: `map` gives the new indices of each access (index_map.py has its
    grammar). If one block fills the buffer point by point, its nest runs over the new layout in order, with a loop for
    each dimension: j becomes jo and ji where the map cuts it.

    A layout may have elements beyond the end of the buffer. They hold `pad`; without it they are never written. (After
    a partition of the loop over panels, full panels are filled without a condition.)

    block w.cache(vk = k, vj = j): w.cache[vk, vj] = w[vk, vj]                for w: f32[77, 45]
              =>      for jo in 0..3, k in 0..77, ji in 0..16:                pad=0.0
                        block w.cache(vjo = jo, vk = k, vji = ji):
                          w.cache[vjo, vk, vji] = select(vjo*16 + vji < 45, w[vk, min(vjo*16 + vji, 44)], 0.0)
    """
    found = find_buffer(function, buffer)
    what = f"cannot change the layout of {buffer}"
    require_local(function, found, what)
    if pad is not None and not isinstance(pad, int | float):
        raise refusal(function, what, _allocation(function, found), why=f"{pad!r} is no number", part=buffer)
    layout = read_map(map if isinstance(map, str) else written(map), len(found.shape))
    made = found.replace(shape=layout.shape(found.shape))
    filling = filling_of(function, found)
    body, evidence = function.body, [f"every access of {buffer} is to an element of its own"]
    if filling is not None:
        nest = _fill_in_order(function, filling, layout, made, pad)
        body = replace(body, filling.nest, nest)
        evidence.append(f"block {filling.block.name} fills {buffer} point by point, in whatever order")
    elif pad is not None and layout.padded(found.shape):
        why = "no single block fills it point by point, so nothing says where its padding would be written"
        raise refusal(
            function, what, _allocation(function, found), why=why, fix="fill it with a cache_read, or leave out pad"
        )
    return Step(function.replace(body=_moved(body, found, made, layout)), None, tuple(evidence))


def _allocation(function: Function, buffer: Buffer) -> Stmt:
    return next(s for s in statements(function.body) if isinstance(s, Alloc) and s.buffer is buffer)


def require_local(function: Function, buffer: Buffer, what: str) -> None:
    """Refuses a buffer whose layout others rely on."""
    if buffer in function.params:
        fix = f'cache_read(block, "{buffer.name}") and change the layout of the copy'
        raise refusal(function, what, function, why="the caller decides its layout", fix=fix, part=buffer.name)
    for s in statements(function.body):
        why = _known_elsewhere(s, buffer)
        if why is not None:
            raise refusal(function, what, s, why=why, part=buffer.name)


def _known_elsewhere(s: Stmt, buffer: Buffer) -> str | None:
    """Why a statement fixes the layout of a buffer; None where it does not."""
    match s:
        case Alloc() if s.buffer is buffer and s.offset is not None:
            return "its place in memory is planned already"
        case View() if buffer in (s.source, s.buffer):
            return f"{s.source.name} and {s.buffer.name} are names of the same memory"
        case CallFunction() if buffer in s.arguments:
            return f"the call of {s.callee} knows how it lies"
        case Publish() if s.buffer is buffer:
            return "it is handed to the caller"
        case For() if s.instruction is not None and any(a.buffer is buffer for a in accesses(s)):
            return f"the instruction {s.instruction} takes it as it lies"
        case Store() if s.buffer is buffer and any(i.lanes != 1 for i in s.indices):
            return "this stores vectors of it"
        case Store() if any(ld.buffer is buffer and ld.lanes != 1 for ld in loads(s)):
            return "this loads vectors of it"
    return None


def _moved(body: Stmt, old: Buffer, made: Buffer, layout: IndexMap) -> Stmt:
    """The statement with the accesses of one buffer made to the other, at the places that the layout gives them."""

    def place(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(i if loads_of(i) else simplify(i) for i in layout.places(indices))

    def of_load(node: Load) -> Expr:
        return Load(made, place(node.indices)) if node.buffer is old else node

    def of_statement(node: Node) -> Node:
        if isinstance(node, Store) and node.buffer is old:
            return Store(made, place(node.indices), node.value)
        return Alloc(made) if isinstance(node, Alloc) and node.buffer is old else node

    return transform_statements(map_loads(body, of_load), of_statement)


@dataclass(frozen=True, slots=True)
class Filling:
    """The one nest that writes a buffer: a serial loop for each dimension around a block that stores at its axes."""

    nest: For | Block
    block: Block
    store: Store


def filling_of(function: Function, buffer: Buffer) -> Filling | None:
    """The nest that fills a buffer point by point, each point once and by itself; None where there is none."""
    writers = [s for s in statements(function.body) if isinstance(s, Store) and s.buffer is buffer]
    around_it = [b for b in blocks(function.body) if b.body in writers]
    if len(writers) != 1 or len(around_it) != 1:
        return None
    (store,), (block,) = writers, around_it
    if block.init is not None or block.where is not None or block.reduce:
        return None
    if any(load.buffer is buffer for load in loads(store)) or not _is_every_point(block, store):
        return None
    around = loops_around(function.body, block)
    own = around[len(around) - len(block.axes) :] if block.axes else []
    extents = {a.binding: e for a, e in zip(_in_order(block, store), buffer.shape, strict=True)}
    inside: Stmt = block
    for loop in reversed(own):
        extent = extents.pop(loop.var, None)
        if extent is None or loop.body is not inside or loop.kind is not LoopKind.SERIAL or not _runs(loop, extent):
            return None
        inside = loop
    return None if extents or not isinstance(inside, For | Block) else Filling(inside, block, store)


def _is_every_point(block: Block, store: Store) -> bool:
    """Whether a block stores at its axes, in whatever order, and nowhere else."""
    axes = {a.var for a in block.axes}
    indices = {i for i in store.indices if isinstance(i, Var)}
    return axes == indices and len(store.indices) == len(axes)


def _in_order(block: Block, store: Store) -> list[Axis]:
    """The axes of a block in the order of the dimensions that it stores to."""
    by_variable = {a.var: a for a in block.axes}
    return [by_variable[i] for i in store.indices if isinstance(i, Var)]


def _runs(loop: For, extent: Expr) -> bool:
    """Whether a loop is over 0..extent."""
    begins, ends = simplify(loop.begin), simplify(loop.end - extent)
    return all(isinstance(e, Const) and e.value == 0 for e in (begins, ends))


def _fill_in_order(function: Function, filling: Filling, layout: IndexMap, made: Buffer, pad: float | None) -> Stmt:
    """The nest that fills the layout: a loop for each of its dimensions, in order."""
    old = filling.store.buffer
    others = function.replace(body=replace(function.body, filling.nest, Seq(())))
    loops = [Var(name) for name in unique_loops(others, layout.labels())]
    axes = _in_order(filling.block, filling.store)
    inside: list[Expr] = []

    def store(places: tuple[Expr, ...]) -> Stmt:
        elements = [simplify(e) for e in layout.elements(places)]
        for d in layout.padded(old.shape):
            inside.append(Lt(elements[d], old.shape[d]))
            if pad is not None:
                elements[d] = minimum(elements[d], simplify(old.shape[d] - 1))
        points: dict[Expr, Node] = {n: e for a, e in zip(axes, elements, strict=True) for n in (a.var, a.binding)}
        value = substitute(filling.store.value, points)
        within = conjunction(inside) if pad is not None else None
        return Store(made, places, value if within is None else select(within, value, const(pad or 0, old.dtype)))

    nest = point_nest(filling.block.name, loops, made.shape, store)
    if pad is not None or not inside:
        return nest
    (block,) = blocks(nest)
    return replace(nest, block, block.replace(where=conjunction(inside)))
