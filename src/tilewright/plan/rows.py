"""Accumulations over contiguous data: the innermost reduce loop runs in several lanes, added up at the end."""

from __future__ import annotations

from tilewright.expr.nodes import Add, Const, Expr, Mul, const
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import loads, replace, statements
from tilewright.loops.nodes import Block, For, LoopKind, Seq, Stmt, seq
from tilewright.plan.accesses import moving_accesses, step
from tilewright.plan.spatial import schedule_points
from tilewright.schedule.find import perfect_nest
from tilewright.schedule.nests import extent_of, fuse, is_spatial
from tilewright.schedule.reduce import accumulation, reduce_in_blocks, reduce_in_lanes

CHAINS, ADD_LATENCY = 4, 3
"""Vectors of partial results, enough to hide the cycles of an addition."""


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
    """The partial results that take the fewest cycles: a step takes as long as an addition, what does not fill the
    lanes is added one by one, and at the end the lanes are halved until one is left."""
    extent = extent_of(loop)
    if not isinstance(extent, Const):
        return lanes * CHAINS

    def cycles(width: int) -> float:
        steps, rest = divmod(int(extent.value), width)
        return steps * max(ADD_LATENCY, width // lanes / 2) + ADD_LATENCY * (rest + width.bit_length() - 1)

    return min((lanes * n for n in (CHAINS, 2, 1) if extent.value >= lanes * n), key=cycles, default=lanes)


def whole_rows(nest: Stmt) -> Stmt:
    """The nest with neighbouring reduce loops as one, where together they run over what lies in one piece."""
    for outer in [s for s in statements(nest) if isinstance(s, For) and isinstance(s.body, For)]:
        inner = outer.body
        assert isinstance(inner, For)
        if not isinstance(inner.body, Block) or accumulation(inner.body) is None or inner.begin is not const(0):
            continue
        summed = summed_loops(inner.body)
        if {outer.var, inner.var} <= summed and _is_one_piece(outer, inner):
            return whole_rows(replace(nest, outer, fuse(outer)))
    return nest


def _is_one_piece(outer: For, inner: For) -> bool:
    """Whether an iteration of the outer loop moves as far as all of the inner one."""
    extent = extent_of(inner)
    if not isinstance(extent, Const) or outer.kind is not LoopKind.SERIAL or inner.kind is not LoopKind.SERIAL:
        return False
    steps = [(step(a, outer.var), step(a, inner.var)) for a in moving_accesses(inner) if not a.is_store]
    return all(a is not None and b is not None and a == b * extent.value for a, b in steps)
