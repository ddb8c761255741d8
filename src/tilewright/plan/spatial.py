"""Nests of independent points: flattened where memory is contiguous, vectorized, marked parallel."""

from __future__ import annotations

from tilewright.expr.nodes import Const, const
from tilewright.loops.edit import replace
from tilewright.loops.nodes import For, LoopKind, Seq, Stmt
from tilewright.plan.accesses import moving_accesses, vector_cost
from tilewright.schedule.find import perfect_nest
from tilewright.schedule.nests import extent_of, flattens, fuse, is_spatial, split


def schedule_points(nest: Stmt, lanes: int, parallel: bool = True) -> Stmt:
    """The nest with its most contiguous loop vectorized and the outermost loop of several iterations parallel, if
    asked."""
    loops, body = perfect_nest(nest)
    if not loops or not all(is_spatial(loop) for loop in loops):
        return nest
    loops, body = _flatten(loops, body)
    best = _vector_loop(loops, lanes)
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
    """The loop that vectorizes cheapest; the innermost of equals; one that is too short for a vector only at last."""
    group = moving_accesses(loops[-1])

    def rank(loop: For) -> tuple[bool, float]:
        extent = extent_of(loop)
        short = isinstance(extent, Const) and extent.value < lanes
        return short, vector_cost(group, loop.var, lanes)

    return min(reversed(loops), key=rank)
