"""How one nest of a kernel runs: points in vectors, sums in lanes, or tiles of sums in registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks
from tilewright.loops.nodes import For, Store
from tilewright.plan.nests.points import Points, apply_points, choose_points, holds_points, lanes_of
from tilewright.plan.nests.tiles import Tile, narrower, tile_for
from tilewright.schedule.nests import has_branches
from tilewright.schedule.reduce import accumulation
from tilewright.schedule.rows import prepared, reduces_contiguously
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

SUM_BLOCK = 32
"""Terms that are added up by themselves in a long sum: few enough that rounding errors stay small."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A nest of sums, row by row, in vectors of so many lanes; long sums in blocks of so many terms, where not 0."""

    lanes: int
    blocks_of: int = 0


@dataclass(frozen=True, slots=True)
class Nest:
    """One of these; none for a nest that stays as it is."""

    points: Points | None = None
    rows: Rows | None = None
    tile: Tile | None = None


def choose_nest(nest: For, target: Target) -> Nest:
    """Register tiles where an output axis of an accumulation vectorizes; else row by row, or point by point."""
    if has_branches(nest) or any(not isinstance(b.body, Store) for b in blocks(nest)):
        return Nest()
    reducing = [b for b in blocks(nest) if b.reduce]
    if not reducing:
        return Nest(choose_points(nest, target)) if holds_points(nest) else Nest()
    if any(accumulation(b) is None for b in reducing):
        return Nest()
    lanes = lanes_of(nest, target)
    block = 0 if reduces_contiguously(prepared(nest, 0), lanes) else SUM_BLOCK
    for width in narrower(lanes) if block else (lanes,):
        tile = tile_for(prepared(nest, block), width, target.vector_registers, block)
        if tile is not None:
            return Nest(tile=tile)
    return Nest(rows=Rows(lanes, block))


def apply_nest(s: Schedule, nest: For, chosen: Nest) -> Var | None:
    """The steps of a choice. Returns the outermost loop, where that holds all of the nest."""
    made: Var | None = nest.var
    if chosen.points is not None:
        made = apply_points(s, nest, chosen.points)
    elif chosen.rows is not None:
        made = s.sum_in_lanes(nest.var, lanes=chosen.rows.lanes, **_long(chosen.rows.blocks_of))
    elif (t := chosen.tile) is not None:
        rows = {} if t.across is None else {"across": t.across, "count": t.count}
        long = _long(t.blocks_of)
        made = s.tile_registers(nest.var, lanes=t.lanes, along=t.along, vectors=t.vectors, **rows, **long)
    return made


def _long(block: int) -> dict[str, int]:
    return {"blocks_of": block} if block else {}
