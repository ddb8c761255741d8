"""sum_in_lanes: accumulations over contiguous data run in several lanes, added up at the end.

    for i in 0..n: { m = -inf; for k: m = max(m, x[i, k]); s = 0; for k: s = s + exp(x[i, k] - m); for k: y[i, k] = … }

becomes a parallel loop over rows, in which each pass over a row is vectorized: sums by `reduce_in_lanes` (reduce.py),
points by `points_in_vectors` (points.py).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile

from tilewright.analysis.movement import moving_accesses, step
from tilewright.expr.nodes import Add, Const, Expr, Mul, Var, const
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import blocks, loads, loops_inside, replace, statements
from tilewright.loops.nodes import For, Function, LoopKind, Seq, Stmt, Store, seq
from tilewright.schedule.find import perfect_nest
from tilewright.schedule.nests import extent_of, fuse, has_branches, is_spatial
from tilewright.schedule.points import points_in_vectors
from tilewright.schedule.reduce import Summed, accumulation, reduce_in_blocks, reduce_in_lanes, summed_in
from tilewright.schedule.step import Step, refusal
from tilewright.schedule.top_nests import outermost, require_apart, require_lanes, require_plain, top_nest, with_nest

CHAINS, ADD_LATENCY = 4, 3
"""Vectors of partial results, enough to hide the cycles of an addition."""


def sum_in_lanes(function: Function, loop: Var, *, lanes: int, blocks_of: int = 0) -> Step:
    """A nest with accumulations runs row by row: its outermost loop in parallel, each sum over contiguous data in
    vectors of partial results, each pass over points in vectors. Neighbouring loops of a sum that together run over one
    piece of memory become one before. With `blocks_of`, sums of more than twice so many floats are added up in blocks
    of so many terms, which keeps rounding errors small. Returns the outermost loop, where that holds all of the nest.

    for i in 0..n: block t.init: t[i] = 0.0; for k in 0..m: block t(reduce vk = k): t[i] += x[i, vk]
              =>      parallel i in 0..n: block t.init: t[i] = 0.0
                        vectorize l in 0..8: lanes[l] = 0.0
                        for ko in 0..m//8: vectorize l in 0..8: lanes[l] += x[i, ko*8 + l]
                        …the lanes are added up, and what is left over is added one by one

    Legal where each reducing block is an accumulation by an operator whose order does not matter, without an `init`.
    """
    nest = top_nest(function, loop, what := f"cannot sum nest {loop.name} in lanes")
    require_lanes(function, nest, lanes, what)
    require_sums(function, nest, what)
    evidence = require_apart(function, nest, [s for s in loops_inside(nest) if is_spatial(s)], what)
    made = rows_in_lanes(prepared(nest, blocks_of), lanes)
    return Step(with_nest(function, nest, made), outermost(made), (*evidence, ANY_ORDER))


ANY_ORDER = "its sums may be added up in any order"


def require_sums(function: Function, nest: For, what: str) -> None:
    """The error `what` unless the blocks of a nest are plain stores, and those that reduce accumulations."""
    require_plain(function, nest, what)
    for block in blocks(nest):
        if has_branches(nest) or not isinstance(block.body, Store):
            raise refusal(function, what, block, why=f"block {block.name} is no plain store", part=block.name)
        if block.reduce and accumulation(block) is None:
            why = f"block {block.name} is no accumulation by one operator"
            fix = f'decompose_reduction("{block.name}", …) first' if block.init is not None else None
            raise refusal(function, what, block, why=why, fix=fix, part=block.name)


@lru_cache(maxsize=1 << 4)
def prepared(nest: Stmt, block: int) -> Stmt:
    """The nest with sums over one piece of memory in one loop, and long ones in blocks where asked. It is kept: who
    chooses a tile asks before the step that makes it."""
    nest = whole_rows(nest)
    return block_long_sums(nest, block) if block else nest


def rows_in_lanes(nest: Stmt, lanes: int) -> Stmt:
    """The nest with its outermost loop parallel and, inside, each reduce loop over contiguous loads run in lanes and
    each nest of points vectorized."""
    loops, body = perfect_nest(nest)
    spatial = list(takewhile(is_spatial, loops))
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
        return points_in_vectors(stmt, lanes, parallel=False)
    for loop in [s for s in statements(stmt) if isinstance(s, For)]:
        sums = summed_in(loop)
        if not sums or not reduces_contiguously(loop, lanes):
            continue
        made = reduce_in_lanes(loop, _width(loop, lanes, len(sums)))
        if made is not None:
            stmt = replace(stmt, loop, made)
    return stmt


def block_long_sums(nest: Stmt, block: int) -> Stmt:
    """The nest with long sums of floats added up in blocks. Products of two tensors are left alone: tiles of a
    contraction need the registers."""
    for loop in [s for s in statements(nest) if isinstance(s, For)]:
        extent = extent_of(loop)
        if isinstance(extent, Const) and extent.value < 2 * block:
            continue
        if any(_rounds(s) and not _is_product(s.term) for s in summed_in(loop)):
            nest = replace(nest, loop, reduce_in_blocks(loop, block) or loop)
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
