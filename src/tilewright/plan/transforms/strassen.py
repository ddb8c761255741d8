"""The schedules of the sums around Strassen's products: vectors along rows, all sums of a place at once.

for rows, vectors of columns: s[0..7] = the sums of four blocks             input
for rows, vectors of columns: y of all blocks = f(the sums of s[0..7])      output and its epilogue
"""

from __future__ import annotations

from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks, loads
from tilewright.loops.nodes import Function
from tilewright.plan.price.sizes import known
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def schedule_strassen(function: Function, target: Target) -> Schedule | None:
    """The schedule of a kernel with one of the sums; None for any other."""
    names = {b.name for b in blocks(function.body)}
    if "strassen_input" in names:
        return _input(Schedule(function), target)
    if "strassen_output" not in names:
        return None
    half = known(next(loads(find_block(function, "strassen_output"))).buffer.shape[-1])
    lanes = next((n for n in _powers(target.lanes(f32)) if half % n == 0), 1)
    return _output(Schedule(function), half, lanes) if lanes > 1 else None


def _input(s: Schedule, target: Target) -> Schedule:
    """The steps for the sums of the first factor: each block is read once."""
    p, *outer, i, k = s.get_loops("strassen_input")
    half = known(s.func.params[-1].shape[-1])
    vectors, lane = s.split(k, next(n for n in _powers(target.lanes(f32)) if n <= half), tail="mask")
    s.reorder(*outer, i, vectors, p, lane)
    s.vectorize(lane)
    s.unroll(p)
    s.parallel(_as_one(s, [*outer, i]))
    return s


def _output(s: Schedule, half: int, lanes: int) -> Schedule:
    """The steps for the sums of products and what reads them: each product is read once."""
    s.inline_all()
    (block,) = blocks(s.func.body)
    *outer, i, j = s.get_loops(block.name)
    pairs, row = s.split(i, 2, tail="mask")
    side, j = s.split(j, half, tail="mask")
    vectors, lane = s.split(j, lanes)
    s.reorder(*outer, pairs, vectors, row, side, lane)
    s.vectorize(lane)
    for loop in (row, side):
        s.unroll(loop)
    s.parallel(_as_one(s, [*outer, pairs]))
    return s


def _as_one(s: Schedule, loops: list[Var]) -> Var:
    """The loop over all rows."""
    while len(loops) > 1:
        loops[-2:] = [s.fuse(*loops[-2:])]
    return loops[0]


def _powers(lanes: int) -> list[int]:
    """The powers of two up to so many lanes, the largest first."""
    return [1 << n for n in reversed(range(lanes.bit_length()))]
