"""Accumulations with an output axis to vectorize over: a tile of accumulators in registers.

    for j, i: { t = 0; for k: t += x[i, k] * w[k, j]; y[i, j] = f(t) }

becomes, for tiles of R rows i and V vectors of columns j,

    for jo, io: { t[R, V*lanes] = 0; for k: t[r, c] += …  (unrolled, vectorized); y[…] = f(t[r, c]) }

with smaller tiles for what is left over. A vector of w is loaded once for R rows, an element of x once for V vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analysis.accesses import Access
from tilewright.expr.nodes import Const, Expr
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, replace, statements
from tilewright.loops.nodes import For, LoopKind, Seq, Stmt
from tilewright.plan.accesses import moving_accesses, step, vector_cost
from tilewright.plan.rows import reduces_contiguously
from tilewright.plan.spatial import SIDE, flatten
from tilewright.schedule.find import perfect_nest
from tilewright.schedule.nests import extent_of, is_spatial, jam, split
from tilewright.schedule.reduce import accumulation
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Tile:
    """Which loop gives the columns (vector lanes) and which the rows, and how many of each."""

    columns: For
    vectors: int
    rows: For | None
    count: int


def choose_tile(loops: list[For], body: Stmt, lanes: int, target: Target) -> Tile | None:
    """The tile for spatial loops around an accumulation; None when no loop vectorizes well."""
    summing = {b.body for b in blocks(body) if accumulation(b) is not None}
    found = moving_accesses(body)
    inner = [a for a in found if a.statement in summing and not a.is_store]
    outer = [a for a in found if a.statement not in summing]
    depth = _depth(body)
    best: tuple[float, For] | None = None
    for loop in reversed(loops):
        extent = extent_of(loop)
        if isinstance(extent, Const) and extent.value < lanes:
            continue
        cost = vector_cost(inner, loop.var, lanes) + vector_cost(outer, loop.var, lanes) / depth
        cost *= _waste(extent, lanes)
        if best is None or cost < best[0]:
            best = cost, loop
    if best is None or best[0] >= lanes * len(inner):
        return None
    repeated = [a for a in found if a.loops]
    if any(step(a, best[1].var) not in (0, 1) for a in repeated) and reduces_contiguously(body, lanes):
        return None
    columns = best[1]
    rows = _row_loop(loops, columns, inner)
    vectors = _vectors(columns, lanes, most=2 if rows is not None else 8)
    if all(_is_one(loop) for loop in loops if loop is not columns):
        vectors = _shared_vectors(columns, lanes, vectors)
    budget = (target.vector_registers - 1 - vectors) // vectors
    return Tile(columns, vectors, rows, _row_count(rows, budget) if rows is not None else 1)


def _waste(extent: Expr, lanes: int) -> float:
    """How many times longer a loop takes because what does not fill a vector runs as single elements."""
    if not isinstance(extent, Const):
        return 1.0
    whole, rest = divmod(int(extent.value), lanes)
    half, single = divmod(rest, lanes // 2) if lanes > NARROWEST else (0, rest)
    return (whole + half + single) * lanes / int(extent.value)


def _depth(body: Stmt) -> int:
    """How many terms one output accumulates, as far as it is known."""
    total = 1
    for s in statements(body):
        if isinstance(s, For):
            extent = extent_of(s)
            total *= max(int(extent.value), 1) if isinstance(extent, Const) else 64
    return max(total, 1)


UNROLLED = 12
"""The most accumulations that one turn of an innermost reduce loop may be unrolled to."""


def _unroll_short_reductions(stmt: Stmt, tile: Tile) -> Stmt:
    """Innermost reduce loops of a few turns are written out where the tile is small: a window's taps."""
    for loop in [s for s in statements(stmt) if isinstance(s, For) and s.kind is LoopKind.SERIAL]:
        reduces = any(loop.var in variables_of(a.binding) for b in blocks(loop) for a in b.reduce)
        inner = [s for s in statements(loop.body) if isinstance(s, For) and s.kind is LoopKind.SERIAL]
        extent = extent_of(loop)
        if reduces and not inner and isinstance(extent, Const):
            if extent.value * tile.count * tile.vectors <= UNROLLED:
                stmt = replace(stmt, loop, loop.replace(kind=LoopKind.UNROLL))
    return stmt


def _turn_back(stmt: Stmt) -> Stmt:
    """Loops along which is contiguous what columns, in lanes, have apart: four of their vectors are written out next to
    each other, which are loaded or stored together."""
    for loop in [s for s in statements(stmt) if isinstance(s, For) and s.kind is LoopKind.SERIAL]:
        vectors = loop.body
        if not isinstance(vectors, For) or not isinstance(vectors.body, For) or not is_spatial(loop):
            continue
        lane = vectors.body
        if vectors.kind is not LoopKind.UNROLL or lane.kind is not LoopKind.VECTORIZE:
            continue
        if not any((step(a, lane.var) or 0) >= SIDE and step(a, loop.var) == 1 for a in moving_accesses(lane)):
            continue
        made, four, rest = split(loop, SIDE)
        inner = four.body
        if rest is not made and isinstance(inner, For):
            next_to = four.replace(body=inner.body, kind=LoopKind.UNROLL)
            stmt = replace(stmt, loop, replace(made, four, inner.replace(body=next_to)))
    return stmt


