"""Sums of many terms to one place: how long the parts are that threads share; `sum_in_parts` makes them.

The parts depend on sizes alone, so that a result is the same for any number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.expr.nodes import Const
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import blocks, loops_around
from tilewright.loops.nodes import For
from tilewright.plan.price.sizes import USUAL
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.schedule import Schedule

PART = 1 << 14
"""The fewest terms of a part: a few microseconds, several times what a fork costs."""

MOST_PARTS = 64
"""The most parts of a sum whose size is known: enough for threads to end at the same time."""


FEW = 16
"""Fewer iterations than this may leave threads without work, or some with much more than others. So many parts are
enough where each part costs a buffer."""


@dataclass(frozen=True, slots=True)
class Part:
    """A sum in parts: the block, the loop around it that is cut, by its number, and how many iterations are a part."""

    block: str
    loop: int
    terms: int


def choose_parts(s: Schedule) -> tuple[Part, ...]:
    """The parts of long sums to one place. What cannot be proved to be one has none."""
    found: list[Part] = []
    trial = s.copy()
    for block in blocks(s.func.body):
        around = loops_around(s.func.body, block) if block.reduce else []
        summed = [loop for loop in around if loop.var in summed_loops(block)]
        if summed and all(loop in summed or extent_of(loop) == Const(1, loop.var.dtype) for loop in around):
            chosen = _cut_at(summed)
            if chosen is not None:
                loop, terms = chosen
                if trial.attempt(trial.sum_in_parts, block.name, loop.var, terms) is not None:
                    found.append(Part(block.name, around.index(loop), terms))
    return tuple(found)


def _cut_at(loops: list[For]) -> tuple[For, int] | None:
    """The loop that is cut, and how many of its iterations are a part; None for a sum that is too short."""
    sizes = [_size(loop) for loop in loops]
    first = next((n for n, size in enumerate(sizes) if size is None or size >= FEW), None)
    if first is None:
        return None
    size, each = sizes[first], math.prod(USUAL if s is None else s for s in sizes) // (sizes[first] or USUAL)
    least = math.ceil(PART / max(each, 1))
    if size is None:
        return loops[first], least
    parts = min(size * each // PART, size, MOST_PARTS)
    if parts < 2:
        return None
    part = math.ceil(size / parts)
    return loops[first], next((p for p in range(part, min(2 * part, size // 2 + 1)) if size % p == 0), part)


def _size(loop: For) -> int | None:
    extent = extent_of(loop)
    return int(extent.value) if isinstance(extent, Const) else None
