"""Accumulations over contiguous data: the innermost reduce loop runs in several lanes, added up at the end."""

from __future__ import annotations

from tilewright.expr.nodes import Add, Const, Expr, Mul, const
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import loads, replace, statements
from tilewright.loops.nodes import For, LoopKind, Seq, Stmt, seq
from tilewright.plan.accesses import moving_accesses, step
from tilewright.plan.spatial import schedule_points
from tilewright.schedule.find import perfect_nest
from tilewright.schedule.nests import extent_of, fuse, is_spatial
from tilewright.schedule.reduce import Summed, reduce_in_blocks, reduce_in_lanes, summed_in

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
    for loop in [s for s in statements(stmt) if isinstance(s, For)]:
        sums = summed_in(loop)
        if not sums or not reduces_contiguously(loop, lanes):
            continue
        made = reduce_in_lanes(loop, _width(loop, lanes, len(sums)))
        if made is not None:
            stmt = replace(stmt, loop, made)
    return stmt


SUM_BLOCK = 32
"""Terms that are added up by themselves in a long sum: few enough that rounding errors stay small."""


def block_long_sums(nest: Stmt) -> Stmt:
    """The nest with long sums of floats added up in blocks. Products of two tensors are left alone: tiles of a
    contraction need the registers."""
    for loop in [s for s in statements(nest) if isinstance(s, For)]:
        extent = extent_of(loop)
        if isinstance(extent, Const) and extent.value < 2 * SUM_BLOCK:
            continue
        if any(_rounds(s) and not _is_product(s.term) for s in summed_in(loop)):
            nest = replace(nest, loop, reduce_in_blocks(loop, SUM_BLOCK) or loop)
    return nest


def _rounds(s: Summed) -> bool:
    return bool(s.block.reduce) and s.op is Add and s.buffer.dtype.is_float


def _is_product(term: Expr) -> bool:
    return isinstance(term, Mul) and len({load.buffer for load in loads(term)}) > 1


def reduces_contiguously(body: Stmt, lanes: int) -> bool:
    """Whether every accumulation inside runs over contiguous data, and enough of it, in its innermost loop."""
    inner = [s for s in statements(body) if isinstance(s, For)]
    found = [s for s in inner if any(made.block.reduce for made in summed_in(s))]
    return bool(found) and all(_fills(s, lanes) and is_contiguous(s) for s in found)


def _fills(loop: For, lanes: int) -> bool:
    extent = extent_of(loop)
    return not isinstance(extent, Const) or extent.value >= lanes


def is_contiguous(loop: For) -> bool:
    """Whether every load inside moves by one element or stays, and at least one moves."""
    steps = [step(a, loop.var) for a in moving_accesses(loop) if not a.is_store]
    return all(s in (0, 1) for s in steps) and 1 in steps


def _width(loop: For, lanes: int, sums: int) -> int:
    """The partial results of each sum that take the fewest cycles: a step takes as long as an addition, what does not
    fill the lanes is added one by one, and at the end the lanes are halved until one is left. Chains of several sums
    run side by side."""
    extent = extent_of(loop)
    chains = max(CHAINS // sums, 1)
    if not isinstance(extent, Const):
        return lanes * chains

    def cycles(width: int) -> float:
        steps, rest = divmod(int(extent.value), width)
        return steps * max(ADD_LATENCY, width // lanes / 2) + ADD_LATENCY * (rest + width.bit_length() - 1)

    return min((lanes * n for n in {chains, min(chains, 2), 1} if extent.value >= lanes * n), key=cycles, default=lanes)


def whole_rows(nest: Stmt) -> Stmt:
    """The nest with neighbouring reduce loops as one, where together they run over what lies in one piece."""
    for outer in [s for s in statements(nest) if isinstance(s, For) and isinstance(s.body, For)]:
        inner = outer.body
        assert isinstance(inner, For)
        sums = summed_in(inner) if inner.begin is const(0) else ()
        together = all({outer.var, inner.var} <= summed_loops(s.block) for s in sums)
        if sums and together and _is_one_piece(outer, inner):
            return whole_rows(replace(nest, outer, fuse(outer)))
    return nest


def _is_one_piece(outer: For, inner: For) -> bool:
    """Whether an iteration of the outer loop moves as far as all of the inner one."""
    extent = extent_of(inner)
    if not isinstance(extent, Const) or outer.kind is not LoopKind.SERIAL or inner.kind is not LoopKind.SERIAL:
        return False
    steps = [(step(a, outer.var), step(a, inner.var)) for a in moving_accesses(inner) if not a.is_store]
    return all(a is not None and b is not None and a == b * extent.value for a, b in steps)
