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
from tilewright.expr.nodes import Const, Mul, Var
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import loads, loops_inside, replace
from tilewright.loops.nodes import For, LoopKind, Seq, Stmt, seq
from tilewright.plan.nests.points import Points, apply_points, choose_points, has, holds_points, is_one_piece
from tilewright.schedule.facts.iterations import Summed, is_spatial, size_of, summed_in
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

    @property
    def loops(self) -> list[For]:
        """All loops, from outside and in program order."""
        return [loop for root in self.roots for loop in loops_inside(find_loop(self.s.func, root))]

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
        if isinstance(inner, For) and _is_one_sum(outer, inner):
            more, made = fuse_terms(replace(nest, outer, fused(outer, inner)))
            return (number, *more), made
    return (), nest


def _is_one_sum(outer: For, inner: For) -> bool:
    """Whether both loops count terms of the same sums, and an iteration of the outer one moves as far as all of the
    inner one."""
    size, sums = size_of(inner), summed_in(inner)
    plain = outer.kind is inner.kind is LoopKind.SERIAL and inner.begin == Const(0, inner.var.dtype)
    if not plain or not sums or size is None or any(not {outer.var, inner.var} <= summed_loops(s.block) for s in sums):
        return False
    return is_one_piece([a for a in moving_accesses(inner) if not a.is_store], outer.var, inner.var, size)


def block_terms(nest: Stmt, size: int) -> tuple[tuple[int, ...], Stmt]:
    """The loops with long sums of floats, which are added up in blocks; and the nest then. Products of two tensors are
    left alone: tiles of a contraction need the registers."""
    found: list[int] = []
    made = nest
    for number, loop in enumerate(loops_inside(nest)):
        sums = summed_in(loop) if has(size_of(loop), 2 * size) else ()
        if any(map(_rounds_often, sums)):
            found.append(number)
            rest = left_over(loop, size)
            parts = (in_blocks(loop, sums, size)[0], *(() if rest is None else (rest,)))
            made = replace(made, loop, seq(*parts))
    return tuple(found), made


def _rounds_often(s: Summed) -> bool:
    """Whether each addition of a sum rounds, and its terms are no products of two tensors."""
    rounds = bool(s.block.reduce) and s.op.__name__ == "Add" and s.buffer.dtype.is_float
    return rounds and not (isinstance(s.term, Mul) and len({load.buffer for load in loads(s.term)}) > 1)


def apply_terms(region: Region, chosen: Terms) -> None:
    """The steps of a choice."""
    s = region.s
    for number in chosen.fused:
        outer = region.loops[number]
        assert isinstance(outer.body, For)
        region.became(outer.var, [s.fuse(outer.var, outer.body.var)])
    for number in reversed(chosen.blocked):
        loop = region.loops[number].var
        outer_loop, _, rest = s.sum_in_blocks(loop, chosen.size)
        region.became(loop, [outer_loop, rest])


def reduces_contiguously(body: Stmt, lanes: int) -> bool:
    """Whether every accumulation inside runs over contiguous data, and enough of it, in its innermost loop."""
    found = [s for s in loops_inside(body) if any(made.block.reduce for made in summed_in(s))]
    return bool(found) and all(has(size_of(s), lanes) and _is_contiguous(s) for s in found)


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
        if not all(map(is_spatial, inside)):
            sums = {loop: len(summed_in(loop)) for loop in inside}
            chosen = [loop for loop in inside if sums[loop] and reduces_contiguously(loop, lanes)]
            found += [Pass(numbers[v], lanes=_width(size_of(v), lanes, sums[v], target)) for v in chosen]
        elif holds_points(part):
            found.append(Pass(numbers[inside[0]], choose_points(part, target, lanes)))
    return Rows(tuple(found), bool(spatial))


def _width(size: int | None, lanes: int, sums: int, target: Target) -> int:
    """The partial results of each sum that take the fewest steps, one addition after the other: of vectors, of what
    does not fill them, and of halves until one is left. As many vectors as hide the latency of an addition, of all
    sums together, run side by side."""
    most = max(chains(target) // sums, 1)
    if size is None:
        return lanes * most
    offered = [lanes * n for n in {most, min(most, 2), 1} if size >= lanes * n]
    return min(offered, key=lambda width: sum(divmod(size, width)) + width.bit_length(), default=lanes)


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
        loop = region.loops[one.loop]
        made = s.sum_in_lanes(loop.var, one.lanes) if one.points is None else (apply_points(s, loop, one.points),)
        region.became(loop.var, made)
    alone = chosen.shared or not chosen.passes
    return region.roots[0] if alone and len(region.roots) == 1 else None
