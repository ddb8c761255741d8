"""Windows of small images: channels are along the lanes, transposed in registers as they are loaded and stored.

    for as many channels as a vector has lanes:
      q[rows, columns, lanes] = their padded rows, transposed
      for rows m:
        t[columns, lanes] = 0
        for a, b, columns n: t[n] += q[row of m at a, column of n at b] * w[a, b]      weights packed in this order
        r[m] = f(t)
      y = r, transposed back

Four columns of four channels are transposed at a time, in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.facts.windows import Windows
from tilewright.plan.template import Template
from tilewright.plan.tile.loops import extent, inside, loop_of, parts
from tilewright.plan.tile.packing import pack
from tilewright.plan.tile.windows import final_block, transposed, window_loops
from tilewright.plan.window.price import Tile, copied_cycles, tile_cycles, total_seconds, unhidden
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.target import SHORTEST_LANES
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class TransposedChoice:
    """A vector is `lanes` channels."""

    lanes: int


class Transposed(Template[Windows, TransposedChoice]):
    """Depthwise convolutions whose channels fill vectors; a vector of padded channels fits the first cache."""

    name = "windows, channels transposed"
    choice = TransposedChoice

    def recognise(self, facts: Facts) -> Windows | None:
        w = facts.windows
        if w is None or w.dynamic or w.contraction is None or w.channel is None or not w.epilogue.same_places:
            return None
        wide = min(w.columns.size, w.columns.reach(w.columns.size)) >= SHORTEST_LANES and w.columns.term is not None
        return w if wide and w.out.dtype.bits == 32 else None

    def choices(self, shape: Windows, target: Target) -> Iterator[TransposedChoice]:
        lanes, sides = target.lanes(shape.out.dtype), (shape.rows, shape.columns)
        room = lanes * shape.out.dtype.bytes * sides[0].reach(sides[0].size) * sides[1].reach(sides[1].size)
        sums = shape.columns.size + shape.columns.kernel
        if shape.channels % lanes == 0 and room <= target.caches[0].bytes and sums < target.vector_registers:
            yield TransposedChoice(lanes)

    def price(self, choice: TransposedChoice, shape: Windows, target: Target) -> float:
        """A vector of the image or the result is assembled from four lanes of each channel's row; eight shuffles
        transpose four vectors."""
        w = shape
        columns = w.columns.reach(w.columns.size)
        tile = Tile(
            terms=w.columns.size * w.terms,
            loads=w.rows.kernel * columns,
            aligned=True,
            weights=w.terms,
            shuffles=0,
            stores=w.columns.size,
            epilogues=w.columns.size,
        )
        moved = w.rows.reach(w.rows.size) * columns + 2 * w.rows.size * w.columns.size
        cycles = w.rows.size * tile_cycles(w, tile, target) + copied_cycles(
            moved, SHORTEST_LANES / 2 + choice.lanes / SHORTEST_LANES - 1, 0, target
        )
        return total_seconds(w, cycles * w.images * w.channels / choice.lanes, unhidden(target), target)

    def begin(self, facts: Facts) -> Schedule:
        return facts.begin_windows()

    def apply(self, s: Schedule, shape: Windows, choice: TransposedChoice) -> Schedule:
        found, axis = shape.contraction, shape.channel
        assert found is not None
        assert axis is not None
        return _apply(s, shape, choice, found, axis)


def _apply(s: Schedule, w: Windows, choice: TransposedChoice, found: Contraction, axis: int) -> Schedule:
    pad = str(s.unite(w.source.name) if w.padded else s.cache_read(w.block, w.source.name))
    last = final_block(s, w)
    back = str(s.cache_write(last))
    pack(s, found, found.broadcast, axis, choice.lanes)
    outer, lane = s.split(loop_of(s, back, axis), choice.lanes)
    row, column = loop_of(s, back, -2), loop_of(s, back, -1)
    around = [outer, *(v for v in s.get_loops(back) if v not in (outer, lane, row, column))]
    s.reorder(*around, row, column, lane)
    s.compute_at(last, around[-1])
    transposed(s, last, axis, Scope.STACK)
    row, column, each = (loop_of(s, last, d) for d in (-2, -1, axis))
    s.reorder(row, column, each)
    s.compute_at(w.block, row)
    _sum(s, w, axis)
    s.unroll(column)
    s.vectorize(each)
    _in_squares(s, loop_of(s, back, -1))
    s.vectorize(lane)
    s.compute_at(pad, around[-1])
    dimension = found.vector.dimension(found.block.axes[axis].var)
    assert dimension is not None
    _copy(s, w, pad, dimension)
    s.parallel(outer)
    return s


def _sum(s: Schedule, w: Windows, axis: int) -> None:
    """Keeps a row of sums in registers, and loads a row of the weights and a row of the image once for it."""
    single, rows, columns = window_loops(s, w)
    lane, column = loop_of(s, w.block, axis), loop_of(s, w.block, -1)
    s.reorder(*single, *rows, *columns, column, lane)
    transposed(s, w.block, axis, Scope.REGISTER)
    s.vectorize(lane)
    s.unroll(column)
    s.unroll(columns[-1])


def _in_squares(s: Schedule, column: Var) -> None:
    """Unrolls four columns at a time, if there are as many: with vectors along channels they are transposed in
    registers."""
    if extent(s, column) >= SHORTEST_LANES:
        s.unroll(s.split(column, SHORTEST_LANES, tail="shift")[1])


def _copy(s: Schedule, w: Windows, pad: str, axis: int) -> None:
    """Copies the channels' rows with their padding; the image itself in squares that are transposed."""
    transposed(s, pad, axis, Scope.STACK)
    row, column, lane = (loop_of(s, pad, d) for d in (-2, -1, axis))
    s.reorder(row, column, lane)
    s.vectorize(lane)
    if w.padded:
        s.guard(pad)
        found = find_block(s.func, pad)
        image = parts(s, row, inside(found, found.spatial[-2].var, 1))[1]
        name = blocks(find_loop(s.func, image))[-1].name
        column = parts(s, s.get_loops(name)[-2], inside(found, found.spatial[-1].var, 1))[1]
    _in_squares(s, column)
