"""Accumulations over contiguous data: the innermost reduce loop runs in several lanes, added up at the end."""

from __future__ import annotations

from tilewright.expr.nodes import Add, Const, Expr, Mul
from tilewright.loops.edit import loads, replace, statements
from tilewright.loops.nodes import Block, For, LoopKind, Seq, Stmt, seq
from tilewright.plan.accesses import moving_accesses, step
from tilewright.plan.spatial import schedule_points
from tilewright.schedule.find import perfect_nest
from tilewright.schedule.nests import extent_of, is_spatial
from tilewright.schedule.reduce import accumulation, reduce_in_blocks, reduce_in_lanes

CHAINS = 4
"""Vectors of partial results: enough to hide the latency of an addition."""


def schedule_rows(nest: Stmt, lanes: int) -> Stmt:
    """The nest with its outermost loop parallel and, inside, each reduce loop over contiguous loads run in lanes and
    each nest of points vectorized."""
    loops, body = perfect_nest(nest)
    spatial = [loop for loop in loops if is_spatial(loop)]
    inner: Stmt = loops[len(spatial)] if len(spatial) < len(loops) else body
    parts = inner.body if isinstance(inner, Seq) else (inner,)
    made: Stmt = seq(*(_pass(part, lanes) for part in parts))
    for loop in reversed(spatial):
        kind = LoopKind.PARALLEL if loop is spatial[0] else loop.kind
        made = loop.replace(body=made, kind=kind)
    return made


def _pass(stmt: Stmt, lanes: int) -> Stmt:
    """One pass over a row: points in vectors, a reduction in lanes."""
    if not isinstance(stmt, For):
        return stmt
    if all(is_spatial(s) for s in statements(stmt) if isinstance(s, For)):
        return schedule_points(stmt, lanes, parallel=False)
    for loop in [s for s in statements(stmt) if isinstance(s, For) and isinstance(s.body, Block)]:
        if accumulation(loop.body) is None or not reduces_contiguously(loop, lanes):  # type: ignore[arg-type]
            continue
        made = reduce_in_lanes(loop, _width(loop, lanes))
        if made is not None:
            stmt = replace(stmt, loop, made)
    return stmt


SUM_BLOCK = 32
"""Terms that are added up by themselves in a long sum: few enough that rounding errors stay small."""


def block_long_sums(nest: Stmt) -> Stmt:
    """The nest with long sums of floats added up in blocks. Products of two tensors are left alone: tiles of a
    contraction need the registers."""
    for loop in [s for s in statements(nest) if isinstance(s, For) and isinstance(s.body, Block)]:
        found = accumulation(loop.body)  # type: ignore[arg-type]
        extent = extent_of(loop)
        if found is None or not loop.body.reduce or found[0] is not Add or _is_product(found[2]):  # type: ignore[attr-defined]
            continue
        if found[1].buffer.dtype.is_float and (not isinstance(extent, Const) or extent.value >= 2 * SUM_BLOCK):
            nest = replace(nest, loop, reduce_in_blocks(loop, SUM_BLOCK) or loop)
    return nest


def _is_product(term: Expr) -> bool:
    return isinstance(term, Mul) and len({load.buffer for load in loads(term)}) > 1


def reduces_contiguously(body: Stmt, lanes: int) -> bool:
    """Whether every accumulation inside runs over contiguous data, and enough of it, in its innermost loop."""
    inner = [s for s in statements(body) if isinstance(s, For) and isinstance(s.body, Block)]
    found = [s for s in inner if accumulation(s.body) is not None and s.body.reduce]  # type: ignore[arg-type, attr-defined]
    return bool(found) and all(_fills(s, lanes) and is_contiguous(s) for s in found)


def _fills(loop: For, lanes: int) -> bool:
    extent = extent_of(loop)
    return not isinstance(extent, Const) or extent.value >= lanes


def is_contiguous(loop: For) -> bool:
    """Whether every load inside moves by one element or stays, and at least one moves."""
    steps = [step(a, loop.var) for a in moving_accesses(loop) if not a.is_store]
    return all(s in (0, 1) for s in steps) and 1 in steps


def _width(loop: For, lanes: int) -> int:
    extent = extent_of(loop)
    if isinstance(extent, Const):
        for chains in (CHAINS, 2, 1):
            if extent.value >= lanes * chains:
                return lanes * chains
    return lanes if isinstance(extent, Const) else lanes * CHAINS
