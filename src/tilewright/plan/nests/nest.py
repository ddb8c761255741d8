"""How one nest of a kernel runs: points in vectors, rows of sums in lanes, or tiles of sums in registers; and the nests
beside the tiles of another template.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks, statements
from tilewright.loops.nodes import Alloc, For, LoopKind, Store
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
from tilewright.report.errors import UserError
from tilewright.schedule.facts.iterations import accumulation, has_branches
from tilewright.schedule.find import nests
from tilewright.schedule.loops.merge import merge_neighbours
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


def schedule_beside(s: Schedule, target: Target) -> None:
    """The nests beside a tiled one: vectors of points, in its outermost loop where each iteration keeps to itself, with
    no more of a buffer than an iteration needs."""
    beside = [nest for nest in nests(s.func) if not isinstance(nest, Alloc)]
    if not any(isinstance(n, For) and _is_plain(n) for n in beside) and len(merge_neighbours(beside)) == len(beside):
        return
    made: list[Var | None] = []
    for loop, nest in named_nests(s):
        plain = _is_plain(nest)
        made.append(or_as_it_is(s, loop, partial(_points, s, nest, target)) if plain else loop)
    before = s.func
    merge(s, made, locals_first=True)
    if s.func is not before:
        for name in [nest.buffer.name for nest in nests(s.func) if isinstance(nest, Alloc)]:
            with suppress(UserError):
                s.compact(name)


def _points(s: Schedule, nest: For, target: Target) -> Var | None:
    """A nest of points in vectors."""
    return apply_points(s, nest, choose_points(nest, target))


def named_nests(s: Schedule) -> list[tuple[Var, For]]:
    """The nests of a program, which the trace then knows by their outermost loops."""
    found = [nest for nest in nests(s.func) if isinstance(nest, For)]
    if found:
        s.get_nests()
    return [(nest.var, nest) for nest in found]


def merge(s: Schedule, made: list[Var | None], locals_first: bool = False) -> None:
    """Neighbouring nests become one, those that are one loop."""
    loops = [loop for loop in made if loop is not None]
    if len(loops) > 1:
        s.merge_loops(*loops, **({"locals_first": True} if locals_first else {}))


def or_as_it_is(s: Schedule, loop: Var, steps: Callable[[], Var | None]) -> Var | None:
    """The outermost loop of a nest after some steps, where it holds all of the nest. A nest stays as it is whose
    iterations are not known to be independent, and the schedule remembers why."""
    refused = len(s.refused)
    made: Var | None = s.attempt(steps)
    return loop if len(s.refused) > refused else made


def _is_plain(nest: For) -> bool:
    """Whether a nest is points in loops that nothing was said of."""
    return all(s.kind is LoopKind.SERIAL for s in statements(nest) if isinstance(s, For)) and holds_points(nest)
