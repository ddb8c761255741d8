"""tile_registers: accumulations with an output axis to vectorize over get a tile of accumulators in registers.

    for j, i: { t = 0; for k: t += x[i, k] * w[k, j]; y[i, j] = f(t) }

becomes, for tiles of R rows i and V vectors of columns j,

    for jo, io: { t[R, V*lanes] = 0; for k: t[r, c] += …  (unrolled, vectorized); y[…] = f(t[r, c]) }

with smaller tiles for what is left over. A vector of w is loaded once for R rows, an element of x once for V vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.analysis.movement import moving_accesses, step
from tilewright.expr.nodes import Const, Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, replace, statements
from tilewright.loops.nodes import For, Function, LoopKind, Seq, Stmt
from tilewright.schedule.find import perfect_nest
from tilewright.schedule.nests import extent_of, is_spatial, jam, split
from tilewright.schedule.points import SIDE, flatten
from tilewright.schedule.rows import ANY_ORDER, prepared, require_sums
from tilewright.schedule.step import Step, refusal
from tilewright.schedule.top_nests import outermost, require_apart, require_lanes, top_nest, with_nest


@dataclass(frozen=True, slots=True)
class Tile:
    """Which loop gives the columns (vector lanes) and which the rows, and how many of each."""

    columns: For
    vectors: int
    rows: For | None
    count: int


def tile_registers(
    function: Function,
    loop: Var,
    *,
    lanes: int,
    along: int,
    vectors: int,
    across: int | None = None,
    count: int = 1,
    blocks_of: int = 0,
) -> Step:
    """A nest of accumulations runs in tiles of `count` rows and `vectors` vectors of columns, whose sums are registers,
    with smaller tiles for what is left over. `along` (columns) and `across` (rows) are loops of the nest by their
    number from outside, once those over what lies in one piece have become one. `blocks_of` is as in sum_in_lanes.
    Returns the outermost loop, where that holds all of the nest.

    for i in 0..6, j in 0..16: block t.init: t[] = 0.0; for k: block t(reduce vk = k): t[] += x[i, vk] * w[vk, j]
              =>      with lanes=8, along=1, vectors=2, across=0, count=6: 12 vectors of sums, for one k after the other

    Legal where no iteration of the loops around the sums touches what another one stores, and each reducing block is an
    accumulation by an operator whose order does not matter, without an `init`.
    """
    nest = top_nest(function, loop, what := f"cannot tile nest {loop.name}")
    require_lanes(function, nest, lanes, what)
    require_sums(function, nest, what)
    flat = flat_sums(prepared(nest, blocks_of))
    if flat is None:
        why = "its loops hold no sums that are added up one by one, or an iteration touches what another one stores"
        raise refusal(function, what, nest, why=why, fix=f"sum_in_lanes({loop.name}, lanes={lanes})")
    loops, body = flat
    wanted = [n for n in (along, across) if n is not None]
    if not all(0 <= n < len(loops) for n in wanted) or len(set(wanted)) < len(wanted) or vectors < 1 or count < 1:
        why = (
            f"along and across are two of its {len(loops)} loops, by numbers from 0, and a tile has at least one vector"
        )
        raise refusal(function, what, nest, why=why, fix="take along=0, vectors=1")
    evidence = require_apart(function, nest, perfect_nest(nest)[0], what)
    tile = Tile(loops[along], vectors, None if across is None else loops[across], count)
    made = in_tiles(loops, body, tile, lanes)
    return Step(with_nest(function, nest, made), outermost(made), (*evidence, ANY_ORDER))


@lru_cache(maxsize=1 << 4)
def flat_sums(nest: Stmt) -> tuple[list[For], Stmt] | None:
    """The loops around the sums of a nest, those over what lies in one piece as one, and what the innermost of them
    holds; None where it is no nest of sums. It is kept: who chooses a tile asks before the step that makes it."""
    loops, body = perfect_nest(nest)
    if not loops or not isinstance(body, Seq) or not all(is_spatial(loop) for loop in loops):
        return None
    return flatten(loops, body)


def in_tiles(loops: list[For], body: Stmt, tile: Tile, lanes: int) -> Stmt:
    """The nest of these loops in register tiles."""
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


def _is_one(loop: For) -> bool:
    extent = extent_of(loop)
    return isinstance(extent, Const) and extent.value <= 1


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
    if lanes > NARROWEST and (not isinstance(extent, Const) or extent.value >= lanes // 2):
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
