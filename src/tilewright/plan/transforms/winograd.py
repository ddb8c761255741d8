"""The schedules of Winograd's transforms: tiles in lanes on the way in, channels on the way out; stages meet on stack.

    for n, c:                                               input; where planes meet in the cache, c in few channels
      padded = the channel with its zeros
      half = Bᵀ d                                           of all rows of tiles; in large channels, of one
      for p, rows of tiles, vectors of tiles: v[p, …] = half B

    for n, vectors of channels, rows of tiles:              output
      for tiles of the row:
        half = Aᵀ m
        whole = half A                                      the pixels of the tile
      y = f(whole)                                          the epilogue, in vectors along rows, turned in registers

Where a loop is no multiple of the lanes, its last vector is moved back: what it does again, it does alike.
"""

from __future__ import annotations

import math

from tilewright.expr.dtypes import f32
from tilewright.expr.linear import affine_in, plus, polynomial
from tilewright.expr.nodes import Const, Le, Lt, Select, Var
from tilewright.loops.edit import blocks
from tilewright.loops.nodes import Block, Function, Store
from tilewright.plan.gemm.transposed import store_transposed
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.loops import cut_at
from tilewright.schedule.find import find_block, find_buffer, find_loop
from tilewright.schedule.nests import extent_of
from tilewright.schedule.predicates import conjuncts
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

CHANNEL_ELEMENTS = 8 * 1024
"""The largest channel that is padded as a whole; of larger ones, only the rows of a row of tiles."""

CHANNELS = 8
"""The channels that write a few planes of products together where all planes of one would begin in the same sets of the
first cache: 16 tiles of 256 channels are planes of 16 KiB, of which each store would wait for the one before."""

ROWS_ELEMENTS = 6 * 1024
"""The largest channel of which all rows are transformed before the columns: then five or six planes of products are
written at a time, not 25 or 36, which drive each other out of the caches."""


def schedule_winograd(function: Function, target: Target) -> Schedule | None:
    """The schedule of a kernel with one of the transforms; None for any other."""
    names = {b.name for b in blocks(function.body)}
    if "winograd_input" in names and _has_points(function):
        return _input(Schedule(function), target)
    if "winograd_output" in names and _has_points(function) and _has_whole_tiles(function):
        return _output(Schedule(function), target)
    return None


def _has_points(function: Function) -> bool:
    """Whether no dimension is known to be 0."""
    return not any(isinstance(e, Const) and e.value == 0 for b in function.params for e in b.shape)


def _has_whole_tiles(function: Function) -> bool:
    """Whether the output is a tile high and wide, and has more than one, and more than one channel: loops of a single
    iteration are none."""
    *_, height, width = function.params[-1].shape
    _, size, tiles, _, channels = map(known, find_buffer(function, "whole").shape)
    return min(known(height), known(width)) >= size and min(tiles, channels) > 1


def _input(s: Schedule, target: Target) -> Schedule:
    """The steps for the input transform."""
    _, c, i, j, p, q, *woven = s.get_loops("winograd_input")
    jo, ji = s.split(j, _lanes(s, j, target), tail="shift")
    at_once = _elements(s, "winograd_rows") <= ROWS_ELEMENTS
    if at_once and _planes_meet(s, target):
        c, inner = s.split(c, CHANNELS, tail="clip")
        s.reorder(p, inner, i, jo, q, *woven, ji)
    elif at_once:
        s.reorder(p, i, jo, q, *woven, ji)
    else:
        s.reorder(p, jo, q, *woven, ji)
    s.vectorize(ji)
    for loop in (q, *woven):
        s.unroll(loop)
    s.compute_at("winograd_rows", c if at_once else i)
    channel = s.get_loops("winograd_rows")[-4] if at_once else c
    s.compute_at("winograd_pad", channel if _elements(s, "winograd_pad") <= CHANNEL_ELEMENTS else i)
    for buffer in ("half", "padded"):
        s.compact(buffer)
        s.set_scope(buffer, "stack")
    row, column = s.get_loops("winograd_rows")[-2:]
    wo, wi = s.split(column, _lanes(s, column, target), tail="shift")
    s.reorder(wo, row, wi)
    s.vectorize(wi)
    s.unroll(row)
    _pad(s, target)
    return s


