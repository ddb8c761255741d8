"""The loops of a contraction in tiles: cache blocks of rows and columns, blocks of terms, and the loops of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.nodes import Var
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.gemm.choice import Choice
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.nest import MANY, Nest, ordered, write_out_terms
from tilewright.schedule.schedule import Schedule


def tile_loops(s: Schedule, found: Contraction, choice: Choice) -> Nest:
    """Splits and orders the loops of the contraction."""
    loops = s.get_loops(found.block.name)
    panels, inside = s.split(loops[found.columns], choice.tile.columns, tail="mask")
    vectors, lane = s.split(inside, choice.tile.lanes)
    tile = [vectors, lane]
    if choice.streams > 1:
        stream, vectors = s.split(vectors, choice.tile.vectors // choice.streams)
        tile = [stream, vectors, lane]
    outer, inner = _blocks(s, found, choice, loops, panels)
    terms, together = [loops[n] for n in found.reduce], None
    if choice.dot is not None and choice.dot.depth > 1 and found.summed is not None:
        place = found.reduce.index(found.summed)
        terms[place], together = s.split(terms[place], choice.dot.depth, tail="mask")
    if inner.row is not None:
        tile.insert(0, inner.row)
    cut: Var | None = None
    if choice.block_terms is not None:
        cut, terms[0] = s.split(terms[0], choice.block_terms, tail="clip")
    own = [loops[n] for n in found.own_batches]
    order, first = _outer_order(found, choice, outer, own, inner, cut)
    s.reorder(*order, *terms, *tile, *([together] if together is not None else []))
    if together is None:
        s.vectorize(lane)
    for loop in tile[-2::-1]:
        s.unroll(loop)
    write_out_terms(s, terms, choice.tile, choice.terms)
    return Nest(first, inner.near, inner.cache, cut, inner.panels, order[-1], inner.row, vectors, lane, together)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The loops that rows and panels were cut into: over groups of panels, over cache blocks, over the tiles of one and
    over the rows of a tile, each None where there are none; and over the panels of a group."""

    near: Var | None
    cache: Var | None
    tiles: Var | None
    row: Var | None
    panels: Var


def _blocks(
    s: Schedule, found: Contraction, choice: Choice, loops: Sequence[Var], panels: Var
) -> tuple[dict[Var, int], _Blocks]:
    """Cuts rows, or panels where there are no rows, into cache blocks. Returns the loops outside these, with about how
    often they run, and what was made."""
    outer = {loops[n]: known(found.extents[n]) for n in found.batch}
    if found.rows is None:
        if choice.block_terms is None:
            return outer, _Blocks(None, None, None, None, panels)
        cache, panels = s.split(panels, choice.block_tiles, tail="clip")
        outer[cache] = -(-_panels(found, choice) // choice.block_tiles)
        return outer, _Blocks(None, cache, None, None, panels)
    tiles, row = s.split(loops[found.rows], choice.tile.rows, tail="mask")
    cache, tiles = s.split(tiles, choice.block_tiles, tail="clip")
    near: Var | None = None
    if choice.block_panels is not None:
        near, panels = s.split(panels, choice.block_panels, tail="clip")
        s.reorder(near, cache, tiles, row, panels)
    outer[cache] = -(-known(found.extents[found.rows]) // (choice.tile.rows * choice.block_tiles))
    return outer, _Blocks(near, cache, tiles, row, panels)


def _panels(found: Contraction, choice: Choice) -> int:
    return -(-known(found.extents[found.columns]) // choice.tile.columns)


def _outer_order(
    found: Contraction, choice: Choice, outer: dict[Var, int], own: list[Var], made: _Blocks, cut: Var | None
) -> tuple[list[Var], Var]:
    """The loops around the terms of a tile, in order, and the one that threads share. Where panels are asked for ahead,
    those of one constant follow each other: the loops of which each iteration has its `own` are outside."""
    inner = [v for v in (made.panels, made.tiles) if v is not None]
    if made.near is not None and made.cache is not None and choice.block_panels is not None:
        batches = {v: n for v, n in outer.items() if v is not made.cache and n > 1}
        first = ordered(batches | {made.near: -(-_panels(found, choice) // choice.block_panels)})[0]
        order = [*(v for v in outer if v is not made.cache), made.near, made.cache]
        inner = inner if choice.rows_stay else inner[::-1]
    elif cut is not None and (made.tiles is None or max(outer.values()) >= MANY):
        order = ordered(outer)
        first = order[0]
    elif own and choice.prefetch:
        order = [*own, made.panels, *(v for v in outer if v not in own)]
        first, inner = order[0], inner[1:]
    else:
        order = ordered(outer | {made.panels: _panels(found, choice)})
        first, inner = order[0], inner[1:]
    return [*order, *([cut] if cut is not None else []), *inner], first
