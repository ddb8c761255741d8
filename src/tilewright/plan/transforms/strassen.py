"""The templates of the sums around Strassen's products: vectors along rows, all sums of one position together.

for rows, vectors of columns: s[0..7] = the sums of four blocks             input
for rows, vectors of columns: y of all blocks = f(the sums of s[0..7])      output and its epilogue
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks, loads
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.price.sizes import known
from tilewright.plan.price.transforms import Halves, strassen_input_seconds, strassen_output_seconds
from tilewright.plan.template import Template
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class LanesChoice:
    """Vectors of `lanes` columns of a half-size block."""

    lanes: int


class StrassenInput(Template[Halves, LanesChoice]):
    """Kernels with the sums of the first factor: each block is read once."""

    name = "strassen input"
    choice = LanesChoice
    whole = True

    def recognise(self, facts: Facts) -> Halves | None:
        if "strassen_input" not in facts.names:
            return None
        _, *pairs, columns = map(known, facts.function.params[-1].shape)
        return Halves(math.prod(pairs), columns)

    def choices(self, shape: Halves, target: Target) -> Iterator[LanesChoice]:
        return (LanesChoice(n) for n in _widths(target) if n <= shape.columns)

    def price(self, choice: LanesChoice, shape: Halves, target: Target) -> float:
        return strassen_input_seconds(shape, choice.lanes, target)

    def apply(self, s: Schedule, shape: Halves, choice: LanesChoice) -> Schedule:
        p, *outer, i, k = s.get_loops("strassen_input")
        vectors, lane = s.split(k, choice.lanes, tail="mask")
        s.reorder(*outer, i, vectors, p, lane)
        s.vectorize(lane)
        s.unroll(p)
        s.parallel(_as_one(s, [*outer, i]))
        return s


class StrassenOutput(Template[Halves, LanesChoice]):
    """Kernels with the sums of products and their epilogue, in vectors that divide a half-size block: each product is
    read once."""

    name = "strassen output"
    choice = LanesChoice
    whole = True

    def recognise(self, facts: Facts) -> Halves | None:
        if "strassen_output" not in facts.names:
            return None
        _, *pairs, columns = map(known, next(loads(find_block(facts.function, "strassen_output"))).buffer.shape)
        return Halves(math.prod(pairs), columns)

    def choices(self, shape: Halves, target: Target) -> Iterator[LanesChoice]:
        return (LanesChoice(n) for n in _widths(target) if n > 1 and shape.columns % n == 0)

    def price(self, choice: LanesChoice, shape: Halves, target: Target) -> float:
        return strassen_output_seconds(shape, choice.lanes, target)

    def apply(self, s: Schedule, shape: Halves, choice: LanesChoice) -> Schedule:
        s.inline_all()
        (block,) = blocks(s.func.body)
        *outer, i, j = s.get_loops(block.name)
        pairs, row = s.split(i, 2, tail="mask")
        side, j = s.split(j, shape.columns, tail="mask")
        vectors, lane = s.split(j, choice.lanes)
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


def _widths(target: Target) -> list[int]:
    """The powers of two up to the lanes of f32, the largest first."""
    return [1 << n for n in reversed(range(target.lanes(f32).bit_length()))]
