"""Tiles of sums: accumulations with an output axis to vectorize over run with a tile of accumulators in registers.

    for j, i: { t = 0; for k: t += x[i, k] * w[k, j]; y[i, j] = f(t) }

becomes, for tiles of R rows i and V vectors of columns j,

    for jo, io: { t[R, V, lanes] = 0; for k: t[r, v, l] += …  (unrolled, vectorized); y[…] = f(t[r, v, l]) }

with smaller tiles for what is left over. A vector of w is loaded once for R rows, an element of x once for V vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.analysis.accesses import Access
from tilewright.analysis.movement import moving_accesses, step, vector_cost
from tilewright.expr.nodes import Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loops_inside
from tilewright.loops.nodes import LoopKind, Seq, Stmt
from tilewright.plan.nests.points import Piece, cuts, fuse_pieces, halves, has, is_costly, pieces_of, write_out
from tilewright.plan.nests.rows import Region, chains, reduces_contiguously
from tilewright.schedule.facts.iterations import accumulation, is_spatial, size_of
from tilewright.schedule.find import find_loop, perfect_nest
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.target import SHORTEST_LANES

UNROLLED = 12
"""The most accumulations that one turn of an innermost reduce loop may be unrolled to."""


@dataclass(frozen=True, slots=True)
class Strip:
    """So many vectors of so many lanes."""

    vectors: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of accumulators. The loops around the sums become `fused` many, so many neighbours each, and are then
    known by their numbers. Loop `along` counts columns, in `strips`, each for what the one before left over; loop
    `across`, where not None, counts rows, `rows` at a time. Reduce loops of at most `turns` iterations are written out.
    Threads share the outermost loop, which is that over the first strips where there is no other (`alone`)."""

    fused: tuple[int, ...]
    along: int
    strips: tuple[Strip, ...]
    across: int | None
    rows: int
    turns: int
    alone: bool


