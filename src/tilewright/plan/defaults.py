"""The default schedule of a kernel.

    inline        every local value that is defined point by point
    cache_write   accumulations into an argument run in a local buffer
    compute_at    local buffers shrink into the loop that reads them
    then, for each loop nest: register tiles, lanes along a reduce axis, or plain vectors of points
"""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.loops.decompose import decompose
from tilewright.loops.edit import blocks, statements
from tilewright.loops.nodes import Alloc, AxisKind, Function, Stmt, Store, seq
from tilewright.plan.rows import schedule_rows
from tilewright.plan.spatial import schedule_points
from tilewright.plan.tiles import schedule_tile
from tilewright.schedule.cache_write import cache_write
from tilewright.schedule.compute_at import compute_at
from tilewright.schedule.find import nests, perfect_nest, stored_buffers
from tilewright.schedule.inline import inline_all
from tilewright.schedule.loops import has_branches
from tilewright.schedule.reduce import accumulation
from tilewright.target import Target
from tilewright.types.scopes import Scope


def default_schedule(function: Function, target: Target) -> Function:
    """The function scheduled for `target`: it computes the same (sums may be added up in another order)."""
    function = inline_all(function)
    function = _accumulate_locally(function)
    function = _pull_producers(function)
    function = decompose(function)
    made: list[Stmt] = []
    for nest in nests(function):
        made.append(nest if isinstance(nest, Alloc) else _schedule_nest(nest, target))
    return function.replace(body=seq(*made))


def _accumulate_locally(function: Function) -> Function:
    """Accumulations straight into an argument get a local buffer."""
    for nest in nests(function):
        inside = blocks(nest)
        if len(inside) == 1 and inside[0].reduce and isinstance(inside[0].body, Store):
            buffer = inside[0].body.buffer
            if buffer.scope is Scope.ARGUMENT and stored_buffers(nest) == {buffer}:
                function, _ = cache_write(function, nest, buffer)
    return function


def _pull_producers(function: Function) -> Function:
    """Each local buffer is computed in the innermost spatial loop of its only reader, where that is legal."""
    for buffer in reversed([s.buffer for s in nests(function) if isinstance(s, Alloc)]):
        for nest in nests(function):
            loops, _ = perfect_nest(nest)
            if not loops or buffer in stored_buffers(nest):
                continue
            moved = compute_at(function, buffer, loops[-1]) if _is_point_nest(nest) else None
            if moved is not None:
                function = moved
                break
    return function


def _is_point_nest(nest: Stmt) -> bool:
    """Whether a nest is loops around one block of independent points."""
    inside = blocks(nest)
    return len(inside) == 1 and all(a.kind is AxisKind.SPATIAL for a in inside[0].axes)


def _schedule_nest(nest: Stmt, target: Target) -> Stmt:
    lanes = _lanes(nest, target)
    if has_branches(nest) or any(not isinstance(b.body, Store) for b in blocks(nest)):
        return nest
    if any(accumulation(b) is not None and b.reduce for b in blocks(nest)):
        return _schedule_accumulation(nest, lanes, target)
    return schedule_points(nest, lanes)


def _schedule_accumulation(nest: Stmt, lanes: int, target: Target) -> Stmt:
    """Register tiles where an output axis vectorizes, else lanes along the reduce axis."""
    tiled = schedule_tile(nest, lanes, target)
    if tiled is not None:
        return tiled
    return schedule_rows(nest, lanes)


def _lanes(nest: Stmt, target: Target) -> int:
    """Lanes for the widest element type that the nest stores, at most those of f32."""
    widest = max((s.buffer.dtype.bits for s in statements(nest) if isinstance(s, Store)), default=32)
    return max(target.vector_bits // max(widest, dtypes.f32.bits), 2)


