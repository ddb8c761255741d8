"""Tiles: how loops over independent points, or around sums, run in vectors.

    for j, l: y[j, l] = x[l, j]      =>      for jo, lo, jm: { unroll ji in 0..4, vectorize li in 0..8: y[…] = x[…] }

    for j, i: { t = 0; for k: t += x[i, k] * w[k, j]; y[i, j] = f(t) }
              =>      for jo, io: { t[R, V, lanes] = 0; for k: t[r, v, l] += …  (unrolled, vectorized); y[…] = … }

Where the lanes of points lie apart in one array, they lie next to each other along another loop: the nest runs in
blocks of both, so that a cache line is used up while it is near, and several vectors are loaded, or stored, together.
Sums run in tiles of R rows and V vectors of accumulators in registers, with smaller tiles for what is left over: a
vector of w is loaded once for R rows, an element of x once for V vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.analysis.accesses import Access
from tilewright.analysis.iterations import accumulation, is_spatial
from tilewright.analysis.movement import has, moving_accesses, reduces_contiguously, step, vector_cost
from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.intrinsics import BRIEF
from tilewright.expr.nodes import Call, Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loops_inside, perfect_nest, statements
from tilewright.loops.nodes import Block, For, LoopKind, Seq, Stmt, Store
from tilewright.plan.price.points import additions, chains, iterations
from tilewright.schedule.find import find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.abilities import SHORTEST_LANES


@dataclass(frozen=True, slots=True)
class Strip:
    """So many vectors of so many lanes."""

    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes


@dataclass(frozen=True, slots=True)
class Tile:
    """How loops, known by their numbers, run in vectors. Lanes lie along loop `along`, in `strips`, each for what the
    one before left over. Of loop `across`, where not None, each strip has `rows` iterations written out, or it runs in
    blocks of `line` iterations. Reduce loops of at most `turns` iterations are written out."""

    along: int
    strips: tuple[Strip, ...]
    across: int | None = None
    rows: int = 1
    line: int = 0
    turns: int = 0


def lanes_of(nest: Stmt, target: Target) -> int:
    """Lanes for the widest element type that the nest stores, at most those of f32."""
    widest = max((s.buffer.dtype.bits for s in statements(nest) if isinstance(s, Store)), default=32)
    return max(target.vector_bits // max(widest, dtypes.f32.bits), 2)


def choose_points(nest: Stmt, target: Target, lanes: int = 0) -> Tile:
    """How a nest that holds points runs: along the loop that vectorizes cheapest; inside a nest of so many `lanes`,
    where not 0, in these."""
    loops, body = perfect_nest(nest)
    found, lanes = moving_accesses(body), lanes or lanes_of(nest, target)
    cheapest = _columns(loops, found, [], 1, lanes)
    along = len(loops) - 1 if cheapest is None else cheapest
    size, line = loops[along].size, target.cache(1).line // dtypes.f32.bytes
    apart = [a for a in found if has(size, lanes) and (step(a, loops[along].var) or 0) >= SHORTEST_LANES]
    others = [n for n in reversed(range(len(loops))) if n != along and has(loops[n].size, SHORTEST_LANES)]
    across = next((n for n in others if any(step(a, loops[n].var) == 1 for a in apart)), None)
    strips = _strips(size, 1, lanes, shorter=size is not None)
    return Tile(along, strips, across, line=line if across is not None and has(loops[across].size, line) else 0)


def choose_sums(nest: Stmt, lanes: int, target: Target) -> Tile | None:
    """The tile for a nest of spatial loops around accumulations; None when no loop vectorizes well."""
    around, body = perfect_nest(nest)
    if not around or not isinstance(body, Seq) or not all(map(is_spatial, around)):
        return None
    found = moving_accesses(body)
    summing = {b.body for b in blocks(body) if accumulation(b) is not None}
    inner = [a for a in found if a.statement in summing and not a.is_store]
    depth = prod(max(iterations(loop), 1) for loop in loops_inside(body))
    along = _columns(around, inner, [a for a in found if a.statement not in summing], depth, lanes)
    if along is None:
        return None
    columns = around[along]
    if any(a.loops and step(a, columns.var) not in (0, 1) for a in found) and reduces_contiguously(body, lanes):
        return None
    across = _row_loop(around, columns, inner)
    few = across is not None or (columns.size is None and is_costly(body))
    # Additions wait for nothing where what they add up is loaded lane by lane meanwhile.
    loads = max(vector_cost(inner, columns.var, lanes) / max(len(inner), 1), 1)
    most = max(round(additions(target) / loads), 1)
    vectors = _vectors(columns.size, lanes, min(2, most) if few else most)
    if columns.size is not None and all(loop.size in (0, 1) for loop in around if loop is not columns):
        # Threads share strips evenly, three for each of two, but each has enough vectors to hide additions.
        while vectors > chains(target) and columns.size < 6 * vectors * lanes:
            vectors //= 2
    registers = (target.vector_registers - 1 - vectors) // vectors
    rows = 1 if across is None else _row_count(around[across].size, min(registers, 2 * most // vectors))
    strips = _strips(columns.size, vectors, lanes, shorter=True)
    return Tile(along, strips, across, rows, turns=2 * additions(target) // (rows * vectors))


def _inner(tile: Tile) -> list[int]:
    """The loops that a tile takes, the outer one first."""
    both = (tile.across, tile.along) if tile.line else (tile.along, tile.across)
    return [n for n in both if n is not None]


def _columns(loops: Sequence[For], inner: list[Access], outer: list[Access], depth: int, lanes: int) -> int | None:
    """The number of the loop that vectorizes cheapest, the innermost of equals, where the inner accesses come `depth`
    times for each outer one; None where that is as dear as none."""
    costs: dict[int, float] = {}
    for n in reversed(range(len(loops))):
        if has(loops[n].size, lanes):
            cost = vector_cost(inner, loops[n].var, lanes) + vector_cost(outer, loops[n].var, lanes) / depth
            costs[n] = cost * _waste(loops[n].size, lanes)
    best = min(costs, key=costs.__getitem__, default=None)
    return None if best is None or costs[best] >= lanes * len(inner) else best


def _waste(size: int | None, lanes: int) -> float:
    """How many times longer a loop takes because what does not fill a vector runs as single elements."""
    if size is None:
        return 1.0
    whole, rest = divmod(size, lanes)
    half, single = divmod(rest, lanes // 2) if lanes > SHORTEST_LANES else (0, rest)
    return (whole + half + single) * lanes / size


def _row_loop(loops: Sequence[For], columns: For, inner: list[Access]) -> int | None:
    """The loop along which most vectors are reused; the innermost of equals."""
    vectors = [a for a in inner if step(a, columns.var) == 1]
    others = [n for n in reversed(range(len(loops))) if loops[n] is not columns and loops[n].size not in (0, 1)]
    reuse = {n: sum(step(a, loops[n].var) == 0 for a in vectors) for n in others}
    return max((n for n in others if reuse[n]), key=reuse.__getitem__, default=None)


def _vectors(size: int | None, lanes: int, most: int) -> int:
    """How many vectors of columns a tile has: two beside rows, or where the number of columns is dynamic
    and functions like exp take many instructions for each; as many as are added to in turn where they are all there
    is. Fewer for few columns."""
    if size is None:
        return most
    offered = [most >> n for n in range(most.bit_length() - 1)]
    return next((v for v in offered if size % (v * lanes) == 0 or size >= 2 * v * lanes), 1)


def _row_count(size: int | None, most: int) -> int:
    """As many rows as may be; fewer where that divides a known extent without a rest."""
    most = max(most, 1)
    if size is None or size <= most:
        return most if size is None else size
    return next((r for r in range(most, most // 2, -1) if size % r == 0), most)


def is_costly(nest: Stmt) -> bool:
    """Whether a function is computed that becomes many instructions: of these a scalar takes as long as a vector."""
    return any(isinstance(e, Call) and e.fn.name not in BRIEF for e in preorder(nest))


def _strips(size: int | None, vectors: int, lanes: int, *, shorter: bool) -> tuple[Strip, ...]:
    """Strips for so many points: of all vectors, of one, and where `shorter`, of ever fewer lanes, each for what the
    one before leaves over."""
    offered = [Strip(vectors, lanes), *([Strip(1, lanes)] if vectors > 1 else [])]
    if shorter:
        halves = (lanes >> n for n in range(1, lanes.bit_length()))
        offered += [Strip(1, n) for n in halves if n >= SHORTEST_LANES]
    found: list[Strip] = []
    for strip in offered:
        if has(size, strip.width):
            found.append(strip)
            size = None if size is None else size % strip.width
    return tuple(found)


def apply_tile(s: Schedule, nest: For, chosen: Tile) -> Var | None:
    """The steps of a choice. Returns the outermost loop, where that holds all of the nest."""
    loops = [loop.var for loop in perfect_nest(nest)[0]]
    inner = [loops[n] for n in _inner(chosen)]
    around = [v for v in loops if v not in inner]
    if [*around, *inner] != loops:
        s.reorder(*around, *inner)
    made = _in_blocks(s, inner, chosen) if chosen.line else _in_strips(s, inner[0], chosen, chosen.strips)
    _unroll_short_sums(s, made, chosen.turns)
    _write_out_lines(s, made)
    return around[0] if around else made[0] if len(made) == 1 else None


def _in_blocks(s: Schedule, loops: Sequence[Var], chosen: Tile) -> list[Var]:
    """A loop around one that becomes vectors, in blocks of a cache line. Returns the outermost loops."""
    across, along = loops
    outer, block, rest = s.split(across, chosen.line, tail="peel")
    s.reorder(along, block)
    _in_strips(s, along, chosen, chosen.strips)
    if rest is None:
        return [outer]
    columns = find_loop(s.func, rest).body
    assert isinstance(columns, For)
    s.reorder(columns.var, rest)
    return [outer, *_in_strips(s, columns.var, chosen, chosen.strips)]


def _in_strips(s: Schedule, along: Var, chosen: Tile, strips: Sequence[Strip]) -> list[Var]:
    """The loops that the one over columns becomes, each holding a loop over rows, where there is one."""
    columns = find_loop(s.func, along)
    if not strips:
        _write_out_rows(s, columns, chosen)
        return [along]
    if columns.size == strips[0].width and isinstance(columns.body, Block):
        s.vectorize(along)
        return [along]
    outer, inner, rest = s.split(along, strips[0].width, tail="peel")
    _vectorize(s, inner, strips[0], chosen)
    return [outer] if rest is None else [outer, *_in_strips(s, rest, chosen, strips[1:])]


def _vectorize(s: Schedule, columns: Var, strip: Strip, chosen: Tile) -> None:
    """Columns of a strip around each statement, as vectors, which are written out; and rows around them."""
    found = find_loop(s.func, columns)
    vectors, lanes = (None, columns) if strip.vectors == 1 else s.split(columns, strip.lanes, tail="peel")[:2]
    s.vectorize(lanes)
    if not isinstance(found.body, Block):
        s.jam(lanes)
    if vectors is not None:
        s.unroll(vectors)
        s.jam(vectors, front=True)
    _write_out_rows(s, found, chosen)


def _write_out_rows(s: Schedule, columns: For, chosen: Tile) -> None:
    """So many rows at a time, around each statement: the rows are the loop inside that over columns."""
    rows = columns.body
    if chosen.rows > 1 and isinstance(rows, For) and has(rows.size, chosen.rows):
        few = s.split(rows.var, chosen.rows, tail="peel")[1]
        s.unroll(few)
        s.jam(few, front=True)


def _loops(s: Schedule, roots: Sequence[Var]) -> list[For]:
    """The loops of a part of the program, from outside and in program order."""
    return [loop for root in roots for loop in loops_inside(find_loop(s.func, root))]


def _unroll_short_sums(s: Schedule, roots: Sequence[Var], turns: int) -> None:
    """Innermost reduce loops of a few turns are written out where the tile is small: a window's taps."""
    for loop in _loops(s, roots) if turns else ():
        size = loop.size
        if loop.kind is LoopKind.SERIAL and size is not None and size <= turns:
            reduces = any(loop.var in variables_of(a.binding) for b in blocks(loop) for a in b.reduce)
            if reduces and not any(inner.kind is LoopKind.SERIAL for inner in loops_inside(loop.body)):
                s.unroll(loop.var)


def _write_out_lines(s: Schedule, roots: Sequence[Var]) -> None:
    """Loops along which is contiguous what columns, in lanes, have apart: several of their vectors are written out next
    to each other, which are loaded or stored together."""
    for loop in _loops(s, roots):
        inside, _ = perfect_nest(loop.body)
        kinds = [i.kind for i in inside]
        if loop.kind is not LoopKind.SERIAL or not is_spatial(loop) or not has(loop.size, SHORTEST_LANES):
            continue
        if kinds not in ([LoopKind.VECTORIZE], [LoopKind.UNROLL, LoopKind.VECTORIZE]):
            continue
        lane = inside[-1].var
        found = moving_accesses(inside[-1])
        if any((step(a, lane) or 0) >= SHORTEST_LANES and step(a, loop.var) == 1 for a in found):
            few = s.split(loop.var, SHORTEST_LANES, tail="peel")[1]
            if len(inside) > 1:
                s.reorder(inside[0].var, few)
            s.unroll(few)
