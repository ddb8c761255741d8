"""The loops of a tiled contraction: splits, order, kinds."""

from __future__ import annotations

from collections.abc import Mapping
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
class Nest:
    """The loops of a tiled contraction: `outer`, which threads share; over groups of panels, over cache blocks, over
    blocks of terms (each None where there is but one); over column panels; the innermost around a tile; over the rows,
    the vectors and the lanes of a tile; and over the terms that an instruction takes together."""

    outer: Var
    near: Var | None
    blocks: Var | None
    terms: Var | None
    panels: Var
    tiles: Var
    row: Var | None
    vectors: Var
    lane: Var
    together: Var | None = None


def ordered(outer: Mapping[Var, int]) -> list[Var]:
    """The outer loops, the first with enough iterations for several threads, or else the longest, before the others."""
    first = next((loop for loop, extent in outer.items() if extent >= MANY), max(outer, key=lambda v: outer[v]))
    return [first, *(loop for loop in outer if loop is not first)]


def write_out_terms(s: Schedule, terms: list[Var], tile: RegisterTile, some: int) -> None:
    """Short inner reduce loops are written out, the taps of a window, or else a few terms, as many as divide them."""
    size = tile.rows * tile.vectors
    for n, loop in reversed(list(enumerate(terms))):
        extent = extent_of(find_loop(s.func, loop))
        if not isinstance(extent, Const):
            return
        if n == 0 or size * extent.value > MOST_WRITTEN_OUT:
            _write_out_some(s, loop, int(extent.value), some * tile.rows * tile.vectors // size)
            return
        size *= int(extent.value)
        s.unroll(loop)


def write_out_taps(s: Schedule, loop: Var, tile: RegisterTile, some: int) -> None:
    """One loop over taps is written out, or else a few of its iterations, as many as divide it."""
    extent = extent_of(find_loop(s.func, loop))
    if isinstance(extent, Const) and tile.rows * tile.vectors * extent.value <= MOST_WRITTEN_OUT:
        s.unroll(loop)
    elif isinstance(extent, Const):
        _write_out_some(s, loop, int(extent.value), some)


def _write_out_some(s: Schedule, loop: Var, extent: int, most: int) -> None:
    some = next((n for n in range(most, 1, -1) if extent % n == 0 and extent > n), None)
    if some is not None:
        _, inner = s.split(loop, some)
        s.unroll(inner)


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
