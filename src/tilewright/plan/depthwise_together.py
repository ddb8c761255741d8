"""prototype"""

from __future__ import annotations

from tilewright.expr.nodes import Var
from tilewright.expr.variables import variables_of
from tilewright.loops.nodes import Function
from tilewright.plan.block_loops import extent, inside, loop_of, parts
from tilewright.plan.contraction import Contraction
from tilewright.plan.contraction_packing import pack
from tilewright.plan.depthwise_choice import Windows
from tilewright.plan.depthwise_turned import _channels, _is_the_same_all_over
from tilewright.plan.register_tiles import known
from tilewright.schedule.find import find_block, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

MOST_ROWS = 7


def count_together(function: Function, found: Contraction, w: Windows, target: Target) -> int:
    lanes, axis = target.lanes(w.out.dtype), _channels(found)
    if axis is None or not target.has_masks or not _is_the_same_all_over(function, w):
        return 1
    if w.apart != (1, 1) or max(w.steps) > 2 or w.column_tap is None or w.out.dtype.bits != 32:
        return 1
    room = 1 << (w.width - 1).bit_length()
    together = lanes // room
    return together if together > 1 and known(found.extents[axis]) % together == 0 else 1


def apply_together(s: Schedule, found: Contraction, w: Windows, target: Target, together: int) -> Schedule:
    lanes, axis = target.lanes(w.out.dtype), _channels(found)
    assert axis is not None
    padded = w.source.scope is not Scope.ARGUMENT
    near = s.unite(w.source.name) if padded else s.cache_read(w.block, w.source.name)
    last = s.cache_write(w.block) if w.out.scope is Scope.ARGUMENT else w.last
    back = s.cache_write(last)
    pack(s, found, found.broadcast, axis, together)
    outer, each = s.split(loop_of(s, back, axis), together)
    row, column = loop_of(s, back, -2), loop_of(s, back, -1)
    rows = -(-w.height // -(-w.height // MOST_ROWS))
    mo, mi = s.split(row, rows, tail="shift")
    around = [v for v in s.get_loops(back) if v not in (outer, each, mo, mi, column)]
    s.reorder(outer, *around, mo, mi, each, column)
    s.compute_at(last, mo)
    s.compute_at(w.block, mo)
    room = lanes // together
    _sum(s, w, axis, room)
    _in_lanes(s, last, axis, room)
    _hold(s, w, near, mo, axis, lanes, padded, rows)
    s.vectorize(s.split(column, room, tail="mask")[1])
    s.unroll(each)
    s.unroll(mi)
    s.parallel(outer)
    return s


def _lay(s: Schedule, block: str, axis: int, room: int) -> None:
    (made,) = stored_buffers(find_block(s.func, block))
    s.compact(made.name)
    s.set_scope(made.name, "register")
    names = [f"d{n}" for n in range(len(made.shape))]
    kept = [d for n, d in enumerate(names[:-1]) if n != axis]
    s.transform_layout(
        made.name, f"{', '.join(names)} -> {', '.join(kept)}, {names[-1]} // {room}, {names[-1]} % {room}, {names[axis]}"
    )


def _in_lanes(s: Schedule, block: str, axis: int, room: int) -> None:
    row, column, each = (loop_of(s, block, d) for d in (-2, -1, axis))
    whole, inner = s.split(column, room, tail="mask")
    s.reorder(row, whole, inner, each)
    _lay(s, block, axis, room)
    s.pad(block, inner)
    s.vectorize(s.fuse(inner, each))
    s.unroll(row)


def _sum(s: Schedule, w: Windows, axis: int, room: int) -> None:
    found = find_block(s.func, w.block)
    row, column, each = (loop_of(s, w.block, d) for d in (-2, -1, axis))
    taps = [v for a in found.reduce for v in s.get_loops(w.block) if v in variables_of(a.binding)]
    columns = [v for v in s.get_loops(w.block) if v in variables_of(found.reduce[w.column_tap].binding)]
    others = [v for v in taps if v not in columns]
    whole, inner = s.split(column, room, tail="mask")
    s.reorder(*columns, *others, row, whole, inner, each)
    _lay(s, w.block, axis, room)
    s.pad(w.block, inner)
    s.vectorize(s.fuse(inner, each))
    for loop in (*columns, *others, row):
        s.unroll(loop)


def _hold(s: Schedule, w: Windows, near: str, tile: Var, axis: int, lanes: int, padded: bool, rows: int) -> None:
    (made,) = stored_buffers(find_block(s.func, near)) if not padded else (w.source,)
    s.compute_at(near, tile)
    s.compact(made.name)
    s.set_scope(made.name, "register")
    row, column, each = (loop_of(s, near, d) for d in (-2, -1, axis))
    beyond = extent(s, column) % lanes
    vectors, lane = s.split(column, lanes, tail="mask")
    at = ", ".join(f"d{n}" for n in range(len(made.shape) - 1))
    s.transform_layout(made.name, f"{at}, n -> {at}, n // {lanes}, n % {lanes}")
    if beyond:
        s.pad(near, lane)
    s.vectorize(lane)
    s.unroll(vectors)
    s.unroll(row)
    s.unroll(each)
    if padded:
        s.guard(near)
        block = find_block(s.func, near)
        first, end = inside(block, block.spatial[-2].var, 1)
        parts(s, row, (first, max(end - (w.height - rows) * w.steps[0], first)))
