"""The loops of a contraction in tiles: cache blocks of rows and columns, blocks of terms, and the loops of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.nodes import Var
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.gemm.choice import Choice
from tilewright.plan.price.dots import Dot
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.nest import MANY, order_tile, ordered, split_tile, write_out_terms
from tilewright.schedule.schedule import Schedule


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


def split_terms(s: Schedule, found: Contraction, loops: Sequence[Var], dot: Dot | None) -> tuple[list[Var], Var | None]:
    """The loops over terms, and the one over those that an instruction takes together."""
    terms, together = [loops[n] for n in found.reduce], None
    if dot is not None and dot.depth > 1 and found.summed is not None:
        place = found.reduce.index(found.summed)
        terms[place], together = s.split(terms[place], dot.depth, tail="mask")
    return terms, together


def tile_loops(s: Schedule, found: Contraction, choice: Choice) -> Nest:
    """Splits and orders the loops of the contraction. Rows are cut into cache blocks, or panels where there are no
    rows; panels in groups where all rows pass by a few of them at a time."""
    loops = s.get_loops(found.block.name)
    rows = None if found.rows is None else loops[found.rows]
    tile = split_tile(s, rows, loops[found.columns], choice.tile)
    vectors = tile.vectors
    inner = [tile.row, vectors, tile.lane]
    if choice.streams > 1:
        stream, vectors = s.split(vectors, choice.tile.vectors // choice.streams)
        inner = [tile.row, stream, vectors, tile.lane]
    panels, tiles = tile.panels, tile.tiles
    near, blocks, cut = None, None, None
    outer = {loops[n]: known(found.extents[n]) for n in found.batch}
    if found.rows is not None:
        blocks, tiles = s.split(tiles, choice.block_tiles, tail="clip")
        outer[blocks] = -(-known(found.extents[found.rows]) // (choice.tile.rows * choice.block_tiles))
        if choice.block_panels is not None:
            near, panels = s.split(panels, choice.block_panels, tail="clip")
            s.reorder(near, blocks, tiles, tile.row, panels)
    elif choice.block_terms is not None:
        blocks, panels = s.split(panels, choice.block_tiles, tail="clip")
        outer[blocks] = -(-_count_panels(found, choice) // choice.block_tiles)
    terms, together = split_terms(s, found, loops, choice.dot)
    if choice.block_terms is not None:
        cut, terms[0] = s.split(terms[0], choice.block_terms, tail="clip")
    first, order = _order(
        found, choice, outer, [loops[n] for n in found.own_batches], (near, blocks, cut, panels, tiles)
    )
    order_tile(s, [*order, *terms], inner, together)
    write_out_terms(s, terms, choice.tile, choice.terms)
    return Nest(first, near, blocks, cut, panels, order[-1], tile.row, vectors, tile.lane, together)


def _order(
    found: Contraction,
    choice: Choice,
    outer: dict[Var, int],
    own: list[Var],
    made: tuple[Var | None, Var | None, Var | None, Var, Var | None],
) -> tuple[Var, list[Var]]:
    """The loop that threads share, and all around the terms of a tile, in order: of those that were made, over groups
    of panels, cache blocks, blocks of terms, panels and tiles. `outer` has those outside with about how often they run.
    Where panels are asked for ahead, those of one constant follow each other: the loops of which each iteration has its
    `own` are outside."""
    near, blocks, cut, panels, tiles = made
    inside: tuple[Var | None, ...] = (cut, tiles)
    if near is not None and choice.block_panels is not None:
        batches = {v: n for v, n in outer.items() if v is not blocks}
        groups = {near: -(-_count_panels(found, choice) // choice.block_panels)}
        first = ordered({v: n for v, n in batches.items() if n > 1} | groups)[0]
        order, inside = [*batches, near], (blocks, cut, panels, tiles)
    elif cut is not None and (tiles is None or max(outer.values()) >= MANY):
        order, inside = ordered(outer), (cut, panels, tiles)
        first = order[0]
    elif own and choice.prefetch:
        order = [*own, panels, *(v for v in outer if v not in own)]
        first = order[0]
    else:
        order = ordered(outer | {panels: _count_panels(found, choice)})
        first = order[0]
    return first, [*order, *(v for v in inside if v is not None)]


def _count_panels(found: Contraction, choice: Choice) -> int:
    return -(-known(found.extents[found.columns]) // choice.tile.columns)
