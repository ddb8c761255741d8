"""What instructions on vectors take: the work of an expression (expr/work.py) by the rates of a core."""

from __future__ import annotations

from functools import lru_cache

from tilewright.expr.work import Work

from .target import Target


@lru_cache(maxsize=1 << 10)
def vector_cycles(work: Work, target: Target, lanes: int) -> float:
    """Cycles for a vector of `lanes` results. Quotients and roots are stated of f32; wider lanes are fewer."""
    core = target.core
    cycles = (work.plain + work.chained * core.chain) * core.add_cycles
    cycles += work.divides * core.divide_cycles + work.roots * core.sqrt_cycles
    cycles += work.shuffles * core.shuffle2_cycles + work.gathers * core.gather_cycles
    return cycles + work.steps * core.fma_latency * lanes / 4
