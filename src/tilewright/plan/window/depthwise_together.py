"""The schedule of convolutions that keep channels apart, where rows are short: several channels share a vector.

    for as many channels as fit, by room for a row:
      q[channels, rows, lanes] = their rows with their zeros, in registers
      t[rows, channels, columns] = 0
      for b, a, r: t[r] += q[every channel, row of r at a, columns at b] * w[every channel, a, b]
      y = f(t), channel by channel

Rows of seven would leave more than half of a vector's lanes empty, in the sums and in what f computes. The columns
that a place of the window meets are shuffled out of the rows.

Where windows move by two columns, the lanes are pairs of columns, of one channel after the other, and two places next
to each other of a window's row are met together:

      for pairs of b, rows i of the image:
        q[channels, lanes] = row i from the first place on, in registers
        for the rows r that meet it, their a, each b: t[r] += every second element of q * w[every channel, a, b]

Every second element of two vectors, pair by pair, is one instruction that the units of multiply-adds are not needed
for; a row is loaded once for all sums that it is part of, and forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr.nodes import Var
from tilewright.loops.nodes import Function
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.loops import extent, inside, loop_of, parts
from tilewright.plan.tile.packing import pack
from tilewright.plan.window.depthwise_choice import (
    Windows,
    channel_axis,
    column_taps,
    is_the_same_all_over,
    row_taps,
    trim_rows,
)
from tilewright.schedule.find import find_block, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

MOST_ROWS = 7
"""The most rows of a tile: the rows of several channels that as many sums meet fill the registers of machines that have
masks."""

PAIR = 2
"""Windows that move by so many columns have pairs of them in their lanes."""

FURTHEST = 2
"""Windows that move by so many columns at most, and whose places are next to each other, meet few vectors."""


@dataclass(frozen=True, slots=True)
class Together:
    """`channels` share a vector, each with `room` lanes for a row, of which so many are `beside` each other before
    those of the next channel come. `axis` is the place of the channels' axis in the block."""

    axis: int
    channels: int
    room: int
    beside: int


def find_together(function: Function, found: Contraction, w: Windows, target: Target) -> Together | None:
    """How channels share vectors; None where one fills them, or they cannot."""
    lanes, axis = target.lanes(w.out.dtype), channel_axis(found)
    if axis is None or w.column_tap is None or w.out.dtype.bits != 32 or not target.has_masks:
        return None
    if w.apart != (1, 1) or max(w.steps) > FURTHEST or not is_the_same_all_over(function, w):
        return None
    room = 1 << (w.width - 1).bit_length()
    channels = lanes // room
    if channels < 2 or known(found.extents[axis]) % channels:
        return None
    in_pairs = w.steps[1] == PAIR and min(w.taps) > 1 and room > PAIR
    return Together(axis, channels, room, PAIR if in_pairs else room)


