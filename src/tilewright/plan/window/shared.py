"""Windows of rows shorter than half a vector: several channels share a vector, next to each other.

    for as many channels as a vector has room for rows:
      q[channels, rows, lanes] = their padded rows, in registers
      t[rows, channels, columns] = 0
      for b, a, r: t[r] += q[every channel, row of r at a, columns at b] * w[every channel, a, b]
      y = f(t), channel by channel

The columns that a position of the kernel reads are shuffled out of the rows. With a stride of 2, the lanes are pairs of
columns, channel by channel, and two neighbouring positions of the kernel's row are read at once:

      for pairs of b, rows i of the image:
        q[channels, lanes] = row i from the first position on, in registers
        for the rows r that read it, their a, each b: t[r] += every second element of q * w[every channel, a, b]

One instruction takes every second element of two vectors, within each 128 bits. A row is loaded once for all sums that
it is part of, and its register is free again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analysis.windows import Windows
from tilewright.expr.nodes import Var
from tilewright.plan.tile.loops import loop_of, write_out
from tilewright.plan.tile.packing import pack
from tilewright.plan.tile.registers import Lanes, lay_in_lanes
from tilewright.plan.window import family
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.abilities import SHORTEST_LANES


@dataclass(frozen=True, slots=True)
class SharedChoice:
    """A tile is `rows` of `channels` that share a vector. Each channel has `room` lanes for a row; `beside` of them are
    neighbours, then the next channel's follow."""

    rows: int
    channels: int
    room: int
    beside: int

    @property
    def in_pairs(self) -> bool:
        """Whether the lanes are pairs of columns, channel by channel."""
        return self.beside < self.room


class SharedVectors(family.WindowTemplate[SharedChoice]):
    """Depthwise convolutions whose rows are shorter than half a vector."""

    name = "windows, channels share vectors"
    choice = SharedChoice

    def fits(self, w: Windows) -> bool:
        places = w.own is not None and w.columns.term is not None and not w.dynamic
        return places and w.epilogue.same_places and w.out.dtype.bits == 32

    def choices(self, shape: Windows, target: Target) -> Iterator[SharedChoice]:
        room = 1 << (shape.columns.size - 1).bit_length()
        channels, by = target.lanes(shape.out.dtype) // room, shape.columns.stride
        fill = channels > 1 and shape.channels % channels == 0 and shape.columns.size >= SHORTEST_LANES
        if not fill or max(shape.rows.stride, by) > 2:
            return
        in_pairs = by == 2 and min(shape.rows.kernel, shape.columns.kernel) > 1
        for rows in family.even_sizes(shape.rows.size, target.vector_registers // 2 - 2 * channels):
            yield SharedChoice(rows, channels, room, 2 if in_pairs else room)

    def price(self, choice: SharedChoice, shape: Windows, target: Target) -> float:
        """Rows of several channels are combined and split again: a shuffle each."""
        w, c, met = shape, choice, shape.rows.met(choice.rows)
        pairs = -(-w.columns.kernel // 2) if c.in_pairs else 0
        whole = c.rows >= w.rows.size and w.padded and w.finite
        inner = min(w.rows.size * w.rows.stride, met) if whole else met
        tile = family.Tile(
            count=w.images * w.channels / c.channels * -(-w.rows.size // c.rows),
            terms=c.rows * w.terms * inner / met,
            loads=c.channels * inner * max(pairs, 1),
            weights=w.terms,
            shuffles=inner * (pairs + w.columns.kernel) + c.rows * (c.channels - 1),
            stores=c.rows * c.channels,
            epilogues=c.rows,
        )
        return family.kernel_seconds(w, tile, target)

    def apply(self, s: Schedule, shape: Windows, choice: SharedChoice) -> Schedule:
        w, c, own, channel = shape, choice, shape.own, shape.channel
        assert own is not None
        assert channel is not None
        pad = family.padded_rows(s, w)
        if w.padded and c.rows >= w.rows.size:
            family.trim_rows(s, w)
        last = family.final_block(s, w)
        stored = str(s.cache_write(last))
        pack(s, own, own.broadcast, channel, c.channels)
        outer, each = s.split(loop_of(s, stored, channel), c.channels)
        row, column = loop_of(s, stored, -2), loop_of(s, stored, -1)
        tile, row = s.split(row, c.rows, tail="shift")
        around = [v for v in s.get_loops(stored) if v not in (outer, each, tile, row, column)]
        s.reorder(outer, *around, tile, row, each, column)
        for block in (last, w.block):
            s.compute_at(block, tile)
        lanes = Lanes(c.room, c.beside, c.channels, channel)
        image = _sum_in_pairs(s, w, lanes) if c.in_pairs else None
        if image is None:
            single, rows, columns = family.window_loops(s, w)
            sums = [*columns, *single, *rows, loop_of(s, w.block, -2)]
            write_out(s, w.block, tile, lay_in_lanes(s, w.block, lanes, sums))
        write_out(s, last, tile, lay_in_lanes(s, last, lanes, [loop_of(s, last, -2)]))
        family.hold(s, w, pad, image or tile, c.rows, c.channels * c.room, image)
        write_out(s, stored, tile, s.split(column, c.room, tail="mask")[1])
        s.parallel(outer)
        return s


def _sum_in_pairs(s: Schedule, w: Windows, lanes: Lanes) -> Var:
    """The sums of windows with a stride of 2 columns. Returns the loop over the rows of the image that a tile reads."""
    single, (term,), (position,) = family.window_loops(s, w)
    pairs, each = s.split(position, 2, tail="mask")
    row = loop_of(s, w.block, -2)
    lay_in_lanes(s, w.block, lanes, [*single, pairs, row, term, each])
    start = str(s.decompose_reduction(w.block, (*single, pairs)[0]))
    for block in (start, w.block):
        s.vectorize(s.get_loops(block)[-1])
    image: Var
    image, turn = s.skew(row, term, w.rows.stride)
    for loop in (loop_of(s, start, -2), pairs, image, turn, each):
        s.unroll(loop)
    return image
