"""The sums around Strassen's products: their templates and prices. Vectors lie along rows, all sums of one position
together.

for rows, vectors of columns: s[0..7] = the sums of four blocks             input
for rows, vectors of columns: y of all blocks = f(the sums of s[0..7])      output and its epilogue
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

from tilewright.analysis.sizes import known
from tilewright.core.walk import preorder
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const, Expr, Mul, Var
from tilewright.loops.edit import blocks, loads
from tilewright.loops.nodes import Buffer
from tilewright.ops.strassen import PRODUCTS, input_terms, output_terms
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Template
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.transfer import reread_seconds, rewrite_seconds


@dataclass(frozen=True, slots=True)
class LanesChoice:
    """Vectors of `lanes` columns of a half-size block, or of channels of an image."""

    lanes: int


@dataclass(frozen=True, slots=True)
class Halves:
    """The blocks that sums of blocks, or products, are: how many pairs of rows there are, and the columns of each."""

    pairs: int
    columns: int

    @staticmethod
    def of(buffer: Buffer) -> Halves:
        """Those of a buffer of sums or products."""
        _, *pairs, columns = map(known, buffer.shape)
        return Halves(math.prod(pairs), columns)

    @property
    def products(self) -> int:
        """The bytes of a sum of each block, or of all products."""
        return PRODUCTS * self.pairs * self.columns * f32.bytes

    def vectors(self, lanes: int) -> int:
        """The vectors of a block, some of them not full."""
        return self.pairs * -(-self.columns // lanes)


class StrassenInput(Template[Halves, LanesChoice]):
    """Kernels with the sums of the first factor: each block is read once."""

    name = "strassen input"
    choice = LanesChoice
    whole = True

    def recognise(self, facts: Facts) -> Halves | None:
        return Halves.of(facts.function.params[-1]) if "strassen_input" in facts.names else None

    def choices(self, shape: Halves, target: Target) -> Iterator[LanesChoice]:
        yield LanesChoice(min(target.lanes(f32), 1 << (shape.columns.bit_length() - 1)))

    def price(self, choice: LanesChoice, shape: Halves, target: Target) -> float:
        core, sums = target.core, count_sums(input_terms, 4)
        each = PRODUCTS * core.store_cycles + 4 * core.load_cycles + sums * core.add_cycles
        moving = rewrite_seconds(shape.products, shape.products, target)
        return core.kernel_seconds + max(shape.vectors(choice.lanes) * each / core.hertz, moving)

    def apply(self, s: Schedule, shape: Halves, choice: LanesChoice) -> Schedule:
        p, *outer, i, k = s.get_loops("strassen_input")
        vectors, lane = s.split(k, choice.lanes, tail="mask")
        s.reorder(*outer, i, vectors, p, lane)
        s.vectorize(lane)
        s.unroll(p)
        s.parallel(reduce(s.fuse, [*outer, i]))
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
        return Halves.of(next(loads(find_block(facts.function, "strassen_output"))).buffer)

    def choices(self, shape: Halves, target: Target) -> Iterator[LanesChoice]:
        lanes = math.gcd(target.lanes(f32), shape.columns)
        return (LanesChoice(n) for n in (lanes,) if n > 1)

    def price(self, choice: LanesChoice, shape: Halves, target: Target) -> float:
        core, sums = target.core, count_sums(output_terms, PRODUCTS)
        each = PRODUCTS * core.load_cycles + 4 * core.store_cycles + sums * core.add_cycles
        moving = reread_seconds(shape.products, shape.products, target)
        return core.kernel_seconds + max(shape.vectors(choice.lanes) * each / core.hertz, moving)

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
        s.parallel(reduce(s.fuse, [*outer, pairs]))
        return s


def transform_seconds(before: Halves, behind: Halves, target: Target) -> float:
    """Seconds of both sums around products, in whole vectors."""
    whole = LanesChoice(target.lanes(f32))
    return StrassenInput().price(whole, before, target) + StrassenOutput().price(whole, behind, target)


@lru_cache(maxsize=16)
def count_sums(terms: Callable[..., Sequence[Expr]], count: int, *sizes: int) -> int:
    """The instructions of sums of so many variables, products fused into them; `sizes` are what they depend on."""
    made = terms(*sizes, [Var(f"d{n}", f32, None) for n in range(count)])
    return sum(not isinstance(e, Const | Var | Mul) for e in {e for term in made for e in preorder(term)})
