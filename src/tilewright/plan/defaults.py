"""The default schedule of a kernel.

inline        every local value that is defined point by point
cache_write   accumulations into an argument run in a local buffer
compute_at    local buffers shrink into the loop that reads them
then, for each loop nest: register tiles, lanes along a reduce axis, or plain vectors of points
"""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.nodes import Var
from tilewright.loops.decompose import decompose, variables_of
from tilewright.loops.edit import blocks, loads, loops_around, statements
from tilewright.loops.nodes import Alloc, Buffer, For, Function, Stmt, Store, seq
from tilewright.plan.rows import block_long_sums, reduces_contiguously, schedule_rows
from tilewright.plan.spatial import schedule_points
from tilewright.plan.tiles import schedule_tile
from tilewright.schedule.cache_write import cache_write
from tilewright.schedule.compute_at import compute_at
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.inline import inline_all
from tilewright.schedule.nests import has_branches
from tilewright.schedule.reduce import accumulation
from tilewright.target import Target
from tilewright.types.scopes import Scope


def default_schedule(function: Function, target: Target) -> Function:
    """The function scheduled for `target`: it computes the same (sums may be added up in another order)."""
    function = inline_all(function)
    function = _accumulate_locally(function)
    function = _pull_producers(function)
    function = decompose(function)
    made = [nest if isinstance(nest, Alloc) else _schedule_nest(nest, target) for nest in nests(function)]
    return function.replace(body=seq(*made))


def _accumulate_locally(function: Function) -> Function:
    """Accumulations straight into an argument get a local buffer."""
    for nest in nests(function):
        inside = blocks(nest)
        if len(inside) == 1 and inside[0].reduce and isinstance(inside[0].body, Store):
            buffer, points = inside[0].body.buffer, tuple(a.var for a in inside[0].spatial)
            if buffer.scope is Scope.ARGUMENT and stored_buffers(nest) == {buffer} and inside[0].body.indices == points:
                function, _ = cache_write(function, nest, buffer)
    return function


def _pull_producers(function: Function) -> Function:
    """Each local buffer is computed in the innermost loop that all its readers share and that it varies with, where
    that is legal: not further in, where it would be computed again and again."""
    for buffer in reversed([s.buffer for s in nests(function) if isinstance(s, Alloc)]):
        readers = [n for n in nests(function) if buffer not in stored_buffers(n) and _reads(n, buffer)]
        if len(readers) != 1:
            continue
        loop = _place_for(readers[0], buffer)
        moved = compute_at(function, buffer, loop) if loop is not None else None
        function = moved or function
    return function


def _reads(stmt: Stmt, buffer: Buffer) -> bool:
    return any(load.buffer is buffer for load in loads(stmt))


def _place_for(nest: Stmt, buffer: Buffer) -> For | None:
    """The innermost loop around every block that reads `buffer` which some index of it varies with."""
    around: list[For] | None = None
    used: set[Var] = set()
    for block in blocks(nest):
        bound = {a.var: a.binding for a in block.axes}
        for load in loads(block):
            if load.buffer is buffer:
                path = loops_around(nest, block)
                around = path if around is None else [loop for loop in around if loop in path]
                axes = set().union(*(variables_of(i) for i in load.indices))
                used |= set().union(*(variables_of(bound.get(v, v)) for v in axes))
    return next((loop for loop in reversed(around or []) if loop.var in used), None)


def _schedule_nest(nest: Stmt, target: Target) -> Stmt:
    """Register tiles where an output axis of an accumulation vectorizes; else row by row, or point by point."""
    lanes = _lanes(nest, target)
    if has_branches(nest) or any(not isinstance(b.body, Store) for b in blocks(nest)):
        return nest
    reducing = [b for b in blocks(nest) if b.reduce]
    if any(accumulation(b) is None for b in reducing):
        return nest
    if reducing:
        if reduces_contiguously(nest, lanes):
            return schedule_tile(nest, lanes, target) or schedule_rows(nest, lanes)
        nest = block_long_sums(nest)
        tiled = schedule_tile(nest, lanes, target) or schedule_tile(nest, max(lanes // 2, 2), target)
        return tiled or schedule_rows(nest, lanes)
    return schedule_points(nest, lanes)


def _lanes(nest: Stmt, target: Target) -> int:
    """Lanes for the widest element type that the nest stores, at most those of f32."""
    widest = max((s.buffer.dtype.bits for s in statements(nest) if isinstance(s, Store)), default=32)
    return max(target.vector_bits // max(widest, dtypes.f32.bits), 2)
