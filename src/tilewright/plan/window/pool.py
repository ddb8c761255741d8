"""The schedule of pools along the rows of images: the largest, the smallest or the sum of each window, in registers.

    for images and channels:
      q = the channel's rows with what is around them          of large images only those of a row of tiles
      for tiles of R rows, vectors of columns:
        t[R, lanes] = -inf
        for b, a, r: t[r] = max(t[r], q[row of r at a, columns from b on])        a row is loaded once for all a
        y[…] = f(t)

Where nothing is around an image, its rows are read where they lie. Where columns are no multiple of a vector, or rows
of a tile, the last one is moved back: what it does again, it does alike. Rows shorter than a vector, of windows that
move column by column, are one under a mask.
"""

from __future__ import annotations

from functools import reduce
from math import prod

from tilewright.expr.nodes import Const
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import blocks, loads, loops_around
from tilewright.loops.nodes import Function
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.loops import loop_of
from tilewright.plan.window.depthwise import hold
from tilewright.plan.window.depthwise_choice import (
    NEAR_SHARE,
    Choice,
    Held,
    Windows,
    calls_functions,
    column_taps,
    last_block,
    row_taps,
    side_along,
)
from tilewright.schedule.find import find_block, stored_buffers
from tilewright.schedule.inline import all_inlined
from tilewright.schedule.nests import extent_of
from tilewright.schedule.reduce import accumulation
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

LEAST_COLUMNS = 4
"""Rows of fewer columns are not worth a vector."""

LEAST_ROWS = 2
"""A single row is no image."""

FURTHEST = 2
"""Windows that move by more columns meet elements too far apart for whole vectors."""

MOST_ROWS = 4
"""The most rows of a tile: neighbouring ones meet the same rows of the image."""

WRITTEN_OUT = 64
"""The most terms of a tile, in vectors, that are written out; of more, the columns of a window stay a loop."""


def schedule_pool(function: Function, target: Target) -> Schedule | None:
    """The schedule of a kernel that reduces windows along rows, of sizes known to the compiler; None for any other."""
    pool = find_pool(all_inlined(function, once=True)) if _may_be_pool(function) else None
    if pool is None:
        return None
    s = Schedule(function)
    s.inline_all(once=True)
    return apply_pool(s, pool, choose_tile(pool, target))


def _may_be_pool(function: Function) -> bool:
    """Whether there is one reduction, of what may be one image: no inlining makes others so."""
    reducing = [b for b in blocks(function.body) if b.reduce]
    given = {load.buffer for b in reducing for load in loads(b)} & set(function.params[: function.inputs])
    return len(reducing) == 1 and len(given) <= 1


def find_pool(function: Function) -> Windows | None:
    """The windows that a kernel reduces, each to one value; None for any other kernel."""
    reducing = [b for b in blocks(function.body) if b.reduce]
    summed = accumulation(reducing[0].replace(init=None)) if len(reducing) == 1 else None
    read = [] if summed is None else list(loads(summed[2]))
    if summed is None or len(read) != 1 or len(reducing[0].spatial) < 3 or len(read[0].indices) < 2:
        return None
    (block,), (load,), out = reducing, read, summed[1].buffer
    last = last_block(function, block, out)
    if last is None or out.dtype.is_bool or load.buffer.dtype.is_bool:
        return None
    loops = {loop.var: loop for loop in loops_around(function.body, block)}
    extents = {a.var: extent_of(loops[a.binding]) for a in block.axes if a.binding in loops}
    row, column = block.spatial[-2].var, block.spatial[-1].var
    sizes = {v: known(e) for v, e in extents.items() if isinstance(e, Const)}
    if not {row, column, *(a.var for a in block.reduce)} <= set(sizes):
        return None
    along = [side_along(load, d, axis, sizes) for d, axis in ((-2, row), (-1, column))]
    (s0, t0, a0), (s1, t1, a1) = (a or (0, 0, 0) for a in along)
    if t0 * t1 != prod(sizes[a.var] for a in block.reduce) or s1 > FURTHEST:
        return None
    if sizes[column] < LEAST_COLUMNS or sizes[row] < LEAST_ROWS or 0 in sizes.values():
        return None
    tap = next((n for n, a in enumerate(block.reduce) if a.var in variables_of(load.indices[-1])), None)
    names = block.name, out, load.buffer, last.name
    return Windows(*names, calls_functions(last), sizes[row], sizes[column], (s0, s1), (t0, t1), (a0, a1), tap)


def choose_tile(w: Windows, target: Target) -> Choice:
    """The tile, and where the rows are that it meets."""
    full = lanes = target.lanes(w.out.dtype)
    under_mask = target.has_masks and w.steps[1] == 1
    while (lanes // 2 if under_mask else lanes - 1) >= w.width:
        lanes //= 2
    rows = -(-w.height // -(-w.height // MOST_ROWS))
    sides = zip((w.height, w.width), w.steps, w.taps, w.apart, strict=True)
    height, width = ((n - 1) * s + (t - 1) * a + 1 for n, s, t, a in sides)
    near = height * (width + full) * w.source.dtype.bytes <= target.caches[0].bytes // NEAR_SHARE
    unroll = rows * prod(w.taps) <= WRITTEN_OUT
    copied = full
    while copied > width:
        copied //= 2
    return Choice(rows, lanes, not near, Held.COPIED, False, copied, unroll, False, False, False, 1)


def apply_pool(s: Schedule, w: Windows, choice: Choice) -> Schedule:
    """The steps that a choice stands for."""
    last = s.cache_write(w.block) if w.out.scope is Scope.ARGUMENT else w.last
    near = None
    if w.source.scope is not Scope.ARGUMENT:
        pad = s.unite(w.source.name)
        near = pad, s.cache_write(pad)
    row, column = loop_of(s, last, -2), loop_of(s, last, -1)
    images = [v for v in s.get_loops(last) if v not in (row, column)]
    rows, row = s.split(row, choice.rows, tail="shift")
    s.reorder(*images, rows, column, row)
    tile, column = s.split(column, choice.lanes, tail="mask" if w.width < choice.lanes else "shift")
    s.reorder(row, column)
    s.compute_at(w.block, tile)
    _reduce(s, w, choice)
    if near is not None:
        hold(s, w, choice, near, images[-1] if images else rows, [rows, tile])
    s.vectorize(column)
    s.unroll(row)
    if images:
        s.parallel(reduce(s.fuse, images))
    return s


def _reduce(s: Schedule, w: Windows, choice: Choice) -> None:
    """What a tile comes to, in registers: columns of the window outermost, so that what is loaded of a row serves all
    rows of the tile that meet it."""
    row, lane = loop_of(s, w.block, -2), loop_of(s, w.block, -1)
    columns, rows = column_taps(s, w), row_taps(s, w)
    if w.width < choice.lanes:
        lane = s.split(lane, choice.lanes, tail="mask")[1]
    s.reorder(*columns, *rows, row, lane)
    (made,) = stored_buffers(find_block(s.func, w.block))
    s.compact(made.name)
    s.set_scope(made.name, "register")
    if w.width < choice.lanes:
        at = ", ".join(f"d{n}" for n in range(len(made.shape) - 1))
        s.transform_layout(made.name, f"{at}, n -> {at}, n // {choice.lanes}, n % {choice.lanes}")
    s.vectorize(lane)
    for loop in (*rows, row, *(columns if choice.unroll_columns else ())):
        s.unroll(loop)
