"""Windows of short rows: several channels share a vector.

    for as many channels as a vector has room for rows:
      q[channels, rows, lanes] = their padded rows, in registers
      t[rows, channels, columns] = 0
      for b, a, r: t[r] += q[every channel, row of r at a, columns at b] * w[every channel, a, b]
      y = f(t), channel by channel

The columns that a position of the kernel reads are shuffled out of the rows.

With a stride of 2, the lanes are pairs of columns, channel by channel, and two neighbouring positions of the kernel's
row are read at once:

      for pairs of b, rows i of the image:
        q[channels, lanes] = row i from the first position on, in registers
        for the rows r that read it, their a, each b: t[r] += every second element of q * w[every channel, a, b]

One instruction takes every second element of two vectors, within each 128 bits. A row is loaded once for all sums that
it is part of, and its register is free again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.expr.nodes import Var
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.facts.windows import Windows
from tilewright.plan.template import Template
from tilewright.plan.tile.loops import extent, loop_of, parts
from tilewright.plan.tile.packing import pack
from tilewright.plan.tile.windows import (
    final_block,
    hold,
    in_registers,
    rows_inside,
    trim_rows,
    window_loops,
)
from tilewright.plan.window.price import Tile, even_sizes, tile_cycles, total_seconds, unhidden
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class SharedChoice:
    """A tile is `rows` of `channels` that share a vector. Each channel has `room` lanes for a row; `beside` of them are
    neighbours, then the next channel's follow."""

    rows: int
    channels: int
    room: int
    beside: int


