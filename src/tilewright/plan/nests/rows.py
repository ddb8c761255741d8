"""How a nest with sums runs row by row: each sum over contiguous data in lanes, each pass over points in vectors.

    for i in 0..n: { m = -inf; for k: m = max(m, x[i, k]); s = 0; for k: s = s + exp(x[i, k] - m); for k: y[i, k] = … }

becomes a parallel loop over rows, in which each pass over a row is vectorized.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from tilewright.analysis.movement import moving_accesses, step
from tilewright.expr.nodes import Const, Expr, Mul, Var
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import loads, loops_inside, replace
from tilewright.loops.nodes import For, LoopKind, Seq, Stmt, seq
from tilewright.plan.nests.points import Points, apply_points, choose_points, has, holds_points
from tilewright.schedule.facts.accumulations import Summed, summed_in
from tilewright.schedule.facts.iterations import extent_of, is_spatial
from tilewright.schedule.find import find_loop, perfect_nest
from tilewright.schedule.loops.rearrange import fused
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sums.lanes import in_blocks, left_over
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Pass:
    """How a loop of a row runs, which has a number among the loops of the nest: as points, or its sums in lanes."""

    loop: int
    points: Points | None = None
    lanes: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """The passes over a row, and whether threads share the rows."""

    passes: tuple[Pass, ...]
    shared: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """What becomes of the loops over terms before all else, by their numbers: those of `fused` become one with the loop
    inside them, one after the other, and the sums of those in `blocked` are added up in blocks of `size` terms."""

    fused: tuple[int, ...] = ()
    blocked: tuple[int, ...] = ()
    size: int = 0


class Region:
    """The part of a schedule's program that a nest has become: some statements in a row, by their outermost loops."""

    def __init__(self, s: Schedule, nest: For) -> None:
        self.s = s
        self.roots: list[Var] = [nest.var]

    def loop(self, number: int) -> For:
        """The loop of this number, from outside and in program order."""
        return [loop for root in self.roots for loop in loops_inside(find_loop(self.s.func, root))][number]

    def became(self, loop: Var, made: Sequence[Var | None]) -> None:
        """A loop was replaced by others."""
        if loop in self.roots:
            n = self.roots.index(loop)
            self.roots[n : n + 1] = [v for v in made if v is not None]


def fuse_terms(nest: Stmt) -> tuple[tuple[int, ...], Stmt]:
    """The loops over terms that become one with the loop inside them, since together they run over what lies in one
    piece of memory; and the nest then."""
    for number, outer in enumerate(loops_inside(nest)):
        inner = outer.body
        sums = summed_in(inner) if isinstance(inner, For) and inner.begin == Const(0, inner.var.dtype) else ()
        if not sums or not isinstance(inner, For) or not _is_one_piece(outer, inner):
            continue
        if all({outer.var, inner.var} <= summed_loops(s.block) for s in sums):
            more, made = fuse_terms(replace(nest, outer, fused(outer, inner)))
            return (number, *more), made
    return (), nest


def _is_one_piece(outer: For, inner: For) -> bool:
    """Whether an iteration of the outer loop moves as far as all of the inner one."""
    extent = extent_of(inner)
    if not isinstance(extent, Const) or outer.kind is not LoopKind.SERIAL or inner.kind is not LoopKind.SERIAL:
        return False
    steps = [(step(a, outer.var), step(a, inner.var)) for a in moving_accesses(inner) if not a.is_store]
    return all(a is not None and b is not None and a == b * extent.value for a, b in steps)


def block_terms(nest: Stmt, size: int) -> tuple[tuple[int, ...], Stmt]:
    """The loops with long sums of floats, which are added up in blocks; and the nest then. Products of two tensors are
    left alone: tiles of a contraction need the registers."""
    found: list[int] = []
    made = nest
    for number, loop in enumerate(loops_inside(nest)):
        sums = summed_in(loop) if has(_size(loop), 2 * size) else ()
        if any(_rounds(s) and not _is_product(s.term) for s in sums):
            found.append(number)
            rest = left_over(loop, size)
            parts = (in_blocks(loop, sums, size)[0], *(() if rest is None else (rest,)))
            made = replace(made, loop, seq(*parts))
    return tuple(found), made


