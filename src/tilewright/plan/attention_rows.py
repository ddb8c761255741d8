"""Steps of rows, in lanes: maps in vectors, reductions as vectors of partial results, which are halved at the end.

for k in 0..n: t = max(t, s[k])      =>      for ko: p[0..32] = max(p, s[ko*32 ..])
                                             p16 = max(p[0..16], p[16..32]), p8 = …, down to one element
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.nodes import Var
from tilewright.loops.edit import allocations, blocks
from tilewright.plan.register_tiles import known
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.nests import extent_of
from tilewright.schedule.schedule import Schedule

CHAINS = 4
"""Vectors of partial results: enough to hide the cycles of an addition."""


def in_lanes(s: Schedule, names: Sequence[str], lanes: int) -> None:
    """The innermost loops of blocks of one row each, in vectors."""
    for name in names:
        block = find_block(s.func, name)
        loop = s.get_loops(name)[-1]
        if block.reduce:
            _partial(s, name, loop, lanes)
        elif blocks(find_loop(s.func, loop)) == [block]:
            vectors, lane = s.split(loop, lanes, tail="mask")
            s.vectorize(lane)
            _whole_apart(s, name, vectors)


def _partial(s: Schedule, name: str, loop: Var, lanes: int) -> None:
    """A reduction of a row as one of vectors."""
    extent = known(extent_of(find_loop(s.func, loop)))
    width = lanes
    while width < CHAINS * lanes and 2 * width <= extent:
        width *= 2
    outer, inner = s.split(loop, width, tail="mask")
    part = _factor(s, name, inner, width, lanes)
    _whole_apart(s, part, outer)
    while width > 2:
        width //= 2
        outer, inner = s.split(s.get_loops(name)[-1], width)
        _factor(s, name, inner, width, lanes)
        s.unroll(outer)
    s.unroll(s.get_loops(name)[-1])


def _factor(s: Schedule, name: str, loop: Var, width: int, lanes: int) -> str:
    """Partial results for each iteration of a loop, in registers and in vectors. Returns the block's name."""
    before = {b.name for b in allocations(s.func.body)}
    part: str = s.rfactor(name, loop)[0]
    (made,) = (b.name for b in allocations(s.func.body) if b.name not in before)
    inner = s.get_loops(part)[-1]
    if width > lanes:
        vectors, inner = s.split(inner, lanes)
        s.unroll(vectors)
    s.vectorize(inner)
    s.set_scope(made, "register")
    return part


def _whole_apart(s: Schedule, name: str, loop: Var) -> None:
    """Iterations in which no condition of a block fails, in a loop of their own."""
    if find_block(s.func, name).where is not None and known(extent_of(find_loop(s.func, loop))) > 1:
        if find_block(s.func, name).init is not None:
            s.decompose_reduction(name, loop)
        s.partition(loop)
