"""What becomes of loops and sums before nests are scheduled.

cache_write            accumulations into an argument run in a local buffer
sum_in_parts           long sums to one place, for threads to share: the parts are part of the choice
decompose_reductions   sums begin in blocks of their own
join_sums              sums that read the same run in one loop
fuse                   loops over points or terms that lie in one piece of memory become one
sum_in_blocks          long sums of floats that are not added up in lanes, so that rounding errors stay small

The parts depend on sizes and the target alone, so that a result is the same for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tilewright.analysis.iterations import Summed, is_schedulable, summed_in
from tilewright.analysis.movement import are_one_piece, has, reduces_contiguously
from tilewright.analysis.sizes import FEW
from tilewright.expr import dtypes
from tilewright.expr.nodes import Mul, Var
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import blocks, loads, loops_around, loops_inside, stored_buffers
from tilewright.loops.nodes import For, Stmt, Store
from tilewright.plan.price.points import iterations
from tilewright.report.errors import UserError
from tilewright.schedule.find import find_block, nests
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

SUM_BLOCK = 32
"""Terms that are added up by themselves in a long sum: few enough that rounding errors stay small."""


@dataclass(frozen=True, slots=True)
class Part:
    """A sum in parts: the block, the loop around it that is cut, by its number, and how many iterations are a part."""

    block: str
    loop: int
    terms: int


def accumulate_locally(s: Schedule) -> None:
    """Accumulations straight into an argument get a local buffer."""
    for nest in nests(s.func):
        inside = blocks(nest)
        if len(inside) == 1 and inside[0].reduce and isinstance(inside[0].body, Store):
            buffer, points = inside[0].body.buffer, tuple(a.var for a in inside[0].spatial)
            if buffer.scope is Scope.ARGUMENT and stored_buffers(nest) == {buffer} and inside[0].body.indices == points:
                with suppress(UserError):
                    s.cache_write(inside[0].name)


def choose_parts(s: Schedule, target: Target) -> tuple[Part, ...]:
    """The parts of long sums to one place. What cannot be proved to be one has none."""
    found: list[Part] = []
    trial = s.copy()
    for block in blocks(s.func.body):
        around = loops_around(s.func.body, block) if block.reduce else []
        summed = [loop for loop in around if loop.var in summed_loops(block)]
        cut = next((loop for loop in summed if has(loop.size, FEW)), None)
        if cut is not None and all(loop in summed or loop.size == 1 for loop in around):
            terms = _part_of(cut, math.prod(iterations(loop) for loop in summed if loop is not cut), target)
            if terms and trial.attempt(trial.sum_in_parts, block.name, cut.var, terms) is not None:
                found.append(Part(block.name, around.index(cut), terms))
    return tuple(found)


def _part_of(loop: For, each: int, target: Target) -> int:
    """How many iterations of a loop, of so many terms each, are a part: at least as many as memory delivers the terms
    of while threads fork and join twice, and in a sum of known size no more parts than leave few threads without work
    twice over; 0 where that is all of the loop."""
    delivered = 2 * target.core.fork_seconds * target.peaks.memory_gbs * 1e9 / dtypes.f32.bytes
    size, least = loop.size, math.ceil(delivered / max(each, 1))
    if size is None:
        return least
    parts = min(size // least, 2 * FEW)
    part = math.ceil(size / max(parts, 1))
    whole = next((p for p in range(part, min(2 * part, size // 2 + 1)) if size % p == 0), part)
    return whole if parts > 1 else 0


def prepare_sums(s: Schedule, parts: Sequence[Part]) -> None:
    """The nests of a program in the loops that they need, with these sums in parts, begun in blocks of their own."""
    for part in parts:
        around = loops_around(s.func.body, find_block(s.func, part.block))
        s.sum_in_parts(part.block, around[part.loop].var, part.terms)
    s.decompose_reductions()
    s.join_sums()
    for number, nest in reversed(list(enumerate(nests(s.func)))):
        if isinstance(nest, For) and is_schedulable(nest):
            s.attempt(join_pieces, s, number)
            s.attempt(_sum_in_blocks, s, number)


def join_pieces(s: Schedule, number: int) -> None:
    """Loops of a nest, by its number, become one where they run over points, or terms, in one piece of memory. An inner
    loop of a dynamic extent stays by itself: that quotients and remainders by what is dynamic are one place each cannot
    be proved."""
    pieces: dict[Stmt, tuple[For, int | None, Var]] = {}
    for loop in reversed(loops_inside(nests(s.func)[number])):
        pieces[loop] = loop, loop.size, loop.var
        if loop.body in pieces:
            last, size, joined = pieces[loop.body]
            if size is not None and are_one_piece(loop, last, size):
                pieces[loop] = last, None if loop.size is None else size * loop.size, s.fuse(loop.var, joined)


def _sum_in_blocks(s: Schedule, number: int) -> None:
    """Long sums of a nest that are not contiguous are added up in blocks."""
    nest = nests(s.func)[number]
    if not reduces_contiguously(nest):
        for loop in reversed(loops_inside(nest)):
            if has(loop.size, 2 * SUM_BLOCK) and any(map(_rounds_often, summed_in(loop))):
                s.sum_in_blocks(loop.var, SUM_BLOCK)


def _rounds_often(s: Summed) -> bool:
    """Whether each addition of a sum rounds, and its terms are no products of two tensors: tiles of a contraction need
    the registers."""
    rounds = bool(s.block.reduce) and s.op.__name__ == "Add" and s.buffer.dtype.is_float
    return rounds and not (isinstance(s.term, Mul) and len({load.buffer for load in loads(s.term)}) > 1)
