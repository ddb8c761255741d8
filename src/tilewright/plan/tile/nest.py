"""The loops of a tiled contraction: splits, order, kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.expr.nodes import Const, Var
from tilewright.plan.tile.registers import RegisterTile
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import find_loop
from tilewright.schedule.schedule import Schedule

MANY = 8
"""Iterations that several threads can share evenly."""

MOST_WRITTEN_OUT = 120
"""The most multiply-adds of the kernel of a window and of terms that an inner loop is written out to: what compiling is
worth is no rate of a core."""


@dataclass(frozen=True, slots=True)
class TileLoops:
    """The loops over column panels and tiles of rows, and those over the rows, the vectors and the lanes of a tile.
    Those over rows are None where there are none."""

    panels: Var
    tiles: Var | None
    row: Var | None
    vectors: Var
    lane: Var


def split_tile(s: Schedule, rows: Var | None, columns: Var, tile: RegisterTile) -> TileLoops:
    """Splits the loops over rows and columns into those over tiles and those of a tile."""
    panels, inside = s.split(columns, tile.columns, tail="mask")
    vectors, lane = s.split(inside, tile.lanes)
    tiles, row = s.split(rows, tile.rows, tail="mask") if rows is not None else (None, None)
    return TileLoops(panels, tiles, row, vectors, lane)


def order_tile(s: Schedule, outer: Sequence[Var], inner: Sequence[Var | None], together: Var | None = None) -> None:
    """Puts the loops in order: those of a tile, `inner` with the lanes last, are written out, in vectors or as terms
    that an instruction takes `together`."""
    *tile, lane = [v for v in inner if v is not None]
    s.reorder(*outer, *tile, lane, *([together] if together is not None else []))
    if together is None:
        s.vectorize(lane)
    for loop in reversed(tile):
        s.unroll(loop)


def ordered(outer: Mapping[Var, int]) -> list[Var]:
    """The outer loops, the first with enough iterations for several threads, or else the longest, before the others."""
    first = next((loop for loop, extent in outer.items() if extent >= MANY), max(outer, key=lambda v: outer[v]))
    return [first, *(loop for loop in outer if loop is not first)]


def write_out_terms(s: Schedule, terms: Sequence[Var], tile: RegisterTile, some: int, taps: bool = True) -> None:
    """Short inner reduce loops are written out, all `taps` of a window or those of the innermost loop; or else a few
    terms, as many as divide them."""
    size = tile.rows * tile.vectors
    for n, loop in reversed(list(enumerate(terms))):
        extent = extent_of(find_loop(s.func, loop))
        if not isinstance(extent, Const):
            return
        if (n == 0 and taps) or size * extent.value > MOST_WRITTEN_OUT:
            most = some * tile.rows * tile.vectors // size
            few = next((m for m in range(most, 1, -1) if extent.value % m == 0 and extent.value > m), None)
            if few is not None:
                s.unroll(s.split(loop, few)[1])
            return
        size *= int(extent.value)
        s.unroll(loop)
        if not taps:
            return


def write_out(s: Schedule, block: str, io: Var, tile: RegisterTile) -> Var:
    """The loops of an epilogue over the tile, written out: vectors along the columns. Returns the loop over them."""
    loops = s.get_loops(block)
    *rows, j = loops[loops.index(io) + 1 :]
    jv: Var
    jv, jl = s.split(j, tile.lanes)
    s.vectorize(jl)
    for loop in (*rows, jv):
        s.unroll(loop)
    return jv
