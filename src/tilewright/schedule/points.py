"""Nests of independent points are flattened where memory is contiguous, vectorized, marked parallel.

    for j, l: y[j, l] = x[l, j]      =>      for jo, lo, jm: { unroll ji in 0..4, vectorize li in 0..8: y[…] = x[…] }

Where lanes lie apart in one array, they lie next to each other along another loop: the nest is cut into blocks of both,
so that a cache line is used up while it is near, and four vectors are loaded, or stored, as whole vectors.
"""

from __future__ import annotations

from functools import lru_cache

from tilewright.analysis.movement import moving_accesses, step, vector_cost
from tilewright.core.walk import preorder
from tilewright.expr.intrinsics import BRIEF
from tilewright.expr.nodes import Call, Const, const
from tilewright.loops.edit import replace
from tilewright.loops.nodes import For, LoopKind, Seq, Stmt
from tilewright.schedule.find import perfect_nest
from tilewright.schedule.nests import extent_of, flattens, fuse, is_spatial, split

LINE = 16
"""Elements of f32 in a cache line: so far a block goes along the loop that turned accesses are contiguous in."""

SHORTEST = 4
"""Lanes of the shortest vectors that a short loop, or what is left over of one, is computed in."""

SIDE = 4
"""So many vectors with lanes apart are loaded or stored together."""


@lru_cache(maxsize=1 << 6)
def holds_points(nest: Stmt) -> bool:
    """Whether a nest is loops over independent points, with nothing between the loops. It is kept: who chooses asks
    before the step does."""
    loops, _ = perfect_nest(nest)
    return bool(loops) and all(is_spatial(loop) for loop in loops)


def points_in_vectors(nest: Stmt, lanes: int, parallel: bool = True) -> Stmt:
    """The nest with its most contiguous loop vectorized and the outermost loop of several iterations parallel, if
    asked."""
    if not holds_points(nest):
        return nest
    loops, body = flatten(*perfect_nest(nest))
    best = _vector_loop(loops, lanes)
    turned = _turned_loop(loops, best, lanes)
    around = [loop for loop in loops if loop is not best and loop is not turned]
    line = best.replace(body=body)
    inner = vectorize(line, lanes) if turned is None else _in_blocks(turned.replace(body=line), lanes)
    outer = [n for n, loop in enumerate(around) if extent_of(loop) is not const(1)]
    if parallel and outer:
        around[outer[0]] = around[outer[0]].replace(kind=LoopKind.PARALLEL)
    elif parallel:
        inner = _first_in_parallel(inner)
    for loop in reversed(around):
        inner = loop.replace(body=inner)
    return inner


def _turned_loop(loops: list[For], best: For, lanes: int) -> For | None:
    """The loop along which an access is contiguous whose lanes, along `best`, lie apart."""
    found = [a for a in moving_accesses(loops[-1]) if (step(a, best.var) or 0) >= SIDE]
    if not _has(best, lanes):
        return None
    others = [loop for loop in reversed(loops) if loop is not best and _has(loop, SIDE)]
    return next((loop for loop in others if any(step(a, loop.var) == 1 for a in found)), None)


def _has(loop: For, least: int) -> bool:
    """Whether a loop has so many iterations, as far as it is known."""
    extent = extent_of(loop)
    return not isinstance(extent, Const) or extent.value >= least


def _in_blocks(turned: For, lanes: int) -> Stmt:
    """A loop around one that becomes vectors, in blocks of a cache line."""
    made, block, rest = split(turned, LINE)
    if rest is made:
        return _block(turned, lanes)
    made = replace(made, block, _block(block, lanes))
    if rest is None:
        return made
    return replace(made, rest, _block(rest, lanes) if _has(rest, SIDE) else rest.replace(body=_plain(rest, lanes)))


def _plain(loop: For, lanes: int) -> Stmt:
    """The loop inside this one as vectors and single elements."""
    assert isinstance(loop.body, For)
    return vectorize(loop.body, lanes)


def _block(turned: For, lanes: int) -> Stmt:
    """A loop moved into the one inside it, around its vectors, four of which are written out."""
    line = turned.body
    assert isinstance(line, For)
    made, vector, _ = split(line.replace(body=turned.replace(body=line.body)), lanes)
    across = vector.body
    assert isinstance(across, For)
    vectors, four, single = split(across.replace(body=vector.replace(body=across.body, kind=LoopKind.VECTORIZE)), SIDE)
    if single is not vectors:
        vectors = replace(vectors, four, four.replace(kind=LoopKind.UNROLL))
    return replace(made, vector, vectors)


def _first_in_parallel(stmt: Stmt) -> Stmt:
    """What became of the outermost loops, with the one over whole vectors or blocks parallel."""
    first = stmt.body[0] if isinstance(stmt, Seq) else stmt
    if not isinstance(first, For) or first.kind is not LoopKind.SERIAL or not isinstance(first.body, For | Seq):
        return stmt
    return replace(stmt, first, first.replace(kind=LoopKind.PARALLEL))


def vectorize(loop: For, lanes: int) -> Stmt:
    """A loop split into whole vectors and a scalar rest; of functions like exp, of which a scalar takes as long as a
    vector, into shorter vectors before."""
    extent = extent_of(loop)
    if isinstance(extent, Const) and extent.value < lanes:
        if extent.value > 1 and extent.value in (lanes // 2, lanes // 4):
            return loop.replace(kind=LoopKind.VECTORIZE)
        return _in_short_vectors(loop, lanes // 2) if _is_costly(loop) else loop
    made, inner, rest = split(loop, lanes)
    vectors = replace(made, inner, inner.replace(kind=LoopKind.VECTORIZE))
    if rest is None or not _is_costly(loop):
        return vectors
    return replace(vectors, rest, _in_short_vectors(rest, lanes // 2))


def _in_short_vectors(loop: For, lanes: int) -> Stmt:
    """A loop of fewer iterations than a vector has lanes, or what is left over of one, in shorter vectors as far as
    there are iterations."""
    extent = extent_of(loop)
    if not isinstance(extent, Const) or lanes < SHORTEST:
        return loop
    if extent.value < lanes:
        return _in_short_vectors(loop, lanes // 2)
    return vectorize(loop, lanes)


def _is_costly(loop: For) -> bool:
    """Whether a function is computed that becomes many instructions."""
    return any(isinstance(e, Call) and e.fn.name not in BRIEF for e in preorder(loop))


def flatten(loops: list[For], body: Stmt) -> tuple[list[For], Stmt]:
    """The nest with neighbouring loops fused where every access stays linear."""
    rebuilt = body
    for loop in reversed(loops):
        rebuilt = loop.replace(body=rebuilt)
    assert isinstance(rebuilt, For)
    return perfect_nest(_fuse_all(rebuilt))


def _fuse_all(nest: For) -> For:
    inner = nest.body
    if not isinstance(inner, For):
        return nest
    nest = nest.replace(body=_fuse_all(inner))
    return fuse(nest) if flattens(nest) else nest


def _vector_loop(loops: list[For], lanes: int) -> For:
    """The loop that vectorizes cheapest; the innermost of equals; one that is too short for a vector, or along which
    every access goes element by element, only at last."""
    group = moving_accesses(loops[-1])

    def rank(loop: For) -> tuple[bool, float]:
        cost = vector_cost(group, loop.var, lanes)
        return not _has(loop, lanes) or cost >= lanes * len(group), cost

    return min(reversed(loops), key=rank)
