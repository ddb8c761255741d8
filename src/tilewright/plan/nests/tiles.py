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
from tilewright.expr.nodes import Const, Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loops_inside
from tilewright.loops.nodes import For, LoopKind, Seq, Stmt
from tilewright.plan.facts.windows import calls_functions
from tilewright.plan.nests.points import fuse_pieces, has, pieces_of, size_of
from tilewright.plan.nests.rows import Region, chains, reduces_contiguously
from tilewright.schedule.facts.accumulations import accumulation
from tilewright.schedule.facts.iterations import extent_of, is_spatial
from tilewright.schedule.find import find_loop, perfect_nest
from tilewright.schedule.loops.rearrange import fused
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
    `across`, where not None, counts rows, `rows` at a time. Reduce loops of at most `turns` iterations are written out;
    so are `side` vectors of columns where these have apart what another loop has in one piece. Threads share the
    outermost loop, which is that over the first strips where there is no other (`alone`)."""

    fused: tuple[int, ...]
    along: int
    strips: tuple[Strip, ...]
    across: int | None
    rows: int
    turns: int
    side: int
    alone: bool


def choose_tile(nest: Stmt, lanes: int, target: Target) -> Tile | None:
    """The tile for a nest of spatial loops around accumulations; None when no loop vectorizes well."""
    around, body = perfect_nest(nest)
    if not around or not isinstance(body, Seq) or not all(map(is_spatial, around)):
        return None
    counts = pieces_of(around)
    loops, body = _flattened(around, counts)
    found = moving_accesses(body)
    summing = {b.body for b in blocks(body) if accumulation(b) is not None}
    inner = [a for a in found if a.statement in summing and not a.is_store]
    along = _columns(loops, body, inner, [a for a in found if a.statement not in summing], lanes, target)
    if along is None:
        return None
    columns = loops[along]
    repeated = [a for a in found if a.loops]
    if any(step(a, columns.var) not in (0, 1) for a in repeated) and reduces_contiguously(body, lanes):
        return None
    across = _row_loop(loops, columns, inner)
    costly = any(calls_functions(b) for b in blocks(body))
    few = across is not None or (_size(columns) is None and costly)
    vectors = _vectors(_size(columns), lanes, 2 if few else 8)
    alone = all(_size(loop) in (0, 1) for loop in loops if loop is not columns)
    if alone:
        vectors = _shared_vectors(_size(columns), lanes, vectors, target)
    budget = (target.vector_registers - 1 - vectors) // vectors
    rows = 1 if across is None else _row_count(_size(loops[across]), budget)
    strips = _strips(_size(columns), vectors, lanes, SHORTEST_LANES)
    return Tile(counts, along, strips, across, rows, UNROLLED // (rows * vectors), SHORTEST_LANES, alone)


def _flattened(loops: Sequence[For], counts: Sequence[int]) -> tuple[list[For], Stmt]:
    """The loops with neighbours fused, so many each, and what the innermost holds."""
    made = loops[-1].body
    end = len(loops)
    for count in reversed(counts):
        piece = loops[end - count : end]
        end -= count
        inner = piece[-1].replace(body=made)
        for outer in reversed(piece[:-1]):
            inner = fused(outer.replace(body=inner), inner)
        made = inner
    return perfect_nest(made)


def _size(loop: For) -> int | None:
    extent = extent_of(loop)
    return int(extent.value) if isinstance(extent, Const) else None


def _columns(
    loops: Sequence[For], body: Stmt, inner: list[Access], outer: list[Access], lanes: int, target: Target
) -> int | None:
    """The number of the loop that vectorizes cheapest, the innermost of equals; None where that is as dear as none."""
    depth = max(prod(max(_size(s) or 0, 1) if _size(s) is not None else 64 for s in loops_inside(body)), 1)
    costs: dict[int, float] = {}
    for n, loop in reversed(list(enumerate(loops))):
        if has(_size(loop), lanes):
            cost = vector_cost(inner, loop.var, lanes) + vector_cost(outer, loop.var, lanes) / depth
            costs[n] = cost * _waste(_size(loop), lanes, SHORTEST_LANES)
    best = min(costs, key=costs.__getitem__, default=None)
    return None if best is None or costs[best] >= lanes * len(inner) else best


def _waste(size: int | None, lanes: int, shortest: int) -> float:
    """How many times longer a loop takes because what does not fill a vector runs as single elements."""
    if size is None:
        return 1.0
    whole, rest = divmod(size, lanes)
    half, single = divmod(rest, lanes // 2) if lanes > shortest else (0, rest)
    return (whole + half + single) * lanes / size


def _row_loop(loops: Sequence[For], columns: For, inner: list[Access]) -> int | None:
    """The loop along which most vectors are reused; the innermost of equals."""

    def reuse(n: int) -> int:
        return sum(1 for a in inner if step(a, columns.var) == 1 and step(a, loops[n].var) == 0)

    others = [n for n, loop in reversed(list(enumerate(loops))) if loop is not columns and _size(loop) not in (0, 1)]
    return max((n for n in others if reuse(n)), key=reuse, default=None)


def _vectors(size: int | None, lanes: int, most: int) -> int:
    """How many vectors of columns a tile has: at most two beside rows, or where only a call knows how many columns are
    there and functions like exp take many instructions for each; up to `most` where they are all there is."""
    if size is None:
        return most
    fits = [v for v in (8, 4, 2) if v <= most and (size % (v * lanes) == 0 or size >= 2 * v * lanes)]
    return fits[0] if fits else 1


def _shared_vectors(size: int | None, lanes: int, vectors: int, target: Target) -> int:
    """How many vectors a strip of the only loop has: fewer where threads would not share strips evenly, three for each
    of two, but enough to hide additions."""
    while vectors > chains(target) and size is not None and size < 6 * vectors * lanes:
        vectors //= 2
    return vectors


def _row_count(size: int | None, budget: int) -> int:
    """The most rows the registers hold; fewer where that divides a known extent without a rest."""
    most = max(min(budget, 8), 1)
    if size is None:
        return most
    if size <= most:
        return size
    return next((r for r in range(most, most // 2, -1) if size % r == 0), most)


def _strips(size: int | None, vectors: int, lanes: int, shortest: int) -> tuple[Strip, ...]:
    """Strips of columns: of all vectors, of one, and of ever fewer lanes, as far as there are so many columns."""
    found = [Strip(vectors, lanes)] if has(size, vectors * lanes) else []
    size = None if size is None else size % (vectors * lanes)
    if vectors > 1 and has(size, lanes):
        found.append(Strip(1, lanes))
        size = None if size is None else size % lanes
    while lanes > shortest and has(size, lanes // 2):
        lanes //= 2
        found.append(Strip(1, lanes))
        size = None if size is None else size % lanes
    return tuple(found)


def apply_tile(region: Region, chosen: Tile) -> Var | None:
    """The steps of a choice. Returns the outermost loop, where that holds all of the nest."""
    s = region.s
    nest = find_loop(s.func, region.roots[0])
    loops = fuse_pieces(s, [loop.var for loop in perfect_nest(nest)[0]], chosen.fused)
    columns, across = loops[chosen.along], None if chosen.across is None else loops[chosen.across]
    around = [v for v in loops if v not in (columns, across)]
    order = [*around, columns, *([across] if across is not None else [])]
    if order != loops:
        s.reorder(*order)
    if around and not chosen.alone:
        s.parallel(around[0])
    region.roots = made = _in_strips(s, columns, chosen)
    _unroll_short_sums(region, chosen)
    _turn_back(region, chosen)
    if chosen.alone and find_loop(s.func, made[0]).kind is LoopKind.SERIAL:
        s.parallel(made[0])
    return around[0] if around else made[0] if len(made) == 1 else None


def _in_strips(s: Schedule, columns: Var, chosen: Tile) -> list[Var]:
    """The loops that the one over columns becomes, each holding a loop over rows, where there is one."""
    made: list[Var] = []
    rest: Var | None = columns
    for strip in chosen.strips:
        if rest is not None:
            outer, inner, rest = s.split(rest, strip.vectors * strip.lanes, tail="peel")
            made.append(outer)
            _tile(s, inner, strip, chosen)
    if rest is not None:
        made.append(rest)
        if chosen.across is not None:
            _in_rows(s, rest, chosen)
    return made


def _tile(s: Schedule, columns: Var, strip: Strip, chosen: Tile) -> None:
    """Columns of a strip around the sums, as vectors, which are written out; and rows around them."""
    above = [loop.var for loop in perfect_nest(find_loop(s.func, columns))[0]]
    vectors = None
    lanes = columns
    if strip.vectors > 1:
        vectors, lanes, _ = s.split(columns, strip.lanes, tail="peel")
    s.vectorize(lanes)
    s.jam(lanes)
    if vectors is not None:
        s.unroll(vectors)
        s.jam(vectors, front=True)
    if chosen.across is not None:
        _rows(s, above[1], chosen)


def _in_rows(s: Schedule, columns: Var, chosen: Tile) -> None:
    inner = find_loop(s.func, columns).body
    assert isinstance(inner, For)
    _rows(s, inner.var, chosen)


def _rows(s: Schedule, rows: Var, chosen: Tile) -> None:
    """So many rows at a time, around the sums."""
    if chosen.rows > 1 and has(size_of(s, rows), chosen.rows):
        _, few, _ = s.split(rows, chosen.rows, tail="peel")
        s.unroll(few)
        s.jam(few, front=True)


def _unroll_short_sums(region: Region, chosen: Tile) -> None:
    """Innermost reduce loops of a few turns are written out where the tile is small: a window's taps."""
    s = region.s
    for loop in [loop for root in region.roots for loop in loops_inside(find_loop(s.func, root))]:
        size = _size(loop)
        if loop.kind is LoopKind.SERIAL and size is not None and size <= chosen.turns:
            reduces = any(loop.var in variables_of(a.binding) for b in blocks(loop) for a in b.reduce)
            if reduces and not any(inner.kind is LoopKind.SERIAL for inner in loops_inside(loop.body)):
                s.unroll(loop.var)


def _turn_back(region: Region, chosen: Tile) -> None:
    """Loops along which is contiguous what columns, in lanes, have apart: several of their vectors are written out next
    to each other, which are loaded or stored together."""
    s = region.s
    for loop in [loop for root in region.roots for loop in loops_inside(find_loop(s.func, root))]:
        inside, _ = perfect_nest(loop.body)
        kinds = [i.kind for i in inside]
        if loop.kind is not LoopKind.SERIAL or not is_spatial(loop) or not has(_size(loop), chosen.side):
            continue
        if kinds not in ([LoopKind.VECTORIZE], [LoopKind.UNROLL, LoopKind.VECTORIZE]):
            continue
        lane = inside[-1].var
        if any((step(a, lane) or 0) >= chosen.side and step(a, loop.var) == 1 for a in moving_accesses(inside[-1])):
            _, few, _ = s.split(loop.var, chosen.side, tail="peel")
            if len(inside) > 1:
                s.reorder(inside[0].var, few)
            s.unroll(few)