def apply_together(s: Schedule, found: Contraction, w: Windows, t: Together) -> Schedule:
    """The steps, for a convolution whose channels share vectors."""
    padded = w.source.scope is not Scope.ARGUMENT
    near = s.unite(w.source.name) if padded else s.cache_read(w.block, w.source.name)
    rows = -(-w.height // -(-w.height // MOST_ROWS))
    if padded and rows >= w.height:
        trim_rows(s, w)
    last = s.cache_write(w.block) if w.out.scope is Scope.ARGUMENT else w.last
    apart = s.cache_write(last)
    pack(s, found, found.broadcast, t.axis, t.channels)
    outer, each = s.split(loop_of(s, apart, t.axis), t.channels)
    row, column = loop_of(s, apart, -2), loop_of(s, apart, -1)
    tile, row = s.split(row, rows, tail="shift")
    around = [v for v in s.get_loops(apart) if v not in (outer, each, tile, row, column)]
    s.reorder(outer, *around, tile, row, each, column)
    for block in (last, w.block):
        s.compute_at(block, tile)
    image = _sum_in_pairs(s, w, t) if t.beside < t.room else None
    if image is None:
        _lay_in_lanes(s, w.block, t, [*column_taps(s, w), *row_taps(s, w)])
        _vectorize_lanes(s, w.block, t)
    _lay_in_lanes(s, last, t, [])
    _vectorize_lanes(s, last, t)
    _hold(s, near, tile if image is None else image, t)
    if padded:
        s.guard(near)
    if padded and tile is not outer:  # which rows are zeros differs from tile to tile
        block = find_block(s.func, near)
        first, end = inside(block, block.spatial[-2].var, 1)
        edges = first, max(end - (w.height - rows) * w.steps[0], first)
        parts(s, loop_of(s, near, -2) if image is None else image, edges)
    s.vectorize(s.split(column, t.room, tail="mask")[1])
    s.unroll(each)
    s.unroll(row)
    s.parallel(outer)
    return s


def _sum_in_pairs(s: Schedule, w: Windows, t: Together) -> Var:
    """The sums of windows that move by two columns; returns the loop over the rows of the image that a tile meets."""
    (place,), others = column_taps(s, w), row_taps(s, w)
    single = [v for v in others if extent(s, v) == 1]
    (tap,) = (v for v in others if v not in single)
    pairs, each = s.split(place, PAIR, tail="mask")
    row = loop_of(s, w.block, -2)
    _lay_in_lanes(s, w.block, t, [*single, pairs], [tap, each])
    start = s.decompose_reduction(w.block, (*single, pairs)[0])
    for block in (start, w.block):
        _vectorize_lanes(s, block, t)
    image, turn = s.skew(row, tap, w.steps[0])
    for loop in (loop_of(s, start, -2), pairs, image, turn, each):
        s.unroll(loop)
    return image


def _lay_in_lanes(s: Schedule, block: str, t: Together, around: list[Var], inner: list[Var] | None = None) -> None:
    """What a block computes lies in registers, a row of all channels as a vector; `around` are loops outside those over
    the tile, `inner` between its rows and their columns: with these, whoever orders the loops further writes them
    out."""
    row, column, each = (loop_of(s, block, d) for d in (-2, -1, t.axis))
    beyond = extent(s, column) % t.room
    whole, column = s.split(column, t.room, tail="mask")
    parted = s.split(column, t.beside) if t.beside < t.room else (column,)
    s.reorder(*around, row, *(inner or []), whole, *parted[:-1], each, parted[-1])
    (made,) = stored_buffers(find_block(s.func, block))
    s.compact(made.name)
    s.set_scope(made.name, "register")
    names = [f"d{n}" for n in range(len(made.shape))]
    *others, last = (d for n, d in enumerate(names) if n != t.axis)
    part = [f"{last} % {t.room} // {t.beside}"] if t.beside < t.room else []
    layout = [*others, f"{last} // {t.room}", *part, names[t.axis], f"{last} % {t.beside}"]
    s.transform_layout(made.name, f"{', '.join(names)} -> {', '.join(layout)}")
    if beyond:
        s.pad(block, parted[-1])
    for loop in () if inner else (*around, row):
        s.unroll(loop)


def _vectorize_lanes(s: Schedule, block: str, t: Together) -> None:
    """A row of all channels is a vector."""
    *_, part, each, column = s.get_loops(block)
    s.vectorize(s.fuse(s.fuse(part, each) if t.beside < t.room else each, column))


def _hold(s: Schedule, near: str, tile: Var, t: Together) -> None:
    """The rows that a tile meets are loaded into registers as they lie, in whole vectors, with the zeros around."""
    s.compute_at(near, tile)
    (made,) = stored_buffers(find_block(s.func, near))
    s.compact(made.name)
    s.set_scope(made.name, "register")
    row, column, each = (loop_of(s, near, d) for d in (-2, -1, t.axis))
    lanes = t.channels * t.room
    beyond = extent(s, column) % lanes
    vectors, lane = s.split(column, lanes, tail="mask")
    at = ", ".join(f"d{n}" for n in range(len(made.shape) - 1))
    s.transform_layout(made.name, f"{at}, n -> {at}, n // {lanes}, n % {lanes}")
    if beyond:
        s.pad(near, lane)
    s.vectorize(lane)
    for loop in (vectors, row, each):
        s.unroll(loop)
