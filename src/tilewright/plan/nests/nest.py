"""How one nest of a kernel runs: points in vectors, rows of sums in lanes, or tiles of sums in registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks
from tilewright.loops.nodes import For, Store
from tilewright.plan.nests.points import Points, apply_points, choose_points, holds_points, lanes_of
from tilewright.plan.nests.rows import (
    Region,
    Rows,
    Terms,
    apply_rows,
    apply_terms,
    block_terms,
    choose_rows,
    fuse_terms,
    reduces_contiguously,
)
from tilewright.plan.nests.tiles import Tile, apply_tile, choose_tile
from tilewright.schedule.facts.accumulations import accumulation
from tilewright.schedule.facts.iterations import has_branches
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.target import SHORTEST_LANES

SUM_BLOCK = 32
"""Terms that are added up by themselves in a long sum: few enough that rounding errors stay small."""


@dataclass(frozen=True, slots=True)
class Nest:
    """Points, or rows of sums, or a tile of sums, both after what becomes of their terms; without any of these a nest
    stays as it is."""

    points: Points | None = None
    terms: Terms | None = None
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
    fused, prepared = fuse_terms(nest)
    blocked: tuple[int, ...] = ()
    widths = [lanes]
    if not reduces_contiguously(prepared, lanes):
        blocked, prepared = block_terms(prepared, SUM_BLOCK)
        least = max(min(SHORTEST_LANES, lanes // 2), 2)
        widths += [n for n in (lanes // 2, lanes // 4) if n >= least]
    terms = Terms(fused, blocked, SUM_BLOCK if blocked else 0)
    tile = next((t for t in (choose_tile(prepared, n, target) for n in widths) if t is not None), None)
    return Nest(terms=terms, tile=tile) if tile else Nest(terms=terms, rows=choose_rows(prepared, lanes, target))


def apply_nest(s: Schedule, nest: For, chosen: Nest) -> Var | None:
    """The steps of a choice. Returns the outermost loop, where that holds all of the nest."""
    if chosen.points is not None:
        return apply_points(s, nest, chosen.points)
    region = Region(s, nest)
    if chosen.terms is not None:
        apply_terms(region, chosen.terms)
    if chosen.rows is not None:
        return apply_rows(region, chosen.rows)
    if chosen.tile is not None:
        return apply_tile(region, chosen.tile)
    return region.roots[0]
