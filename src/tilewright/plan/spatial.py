"""Nests of independent points: flattened where memory is contiguous, vectorized, marked parallel.

Where the lanes stride over a buffer that lies contiguous along another loop, as in a transpose, that loop comes inside
strips of the vectorized one, so that all that a cache line brings is used while it is near:

    for c in 0..C, p in 0..P: y[c, p] = x[p, c]       =>       for po in 0..P//16, c in 0..C:
                                                                 vectorize pi in 0..16: y[c, …] = x[po*16 + pi, c]
"""

from __future__ import annotations

from tilewright.expr.nodes import Const, const
from tilewright.loops.edit import replace
from tilewright.loops.nodes import For, LoopKind, Seq, Stmt
from tilewright.plan.accesses import moving_accesses, step, vector_cost
from tilewright.schedule.find import perfect_nest
from tilewright.schedule.nests import extent_of, flattens, fuse, is_spatial, jam, split


def schedule_points(nest: Stmt, lanes: int, parallel: bool = True) -> Stmt:
    """The nest with its most contiguous loop vectorized and the outermost loop of several iterations parallel, if
    asked."""
    loops, body = perfect_nest(nest)
    if not loops or not all(is_spatial(loop) for loop in loops):
        return nest
    loops, body = _flatten(loops, body)
    best = _vector_loop(loops, lanes)
    crossed = _crossed(loops, best, lanes)
    if crossed is not None:
        ordered = [*(loop for loop in loops if loop not in (best, crossed)), crossed]
        inner = _strips(best.replace(body=crossed.replace(body=body)), STRIP, lanes)
    else:
        ordered = [*(loop for loop in loops if loop is not best), best]
        inner = vectorize(ordered[-1].replace(body=body), lanes)
    outer = [n for n, loop in enumerate(ordered[:-1]) if extent_of(loop) is not const(1)]
    if parallel and outer:
        ordered[outer[0]] = ordered[outer[0]].replace(kind=LoopKind.PARALLEL)
    elif parallel:
        inner = _vectors_in_parallel(inner)
    for loop in reversed(ordered[:-1]):
        inner = loop.replace(body=inner)
    return inner


def _vectors_in_parallel(stmt: Stmt) -> Stmt:
    """What `vectorize` made of a loop, with the loop over whole vectors parallel."""
    first = stmt.body[0] if isinstance(stmt, Seq) else stmt
    if not isinstance(first, For) or first.kind is not LoopKind.SERIAL or not isinstance(first.body, For):
        return stmt
    return replace(stmt, first, first.replace(kind=LoopKind.PARALLEL))


def vectorize(loop: For, lanes: int) -> Stmt:
    """A loop split into whole vectors and a scalar rest."""
    extent = extent_of(loop)
    if isinstance(extent, Const) and extent.value < lanes:
        for smaller in (lanes // 2, lanes // 4):
            if smaller > 1 and extent.value == smaller:
                return loop.replace(kind=LoopKind.VECTORIZE)
        return loop
    made, inner, _ = split(loop, lanes)
    return replace(made, inner, inner.replace(kind=LoopKind.VECTORIZE))


def _flatten(loops: list[For], body: Stmt) -> tuple[list[For], Stmt]:
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
        return _is_shorter(loop, lanes) or cost >= lanes * len(group), cost

    return min(reversed(loops), key=rank)


STRIP = 2
"""Vectors that are stored side by side where lanes stride over what they load: a cache line, mostly."""

FEWEST = 16
"""The fewest elements side by side that are worth coming back to."""

NARROWEST = 4
"""The fewest lanes of a vector."""


def _crossed(loops: list[For], best: For, lanes: int) -> For | None:
    """The loop along which elements lie side by side that the lanes of `best` stride over; None where there is none, or
    one that is too short."""
    if _is_shorter(best, lanes):
        return None
    strided = [a for a in moving_accesses(loops[-1]) if step(a, best.var) not in (0, 1)]
    others = [loop for loop in loops if loop is not best and not _is_shorter(loop, FEWEST)]
    return next((loop for loop in others if any(step(a, loop.var) == 1 for a in strided)), None)


def _is_shorter(loop: For, least: int) -> bool:
    extent = extent_of(loop)
    return isinstance(extent, Const) and extent.value < least


def _strips(loop: For, vectors: int, lanes: int) -> Stmt:
    """A loop around another one cut into strips of some vectors, which come inside that; what is left in narrower
    ones."""
    made, strip, rest = split(loop, vectors * lanes)
    if rest is not made:
        inside, copies = jam(strip)
        for copy in copies:
            whole = vectorize(copy, lanes)
            inside = replace(inside, copy, whole.replace(kind=LoopKind.UNROLL) if isinstance(whole, For) else whole)
        made = replace(made, strip, inside)
    if rest is None or (vectors == 1 and lanes <= NARROWEST):
        return made
    narrower = _strips(rest, 1, lanes) if vectors > 1 else _strips(rest, 1, lanes // 2)
    return narrower if rest is made else replace(made, rest, narrower)
