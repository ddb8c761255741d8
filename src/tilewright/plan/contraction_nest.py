"""The loops of a tiled contraction: splits, order, kinds."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr.nodes import Const, Var
from tilewright.plan.contraction import Contraction
from tilewright.plan.contraction_choice import Choice
from tilewright.plan.register_tiles import RegisterTile, known
from tilewright.schedule.schedule import Schedule

MANY = 8
"""Iterations that several threads can share evenly."""

MOST_WRITTEN_OUT = 120
"""The most multiply-adds that the taps of a window may be unrolled to."""


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of a tiled contraction: the outermost; over panels that stay near, where these are not all; over cache
    blocks, over blocks of terms (None where a sum is not cut), over column panels, over tiles, over the rows, the
    vectors and the lanes of a tile."""

    outer: Var
    near: Var | None
    blocks: Var | None
    terms: Var | None
    panels: Var
    tiles: Var
    row: Var | None
    vectors: Var
    lane: Var


def tile_loops(s: Schedule, found: Contraction, choice: Choice) -> Nest:
    """Splits and orders the loops of the contraction."""
    tile = choice.tile
    loops = s.get_loops(found.block.name)
    jo, ji = s.split(loops[found.columns], tile.columns, tail="mask")
    jv, jl = s.split(ji, tile.lanes)
    js, jv = s.split(jv, tile.vectors // choice.streams) if choice.streams > 1 else (None, jv)
    outer = {loops[n]: known(found.extents[n]) for n in found.batch}
    terms = [loops[n] for n in found.reduce]
    panels = -(-known(found.extents[found.columns]) // tile.columns)
    row: Var | None = None
    cache: Var | None = None
    near: Var | None = None
    io = jo
    if found.rows is not None:
        tiles, row = s.split(loops[found.rows], tile.rows, tail="mask")
        cache, io = s.split(tiles, choice.block_tiles, tail="clip")
        if choice.block_panels is not None:
            near, jo = s.split(jo, choice.block_panels, tail="clip")
            s.reorder(near, cache, io, row, jo)
        outer[cache] = -(-known(found.extents[found.rows]) // (tile.rows * choice.block_tiles))
        inner = [jo, io]
    elif choice.block_terms is not None:
        cache, jo = s.split(jo, choice.block_tiles, tail="clip")
        io, inner = jo, [jo]
        outer[cache] = -(-panels // choice.block_tiles)
    else:
        inner = []
    tile_order = [loop for loop in (row, js, jv, jl) if loop is not None]
    if near is not None and not choice.rows_stay:
        inner = [io, jo]
    cut: Var | None = None
    if choice.block_terms is not None:
        cut, terms[0] = s.split(terms[0], choice.block_terms, tail="clip")
    if cut is None and near is None:
        order = [*ordered(outer | {jo: panels}), *inner[1:]]
    else:
        order = ordered(outer)
        if near is not None and cache is not None:
            order.insert(order.index(cache), near)
        order += [*([cut] if cut is not None else []), *inner]
    s.reorder(*order, *terms, *tile_order)
    s.vectorize(jl)
    for loop in tile_order[-2::-1]:
        s.unroll(loop)
    unroll_taps(s, found, terms, tile)
    return Nest(order[0], near, cache, cut, jo, inner[-1] if inner else jo, row, jv, jl)


def ordered(outer: dict[Var, int]) -> list[Var]:
    """The outer loops, the first with enough iterations for several threads, or else the longest, before the others."""
    first = next((loop for loop, extent in outer.items() if extent >= MANY), max(outer, key=lambda v: outer[v]))
    return [first, *(loop for loop in outer if loop is not first)]


def unroll_taps(s: Schedule, found: Contraction, terms: list[Var], tile: RegisterTile) -> None:
    """Short inner reduce loops are written out: the taps of a window."""
    size = tile.rows * tile.vectors
    for n, loop in zip(reversed(found.reduce[1:]), reversed(terms[1:]), strict=True):
        extent = found.extents[n]
        if not isinstance(extent, Const) or size * extent.value > MOST_WRITTEN_OUT:
            return
        size *= int(extent.value)
        s.unroll(loop)


def write_out(s: Schedule, block: str, io: Var, tile: RegisterTile) -> Var:
    """The loops of an epilogue over the tile, written out: vectors along the columns. Returns the loop over them."""
    loops = s.get_loops(block)
    *rows, j = loops[loops.index(io) + 1 :]
    jv, jl = s.split(j, tile.lanes)
    s.vectorize(jl)
    for loop in (*rows, jv):
        s.unroll(loop)
    return jv
