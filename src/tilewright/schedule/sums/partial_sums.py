"""sum_in_parts: a long sum in parts, which threads share, each from the neutral element on.

for k in 0..n, l in 0..m:                       for ko in 0..ceil(n/C):
  block sum(reduce vk = k, reduce vl = l):        for ki in 0..min(C, n - ko*C), l in 0..m:
    init: t[] = 0.0                         =>      block sum.partial(…):
    t[] += x[vk, vl]                                  init: t.partial[vko] = 0.0
                                                      t.partial[vko] += x[vko*C + vki, vl]
                                                for ko2: t[] += t.partial[ko2]
"""

from __future__ import annotations

from tilewright.expr.nodes import Var
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import loops_around
from tilewright.loops.nodes import Function
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.loops.rearrange import reorder, split
from tilewright.schedule.step import Step, refusal
from tilewright.schedule.sums.rfactor import rfactor


def sum_in_parts(function: Function, block: str, loop: Var, part: int) -> Step:
    """A block accumulates parts of `part` iterations of a loop by themselves, in a loop over parts outside of its other
    reduce loops, and then the parts: split, rfactor and reorder in one step. Returns the names of the two blocks.

    for k in 0..n: block sum(reduce vk = k): t[] += x[vk]
              =>      for ko: for ki in 0..min(C, n - ko*C): block sum.partial: t.partial[ko] += x[ko*C + ki]
                      for ko2: block sum: t[] += t.partial[ko2]
    """
    found, cut = find_block(function, block), find_loop(function, loop)
    summed = summed_loops(found)
    if cut.var not in summed:
        names = ", ".join(s.var.name for s in loops_around(function.body, found) if s.var in summed) or "none"
        what = f"cannot sum block {block} in parts of loop {cut.var.name}"
        raise refusal(function, what, cut, why=f"{block} does not sum over it", fix=f"its sum runs over {names}")
    first = next((s.var for s in loops_around(function.body, found) if s.var in summed), cut.var)
    parted = split(function, cut.var, part, tail="clip")
    assert isinstance(parted.made, tuple)
    outer = parted.made[0]
    assert isinstance(outer, Var)
    made = rfactor(parted.function, block, outer)
    evidence = (*parted.evidence, *made.evidence)
    if cut.var is first:
        return Step(made.function, made.made, evidence)
    moved = reorder(made.function, outer, first)
    return Step(moved.function, made.made, (*evidence, *moved.evidence))
