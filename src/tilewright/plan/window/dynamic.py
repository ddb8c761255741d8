"""Windows of images of dynamic sizes: a tile is some rows by a vector of columns, read in place.

    for images and channels:
      for tiles of R rows, vectors of columns:                  tiles over an edge have loops of their own
        t[R, lanes] = 0
        for b, a, r: t[r] += x[row of r at a, columns at b] * w[c, a, b]
        y[…] = f(t)

A channel is copied with its padding before its tiles run. A tile that passes the last row is computed whole: it reads
existing rows only, and stores only rows of the result. Columns beyond the last one are masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.facts.windows import Windows
from tilewright.plan.template import Template
from tilewright.plan.tile.loops import loop_of
from tilewright.plan.tile.windows import final_block, in_registers, window_loops
from tilewright.plan.window.columns import WRITTEN_OUT
from tilewright.plan.window.price import Tile, even_sizes, tile_cycles, total_seconds
from tilewright.schedule.find import stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class DynamicChoice:
    """A tile is `rows` x `lanes` sums. The columns of the kernel are `unrolled` or a loop."""

    rows: int
    lanes: int
    unrolled: bool


class DynamicWindows(Template[Windows, DynamicChoice]):
    """Depthwise convolutions and pools of dynamic height or width, with stride 1 along dynamic dimensions, of several
    planes: a single one has no loop over channels that holds its padding and its tiles."""

    name = "windows, dynamic sizes"
    choice = DynamicChoice

    def recognise(self, facts: Facts) -> Windows | None:
        w = facts.windows
        if w is None or w.channels_last or not w.dynamic or w.images * w.channels == 1:
            return None
        strides = [side.stride for side in (w.rows, w.columns) if side.dynamic or not w.products]
        return w if max(strides) == 1 else None

    def choices(self, shape: Windows, target: Target) -> Iterator[DynamicChoice]:
        most = target.vector_registers // 2 - 2 * shape.instructions + 1
        for rows in (
            even_sizes(shape.rows.size, min(most, WRITTEN_OUT // shape.rows.kernel)) if target.has_masks else ()
        ):
            unrolled = 3 * rows * shape.terms <= WRITTEN_OUT  # inside an image, and over either edge
            yield DynamicChoice(rows, target.lanes(shape.out.dtype), unrolled)

    def price(self, choice: DynamicChoice, shape: Windows, target: Target) -> float:
        w, c = shape, choice
        loads = w.rows.met(c.rows) * w.columns.kernel
        tile = Tile(
            terms=c.rows * w.terms,
            loads=loads * w.columns.stride,
            weights=w.terms if w.products else 0,
            shuffles=loads * (w.columns.stride - 1),
            stores=c.rows,
            epilogues=c.rows,
            branches=0 if c.unrolled else w.columns.kernel,
        )
        tiles = -(-w.rows.size // c.rows) * -(-w.columns.size // c.lanes)
        return total_seconds(w, tiles * tile_cycles(w, tile, target) * w.images * w.channels, 1.0, target)

    def begin(self, facts: Facts) -> Schedule:
        return facts.begin_windows()

    def apply(self, s: Schedule, shape: Windows, choice: DynamicChoice) -> Schedule:
        w, last = shape, final_block(s, shape)
        filling = [b.name for b in blocks(s.func.body) if w.source in stored_buffers(b)] if w.padded else []
        channels = _channel_by_channel(s, w, [*filling, w.block, last])
        row, column = loop_of(s, last, -2), loop_of(s, last, -1)
        rows, row = s.split(row, choice.rows, tail="mask")
        columns, column = s.split(column, choice.lanes, tail="mask")
        s.reorder(rows, columns, row, column)
        s.compute_at(w.block, columns)
        _sum(s, w, choice)
        s.vectorize(column)
        s.unroll(row)
        for tiles, side, size in ((rows, w.rows, choice.rows), (columns, w.columns, choice.lanes)):
            if side.has_tail(size):
                s.partition(tiles)
        s.parallel(channels)
        for block in filling:
            s.vectorize(s.split(loop_of(s, block, -1), choice.lanes, tail="mask")[1])
        return s


def _sum(s: Schedule, w: Windows, choice: DynamicChoice) -> None:
    """Keeps a tile's sums in registers. A tile that passes the last row reads the last row in place of those beyond
    it."""
    row, lane = loop_of(s, w.block, -2), loop_of(s, w.block, -1)
    single, rows, columns = window_loops(s, w)
    s.reorder(*single, *columns, *rows, row, lane)
    in_registers(s, w.block)
    if w.rows.has_tail(choice.rows):
        s.pad(w.block, row)
    s.vectorize(lane)
    for loop in (*rows, row, *(columns if choice.unrolled else ())):
        s.unroll(loop)


def _channel_by_channel(s: Schedule, w: Windows, blocks: Sequence[str]) -> Var:
    """The loop over channels, which holds the whole kernel; the padded copy is then as large as one channel."""
    channels: list[Var] = []
    for block in blocks:
        rows = loop_of(s, block, -2)
        loops = s.get_loops(block)
        channels.append(reduce(s.fuse, loops[: loops.index(rows)]))
    s.merge_loops(*channels, locals_first=True)
    if w.padded:
        s.compact(w.source.name)
    return channels[0]