def _planes_meet(s: Schedule, target: Target) -> bool:
    """Whether the planes of products begin in so few sets of the first cache that a line of each finds no room."""
    _, planes, channels, *_ = shape = s.func.params[-1].shape
    apart = math.prod(map(known, shape[2:])) * s.func.params[-1].dtype.bytes
    return isinstance(channels, Const) and target.caches[0].room(apart) < known(planes)


def _elements(s: Schedule, block: str) -> int:
    """The elements that a block, over images and channels first, computes of a channel."""
    return math.prod(known(extent_of(find_loop(s.func, loop))) for loop in s.get_loops(block)[2:])


def _pad(s: Schedule, target: Target) -> None:
    """The image is copied in vectors, apart from the zeros around it."""
    block = find_block(s.func, "winograd_pad")
    row, column = s.get_loops("winograd_pad")[-2:]
    rows, columns = (_edges(block, axis.var) for axis in block.axes[-2:])
    for part in cut_at(s, column, columns):
        lanes = _lanes(s, part, target)
        if lanes > 1:
            s.vectorize(s.split(part, lanes, tail="shift")[1])
    cut_at(s, row, rows)


def _edges(block: Block, axis: Var) -> list[int]:
    """Where the image begins and ends along an axis of its padding."""
    assert isinstance(block.body, Store)
    if not isinstance(block.body.value, Select):
        return []
    places = set()
    for cond in conjuncts(block.body.value.cond):
        assert isinstance(cond, Le | Lt)
        parts = affine_in(plus(polynomial(cond.a), polynomial(cond.b), -1), axis)
        if parts is not None and parts[0]:
            places.add(abs(parts[1].get((), 0)))
    return sorted(places - {0})


def _output(s: Schedule, target: Target) -> Schedule:
    """The steps for the output transform and its epilogue."""
    block = _with_epilogue(s)
    _, o, h, _ = loops = s.get_loops(block)
    size, lanes = known(find_buffer(s.func, "whole").shape[1]), _lanes(s, o, target)
    vectors, o = s.split(o, lanes, tail="shift")
    rows, a = s.split(h, size, tail="mask")
    s.reorder(vectors, rows, o, a, loops[-1])
    s.compute_at("winograd_tiles", rows)
    s.compact("whole")
    *_, a, t, b, lane = s.get_loops("winograd_tiles")
    s.reorder(t, a, b, lane)
    s.vectorize(lane)
    s.unroll(b)
    s.compute_at("winograd_columns", t)
    *_, a, q, lane = s.get_loops("winograd_columns")
    s.reorder(q, a)
    s.vectorize(lane)
    s.unroll(a)
    s.compact("half")
    for buffer in ("half", "whole"):
        s.set_scope(buffer, "stack")
    store_transposed(s, block, rows, target.lanes(f32))
    return s


def _with_epilogue(s: Schedule) -> str:
    """Inlines the output into what follows it, and so on to the end; returns the last block's name."""
    pending, last = ["winograd_output"], "winograd_output"
    while pending:
        block = pending.pop(0)
        readers = s.get_consumers(block)
        if readers:
            s.inline(block)
            pending += [r for r in readers if r not in pending]
        else:
            last = block
    return last


def _lanes(s: Schedule, loop: Var, target: Target) -> int:
    """The lanes for a loop: as many as f32 has, or as fit once."""
    extent, lanes = known(extent_of(find_loop(s.func, loop))), target.lanes(f32)
    while lanes > extent:
        lanes //= 2
    return lanes
