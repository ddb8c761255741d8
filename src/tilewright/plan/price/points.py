"""What computing points takes: instructions on vectors by the rates of a core."""

from __future__ import annotations

from functools import lru_cache

from tilewright.expr.work import Work
from tilewright.target import Target


@lru_cache(maxsize=1 << 10)
def vector_cycles(work: Work, target: Target, lanes: int) -> float:
    """Cycles for a vector of `lanes` results. Quotients and roots are stated of f32; wider lanes are fewer."""
    core = target.core
    cycles = (work.plain + work.chained * core.chain) * core.add_cycles
    cycles += work.divides * core.divide_cycles + work.roots * core.sqrt_cycles
    cycles += work.shuffles * core.shuffle2_cycles + work.gathers * core.gather_cycles
    return cycles + work.steps * core.fma_latency * lanes / 4


def transpose_cycles(elements: float, target: Target, bits: int = 32) -> float:
    """Cycles to transpose so many elements, a square of vectors at a time: each vector is loaded, permuted once for
    each halving of its lanes, and stored."""
    core, lanes = target.core, max(target.vector_bits // bits, 1)
    each = core.load_cycles + core.store_cycles + lanes.bit_length() * core.shuffle2_cycles
    return elements / lanes * each


def copy_cycles(elements: float, target: Target, work: Work, bits: int = 32) -> float:
    """Cycles to load so many elements, to compute on each, and to store the results."""
    core, lanes = target.core, max(target.vector_bits // bits, 1)
    return elements / lanes * (core.load_cycles + core.store_cycles + vector_cycles(work, target, lanes))