class SharedVectors(Template[Windows, SharedChoice]):
    """Depthwise convolutions whose rows are shorter than half a vector."""

    name = "windows, channels share vectors"
    choice = SharedChoice

    def recognise(self, facts: Facts) -> Windows | None:
        w = facts.windows
        if w is None or w.dynamic or w.contraction is None or w.channel is None or w.columns.term is None or w.dilated:
            return None
        return w if w.epilogue.same_places and w.out.dtype.bits == 32 else None

    def choices(self, shape: Windows, target: Target) -> Iterator[SharedChoice]:
        room = 1 << (shape.columns.size - 1).bit_length()
        channels = target.lanes(shape.out.dtype) // room
        strides = shape.rows.stride, shape.columns.stride
        if (
            shape.columns.size < 128 // shape.out.dtype.bits
            or channels < 2
            or shape.channels % channels
            or not target.has_masks
            or max(strides) > 2
        ):
            return
        in_pairs = strides[1] == 2 and min(shape.rows.kernel, shape.columns.kernel) > 1 and room > 2
        for rows in even_sizes(shape.rows.size, target.vector_registers // 2 - 2 * channels):
            yield SharedChoice(rows, channels, room, 2 if in_pairs else room)

    def price(self, choice: SharedChoice, shape: Windows, target: Target) -> float:
        """Rows of several channels are combined and split again: a shuffle each."""
        w, met = shape, shape.rows.met(choice.rows)
        in_pairs = choice.beside < choice.room
        per_row = -(-w.columns.kernel // 2) + w.columns.kernel if in_pairs else w.columns.kernel
        whole = choice.rows >= w.rows.size and w.padded and w.finite
        inner = min(w.rows.size * w.rows.stride, met) if whole else met
        tile = Tile(
            terms=choice.rows * w.terms * inner / met,
            loads=choice.channels * inner * (-(-w.columns.kernel // 2) if in_pairs else 1),
            weights=w.terms,
            shuffles=inner * per_row + choice.rows * (choice.channels - 1),
            stores=choice.rows * choice.channels,
            epilogues=choice.rows,
        )
        tiles = w.images * w.channels / choice.channels * -(-w.rows.size // choice.rows)
        return total_seconds(w, tiles * tile_cycles(w, tile, target), unhidden(target), target)

    def begin(self, facts: Facts) -> Schedule:
        return facts.begin_windows()

    def apply(self, s: Schedule, shape: Windows, choice: SharedChoice) -> Schedule:
        found, axis = shape.contraction, shape.channel
        assert found is not None
        assert axis is not None
        return _apply(s, shape, choice, found, axis)


def _apply(s: Schedule, w: Windows, c: SharedChoice, found: Contraction, axis: int) -> Schedule:
    pad = str(s.unite(w.source.name) if w.padded else s.cache_read(w.block, w.source.name))
    if w.padded and c.rows >= w.rows.size:
        trim_rows(s, w)
    last = final_block(s, w)
    stored = str(s.cache_write(last))
    pack(s, found, found.broadcast, axis, c.channels)
    outer, each = s.split(loop_of(s, stored, axis), c.channels)
    row, column = loop_of(s, stored, -2), loop_of(s, stored, -1)
    tile, row = s.split(row, c.rows, tail="shift")
    around = [v for v in s.get_loops(stored) if v not in (outer, each, tile, row, column)]
    s.reorder(outer, *around, tile, row, each, column)
    for block in (last, w.block):
        s.compute_at(block, tile)
    image = _sum_in_pairs(s, w, c, axis) if c.beside < c.room else None
    if image is None:
        single, rows, columns = window_loops(s, w)
        _lay_in_lanes(s, w.block, c, axis, [*columns, *single, *rows])
        _vectorize_lanes(s, w.block, c)
    _lay_in_lanes(s, last, c, axis, [])
    _vectorize_lanes(s, last, c)
    hold(s, pad, tile if image is None else image, c.channels * c.room, others=(axis,))
    if w.padded:
        s.guard(pad)
    if w.padded and tile is not outer:  # which rows are zeros differs from tile to tile
        parts(s, loop_of(s, pad, -2) if image is None else image, rows_inside(s, pad, w.rows, -2, c.rows))
    s.vectorize(s.split(column, c.room, tail="mask")[1])
    s.unroll(each)
    s.unroll(row)
    s.parallel(outer)
    return s


def _sum_in_pairs(s: Schedule, w: Windows, c: SharedChoice, axis: int) -> Var:
    """The sums of windows with a stride of 2 columns. Returns the loop over the rows of the image that a tile reads."""
    single, (term,), (position,) = window_loops(s, w)
    pairs, each = s.split(position, 2, tail="mask")
    row = loop_of(s, w.block, -2)
    _lay_in_lanes(s, w.block, c, axis, [*single, pairs], [term, each])
    start = str(s.decompose_reduction(w.block, (*single, pairs)[0]))
    for block in (start, w.block):
        _vectorize_lanes(s, block, c)
    image: Var
    image, turn = s.skew(row, term, w.rows.stride)
    for loop in (loop_of(s, start, -2), pairs, image, turn, each):
        s.unroll(loop)
    return image


def _lay_in_lanes(
    s: Schedule, block: str, c: SharedChoice, axis: int, around: list[Var], inner: list[Var] | None = None
) -> None:
    """Keeps what a block computes in registers, a row of all channels as a vector. `around` are loops outside those
    over the tile, `inner` those between its rows and their columns. With `inner`, the caller orders the loops further
    and unrolls them."""
    row, column, each = (loop_of(s, block, d) for d in (-2, -1, axis))
    beyond = extent(s, column) % c.room
    whole, column = s.split(column, c.room, tail="mask")
    parted = s.split(column, c.beside) if c.beside < c.room else (column,)
    s.reorder(*around, row, *(inner or []), whole, *parted[:-1], each, parted[-1])
    made = in_registers(s, block)
    rank = len(made.shape)
    names = [f"d{n}" for n in range(rank)]
    *others, last = (d for n, d in enumerate(names) if n != axis)
    part = [f"{last} % {c.room} // {c.beside}"] if c.beside < c.room else []
    order = [*others, f"{last} // {c.room}", *part, names[axis], f"{last} % {c.beside}"]
    s.transform_layout(made.name, f"{', '.join(names)} -> {', '.join(order)}")
    if beyond:
        s.pad(block, parted[-1])
    for loop in () if inner else (*around, row):
        s.unroll(loop)


def _vectorize_lanes(s: Schedule, block: str, c: SharedChoice) -> None:
    """A row of all channels is a vector."""
    *_, part, each, column = s.get_loops(block)
    s.vectorize(s.fuse(s.fuse(part, each) if c.beside < c.room else each, column))