def _rounds(s: Summed) -> bool:
    return bool(s.block.reduce) and s.op.__name__ == "Add" and s.buffer.dtype.is_float


def _is_product(term: Expr) -> bool:
    return isinstance(term, Mul) and len({load.buffer for load in loads(term)}) > 1


def _size(loop: For) -> int | None:
    extent = extent_of(loop)
    return int(extent.value) if isinstance(extent, Const) else None


def apply_terms(region: Region, chosen: Terms) -> None:
    """The steps of a choice."""
    s = region.s
    for number in chosen.fused:
        outer = region.loop(number)
        assert isinstance(outer.body, For)
        region.became(outer.var, [s.fuse(outer.var, outer.body.var)])
    for number in reversed(chosen.blocked):
        loop = region.loop(number).var
        outer, _, rest = s.sum_in_blocks(loop, chosen.size)
        region.became(loop, [outer, rest])


def reduces_contiguously(body: Stmt, lanes: int) -> bool:
    """Whether every accumulation inside runs over contiguous data, and enough of it, in its innermost loop."""
    found = [s for s in loops_inside(body) if any(made.block.reduce for made in summed_in(s))]
    return bool(found) and all(has(_size(s), lanes) and _is_contiguous(s) for s in found)


def _is_contiguous(loop: For) -> bool:
    """Whether every load inside moves by one element or stays, and at least one moves."""
    steps = [step(a, loop.var) for a in moving_accesses(loop) if not a.is_store]
    return all(s in (0, 1) for s in steps) and 1 in steps


def choose_rows(nest: Stmt, lanes: int, target: Target) -> Rows:
    """Vectors for every pass over a row that has them."""
    loops, body = perfect_nest(nest)
    spatial = list(takewhile(is_spatial, loops))
    inner: Stmt = loops[len(spatial)] if len(spatial) < len(loops) else body
    numbers = {loop: n for n, loop in enumerate(loops_inside(nest))}
    found: list[Pass] = []
    for part in inner.body if isinstance(inner, Seq) else (inner,):
        inside = loops_inside(part)
        if inside and all(map(is_spatial, inside)):
            if holds_points(part):
                found.append(Pass(numbers[inside[0]], choose_points(part, target, lanes)))
            continue
        for loop in inside:
            sums = summed_in(loop)
            if sums and reduces_contiguously(loop, lanes):
                found.append(Pass(numbers[loop], lanes=_width(_size(loop), lanes, len(sums), target)))
    return Rows(tuple(found), bool(spatial))


def _width(size: int | None, lanes: int, sums: int, target: Target) -> int:
    """The partial results of each sum that take the fewest steps, one addition after the other: of vectors, of what
    does not fill them, and of halves until one is left. As many vectors as hide the latency of an addition, of all
    sums together, run side by side."""
    most = max(chains(target) // sums, 1)
    if size is None:
        return lanes * most

    def steps(width: int) -> int:
        whole, rest = divmod(size, width)
        return whole + rest + width.bit_length()

    return min((lanes * n for n in {most, min(most, 2), 1} if size >= lanes * n), key=steps, default=lanes)


def chains(target: Target) -> int:
    """How many vectors are added to in turn, so that no addition waits for the one before: each has two loads to do
    meanwhile."""
    core = target.core
    return 1 << round(math.log2(max(core.fma_latency / (2 * core.load_cycles), 1)))


def apply_rows(region: Region, chosen: Rows) -> Var | None:
    """The steps of a choice. Returns the outermost loop, where that holds all of the nest."""
    s = region.s
    if chosen.shared:
        s.parallel(region.roots[0])
    for one in reversed(chosen.passes):
        loop = region.loop(one.loop)
        if one.points is not None:
            region.became(loop.var, [apply_points(s, loop, one.points)])
        else:
            outer, rest = s.sum_in_lanes(loop.var, one.lanes)
            region.became(loop.var, [outer, rest])
    alone = chosen.shared or not chosen.passes
    return region.roots[0] if alone and len(region.roots) == 1 else None