def _row_loop(loops: list[For], columns: For, inner: list[Access]) -> For | None:
    """The loop along which most vectors are reused; the innermost of equals."""

    def reuse(loop: For) -> int:
        return sum(1 for a in inner if step(a, columns.var) == 1 and step(a, loop.var) == 0)

    others = [loop for loop in reversed(loops) if loop is not columns]
    useful = [loop for loop in others if reuse(loop) and not _is_one(loop)]
    return max(useful, key=reuse) if useful else None


def _is_one(loop: For) -> bool:
    extent = extent_of(loop)
    return isinstance(extent, Const) and extent.value <= 1


def _vectors(columns: For, lanes: int, most: int) -> int:
    """How many vectors of columns a tile has: at most two beside rows, up to `most` where they are all there is."""
    extent = extent_of(columns)
    if not isinstance(extent, Const):
        return most
    fits = [v for v in (8, 4, 2) if v <= most and (extent.value % (v * lanes) == 0 or extent.value >= 2 * v * lanes)]
    return fits[0] if fits else 1


STRIPS = 6
"""Threads share strips of columns evenly where there are at least so many."""


def _shared_vectors(columns: For, lanes: int, vectors: int) -> int:
    """How many vectors a strip of the only loop has: fewer where strips would be few, but enough to hide additions."""
    extent = extent_of(columns)
    while vectors > ENOUGH and isinstance(extent, Const) and extent.value < STRIPS * vectors * lanes:
        vectors //= 2
    return vectors


ENOUGH = 4
"""So many vectors of sums at least are added to in turn."""


def _row_count(rows: For, budget: int) -> int:
    """The most rows the registers hold; fewer where that divides a known extent without a rest."""
    extent = extent_of(rows)
    most = max(min(budget, 8), 1)
    if not isinstance(extent, Const):
        return most
    if extent.value <= most:
        return int(extent.value)
    exact = [r for r in range(most, most // 2, -1) if extent.value % r == 0]
    return exact[0] if exact else most


def schedule_tile(nest: Stmt, lanes: int, target: Target) -> Stmt | None:
    """The nest in register tiles, or None where no tile suits it."""
    loops, body = perfect_nest(nest)
    if not loops or not isinstance(body, Seq) or not all(is_spatial(loop) for loop in loops):
        return None
    loops, body = flatten(loops, body)
    tile = choose_tile(loops, body, lanes, target)
    if tile is None:
        return None
    order = [loop for loop in loops if loop is not tile.columns and loop is not tile.rows]
    order += [tile.columns, *([tile.rows] if tile.rows is not None else [])]
    inner: Stmt = body
    for loop in reversed(order):
        inner = loop.replace(body=inner)
    at = order.index(tile.columns)
    outer = inner
    path: list[For] = []
    while at:
        assert isinstance(outer, For)
        path.append(outer)
        outer, at = outer.body, at - 1
    assert isinstance(outer, For)
    made = _turn_back(_unroll_short_reductions(_columns(outer, tile, lanes), tile))
    alone = all(_is_one(loop) for loop in path)
    made = _strips_in_parallel(made) if alone else made
    for n, loop in enumerate(reversed(path)):
        kind = LoopKind.PARALLEL if n == len(path) - 1 and not alone else loop.kind
        made = loop.replace(body=made, kind=kind)
    return made


def _strips_in_parallel(stmt: Stmt) -> Stmt:
    """What became of the columns, with the loop over whole strips parallel."""
    first = stmt.body[0] if isinstance(stmt, Seq) else stmt
    if not isinstance(first, For) or first.kind is not LoopKind.SERIAL:
        return stmt
    return replace(stmt, first, first.replace(kind=LoopKind.PARALLEL))


def _columns(loop: For, tile: Tile, lanes: int) -> Stmt:
    """The column loop in strips of `vectors` vectors, then of one vector, then of half a vector, then of single
    columns. Where a tile has rows, the row loop is the one inside it."""
    made, inner, rest = split(loop, tile.vectors * lanes)
    if rest is made:
        return _rest(loop, tile, lanes)
    strip, copies = jam(inner)
    for copy in copies:
        strip = replace(strip, copy, _unrolled_vectors(copy, lanes))
    made = replace(made, inner, _rows(strip, tile))
    return made if rest is None else replace(made, rest, _rest(rest, tile, lanes))


def _rest(loop: For, tile: Tile, lanes: int) -> Stmt:
    """The columns that do not fill the strips of a tile."""
    single = Tile(tile.columns, 1, tile.rows, tile.count)
    if tile.vectors > 1:
        return _columns(loop, single, lanes)
    extent = extent_of(loop)
    if lanes > NARROWEST and isinstance(extent, Const) and extent.value >= lanes // 2:
        return _columns(loop, single, lanes // 2)
    return loop.replace(body=_rows(loop.body, tile))


NARROWEST = 4
"""The fewest lanes that the rest of a column loop is vectorized to."""


def _unrolled_vectors(loop: For, lanes: int) -> Stmt:
    """A loop of whole vectors: vectorized, and unrolled over the vectors."""
    made, vector, _ = split(loop, lanes)
    made = replace(made, vector, vector.replace(kind=LoopKind.VECTORIZE))
    return made.replace(kind=LoopKind.UNROLL) if isinstance(made, For) else made


def _rows(loop: Stmt, tile: Tile) -> Stmt:
    """The row loop in strips of the tile's rows jammed around the columns, then of single rows."""
    if tile.rows is None or tile.count == 1 or not isinstance(loop, For):
        return loop
    made, inner, rest = split(loop, tile.count)
    if rest is made:
        return loop
    strip, copies = jam(inner, front=True)
    for copy in copies:
        strip = replace(strip, copy, copy.replace(kind=LoopKind.UNROLL))
    return replace(made, inner, strip)
