"""Sums over two parts of one tensor: each gets a name of its own.

    y[vi, vj] += x[vk, vi] * x[vk, vj]      =>      y[vi, vj] += x[vk, vi] * x.view[vk, vj]

Templates pack one operand, and read the other where it lies.
"""

from __future__ import annotations

from tilewright.analysis.iterations import accumulation
from tilewright.loops.edit import blocks, loads_of
from tilewright.schedule.schedule import Schedule


def separate_operands(s: Schedule) -> None:
    """The step for every sum whose terms are made of two different elements of a tensor."""
    for block in [b for b in blocks(s.func.body) if b.reduce]:
        found = accumulation(block.replace(init=None, where=None))
        loaded = [] if found is None else list(dict.fromkeys(loads_of(found.term)))
        if len(loaded) == 2 and loaded[0].buffer is loaded[1].buffer:
            s.attempt(s.view, block.name, loaded[0].buffer.name)