def choose_tile(nest: Stmt, lanes: int, target: Target) -> Tile | None:
    """The tile for a nest of spatial loops around accumulations; None when no loop vectorizes well."""
    around, body = perfect_nest(nest)
    if not around or not isinstance(body, Seq) or not all(map(is_spatial, around)):
        return None
    pieces = pieces_of(around)
    found = moving_accesses(body)
    summing = {b.body for b in blocks(body) if accumulation(b) is not None}
    inner = [a for a in found if a.statement in summing and not a.is_store]
    along = _columns(pieces, body, inner, [a for a in found if a.statement not in summing], lanes)
    if along is None:
        return None
    columns = pieces[along]
    if any(a.loops and step(a, columns.var) not in (0, 1) for a in found) and reduces_contiguously(body, lanes):
        return None
    across = _row_loop(pieces, columns, inner)
    few = across is not None or (columns.size is None and is_costly(body))
    vectors = _vectors(columns.size, lanes, 2 if few else 8)
    alone = all(piece.size in (0, 1) for piece in pieces if piece is not columns)
    if alone and columns.size is not None:
        # Threads share strips evenly, three for each of two, but each has enough vectors to hide additions.
        while vectors > chains(target) and columns.size < 6 * vectors * lanes:
            vectors //= 2
    budget = (target.vector_registers - 1 - vectors) // vectors
    rows = 1 if across is None else _row_count(pieces[across].size, budget)
    strips = _strips(columns.size, vectors, lanes)
    return Tile(tuple([p.count for p in pieces]), along, strips, across, rows, UNROLLED // (rows * vectors), alone)


def _columns(pieces: Sequence[Piece], body: Stmt, inner: list[Access], outer: list[Access], lanes: int) -> int | None:
    """The number of the loop that vectorizes cheapest, the innermost of equals; None where that is as dear as none."""
    sizes = [size_of(loop) for loop in loops_inside(body)]
    depth = prod(64 if size is None else max(size, 1) for size in sizes)
    costs: dict[int, float] = {}
    for n in reversed(range(len(pieces))):
        if has(pieces[n].size, lanes):
            cost = vector_cost(inner, pieces[n].var, lanes) + vector_cost(outer, pieces[n].var, lanes) / depth
            costs[n] = cost * _waste(pieces[n].size, lanes)
    best = min(costs, key=costs.__getitem__, default=None)
    return None if best is None or costs[best] >= lanes * len(inner) else best


def _waste(size: int | None, lanes: int) -> float:
    """How many times longer a loop takes because what does not fill a vector runs as single elements."""
    if size is None:
        return 1.0
    whole, rest = divmod(size, lanes)
    half, single = divmod(rest, lanes // 2) if lanes > SHORTEST_LANES else (0, rest)
    return (whole + half + single) * lanes / size


def _row_loop(pieces: Sequence[Piece], columns: Piece, inner: list[Access]) -> int | None:
    """The loop along which most vectors are reused; the innermost of equals."""
    vectors = [a for a in inner if step(a, columns.var) == 1]
    others = [n for n in reversed(range(len(pieces))) if pieces[n] is not columns and pieces[n].size not in (0, 1)]
    reuse = {n: sum(step(a, pieces[n].var) == 0 for a in vectors) for n in others}
    return max((n for n in others if reuse[n]), key=reuse.__getitem__, default=None)


def _vectors(size: int | None, lanes: int, most: int) -> int:
    """How many vectors of columns a tile has: at most two beside rows, or where only a call knows how many columns are
    there and functions like exp take many instructions for each; up to `most` where they are all there is."""
    if size is None:
        return most
    offered = [v for v in (8, 4, 2) if v <= most]
    return next((v for v in offered if size % (v * lanes) == 0 or size >= 2 * v * lanes), 1)


def _row_count(size: int | None, budget: int) -> int:
    """The most rows the registers hold; fewer where that divides a known extent without a rest."""
    most = max(min(budget, 8), 1)
    if size is None or size <= most:
        return most if size is None else size
    return next((r for r in range(most, most // 2, -1) if size % r == 0), most)


def _strips(size: int | None, vectors: int, lanes: int) -> tuple[Strip, ...]:
    """Strips of columns: of all vectors, of one, and of ever fewer lanes, as far as there are so many columns."""
    offered = [
        Strip(vectors, lanes),
        *([Strip(1, lanes)] if vectors > 1 else []),
        *(Strip(1, n) for n in halves(lanes)),
    ]
    widths = cuts(size, [strip.vectors * strip.lanes for strip in offered])
    return tuple([strip for strip in offered if strip.vectors * strip.lanes in widths])


def apply_tile(region: Region, chosen: Tile) -> Var | None:
    """The steps of a choice. Returns the outermost loop, where that holds all of the nest."""
    s = region.s
    loops = fuse_pieces(s, find_loop(s.func, region.roots[0]), chosen.fused)
    inner = [loops[n] for n in (chosen.along, chosen.across) if n is not None]
    around = [v for v in loops if v not in inner]
    if [*around, *inner] != loops:
        s.reorder(*around, *inner)
    if around and not chosen.alone:
        s.parallel(around[0])
    region.roots = made = _in_strips(s, inner[0], chosen, chosen.strips)
    _unroll_short_sums(region, chosen)
    _turn_back(region)
    if chosen.alone and find_loop(s.func, made[0]).kind is LoopKind.SERIAL:
        s.parallel(made[0])
    return around[0] if around else made[0] if len(made) == 1 else None


def _in_strips(s: Schedule, columns: Var, chosen: Tile, strips: Sequence[Strip]) -> list[Var]:
    """The loops that the one over columns becomes, each holding a loop over rows, where there is one."""
    if not strips:
        if chosen.across is not None:
            _write_out_rows(s, perfect_nest(find_loop(s.func, columns))[0][1].var, chosen)
        return [columns]
    strip = strips[0]
    outer, inner, rest = s.split(columns, strip.vectors * strip.lanes, tail="peel")
    _tile(s, inner, strip, chosen)
    return [outer] if rest is None else [outer, *_in_strips(s, rest, chosen, strips[1:])]


def _tile(s: Schedule, columns: Var, strip: Strip, chosen: Tile) -> None:
    """Columns of a strip around the sums, as vectors, which are written out; and rows around them."""
    above = [loop.var for loop in perfect_nest(find_loop(s.func, columns))[0]]
    vectors, lanes = (None, columns) if strip.vectors == 1 else s.split(columns, strip.lanes, tail="peel")[:2]
    s.vectorize(lanes)
    s.jam(lanes)
    if vectors is not None:
        s.unroll(vectors)
        s.jam(vectors, front=True)
    if chosen.across is not None:
        _write_out_rows(s, above[1], chosen)


def _write_out_rows(s: Schedule, rows: Var, chosen: Tile) -> None:
    """So many rows at a time, around the sums."""
    few = write_out(s, rows, chosen.rows)
    if few is not None:
        s.jam(few, front=True)


def _unroll_short_sums(region: Region, chosen: Tile) -> None:
    """Innermost reduce loops of a few turns are written out where the tile is small: a window's taps."""
    for loop in region.loops:
        size = size_of(loop)
        if loop.kind is LoopKind.SERIAL and size is not None and size <= chosen.turns:
            reduces = any(loop.var in variables_of(a.binding) for b in blocks(loop) for a in b.reduce)
            if reduces and not any(inner.kind is LoopKind.SERIAL for inner in loops_inside(loop.body)):
                region.s.unroll(loop.var)


def _turn_back(region: Region) -> None:
    """Loops along which is contiguous what columns, in lanes, have apart: several of their vectors are written out next
    to each other, which are loaded or stored together."""
    s = region.s
    for loop in region.loops:
        inside, _ = perfect_nest(loop.body)
        kinds = [i.kind for i in inside]
        if loop.kind is not LoopKind.SERIAL or not is_spatial(loop) or not has(size_of(loop), SHORTEST_LANES):
            continue
        if kinds not in ([LoopKind.VECTORIZE], [LoopKind.UNROLL, LoopKind.VECTORIZE]):
            continue
        lane = inside[-1].var
        found = moving_accesses(inside[-1])
        if any((step(a, lane) or 0) >= SHORTEST_LANES and step(a, loop.var) == 1 for a in found):
            _, few, _ = s.split(loop.var, SHORTEST_LANES, tail="peel")
            if len(inside) > 1:
                s.reorder(inside[0].var, few)
            s.unroll(few)
