"""What computing points takes: instructions on vectors by the rates of a core."""

from __future__ import annotations

import math
from functools import lru_cache

from tilewright.expr.work import Work
from tilewright.target import Target

_NOTHING = Work()


@lru_cache(maxsize=1 << 10)
def vector_cycles(work: Work, target: Target, lanes: int) -> float:
    """Cycles for a vector of `lanes` results. Quotients and roots are stated of f32; wider lanes are fewer."""
    core = target.core
    cycles = (work.plain + work.chained * core.chain) * core.add_cycles
    cycles += work.divides * core.divide_cycles + work.roots * core.sqrt_cycles
    cycles += work.shuffles * core.shuffle2_cycles + work.gathers * core.gather_cycles
    return cycles + work.steps * core.fma_latency * lanes / 4


def transpose_cycles(elements: float, lanes: int, target: Target) -> float:
    """Cycles to transpose so many elements in squares of vectors: a shuffle of two vectors for each halving of a
    square, and both sides are stored and loaded."""
    core = target.core
    halvings = max(lanes - 1, 0).bit_length()
    return elements / max(lanes, 1) * (halvings * core.shuffle2_cycles + 2 * (core.load_cycles + core.store_cycles))


def copy_cycles(elements: float, lanes: int, target: Target, work: Work = _NOTHING, *, aligned: bool = False) -> float:
    """Cycles to load so many elements, as many at a time as `lanes`, to compute on each, and to store the results;
    where vectors are not `aligned`, both ends lie across lines."""
    core = target.core
    moved = (1 if aligned else 2) * (core.load_cycles + core.store_cycles)
    return elements / max(lanes, 1) * (moved + vector_cycles(work, target, lanes))


def chains(target: Target) -> int:
    """How many vectors are added to in turn, so that no addition waits for the one before: each has two loads to do
    meanwhile."""
    core = target.core
    return 1 << round(math.log2(max(core.fma_latency / (2 * core.load_cycles), 1)))
