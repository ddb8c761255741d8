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
from tilewright.ops.strassen import PRODUCTS, input_terms, output_terms, parts_of
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Template
from tilewright.plan.tile.loops import order_tile
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
    """The blocks that sums of blocks, or products, are: how many groups of rows there are, the columns of each, and how
    many rows are together in a group."""

    groups: int
    columns: int
    together: int = 2

    @staticmethod
    def of(buffer: Buffer, together: int) -> Halves:
        """Those of a buffer of sums or products."""
        _, *groups, columns = map(known, buffer.shape)
        return Halves(math.prod(groups), columns, together)

    @property
    def count(self) -> int:
        """How many products there are."""
        return sum(parts_of(self.together))

    @property
    def blocks(self) -> int:
        """How many blocks the rows of a group have."""
        return 2 * self.together

    @property
    def products(self) -> int:
        """The bytes of a sum of each block, or of all products."""
        return self.count * self.groups * self.columns * f32.bytes

    def vectors(self, lanes: int) -> int:
        """The vectors of a block, some of them not full."""
        return self.groups * -(-self.columns // lanes)


class StrassenInput(Template[Halves, LanesChoice]):
    """Kernels with the sums of the first factor: each block is read once."""

    name = "strassen input"
    choice = LanesChoice
    whole = True

    def recognise(self, facts: Facts) -> Halves | None:
        if "strassen_input" not in facts.names:
            return None
        sums = facts.function.params[-1]
        return Halves.of(sums, 2 if known(sums.shape[0]) == PRODUCTS else 1)

    def choices(self, shape: Halves, target: Target) -> Iterator[LanesChoice]:
        yield LanesChoice(min(target.lanes(f32), 1 << (shape.columns.bit_length() - 1)))

    def price(self, choice: LanesChoice, shape: Halves, target: Target) -> float:
        core, sums = target.core, count_sums(input_terms, shape.blocks)
        each = shape.count * core.store_cycles + shape.blocks * core.load_cycles + sums * core.add_cycles
        moving = rewrite_seconds(shape.products, shape.products, target)
        return core.kernel_seconds + max(shape.vectors(choice.lanes) * each / core.hertz, moving)

    def apply(self, s: Schedule, shape: Halves, choice: LanesChoice) -> Schedule:
        p, *outer, i, k = s.get_loops("strassen_input")
        vectors, lane = s.split(k, choice.lanes, tail="mask")
        order_tile(s, [*outer, i, vectors], [p, lane])
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
        read = {load.buffer for load in loads(find_block(facts.function, "strassen_output"))}
        return Halves.of(next(iter(read)), len(read))

    def choices(self, shape: Halves, target: Target) -> Iterator[LanesChoice]:
        lanes = math.gcd(target.lanes(f32), shape.columns)
        return (LanesChoice(n) for n in (lanes,) if n > 1)

    def price(self, choice: LanesChoice, shape: Halves, target: Target) -> float:
        core, sums = target.core, count_sums(output_terms, shape.count)
        each = shape.count * core.load_cycles + shape.blocks * core.store_cycles + sums * core.add_cycles
        moving = reread_seconds(shape.products, shape.products, target)
        return core.kernel_seconds + max(shape.vectors(choice.lanes) * each / core.hertz, moving)

    def apply(self, s: Schedule, shape: Halves, choice: LanesChoice) -> Schedule:
        s.inline_all()
        (block,) = blocks(s.func.body)
        *outer, i, j = s.get_loops(block.name)
        groups, *rows = s.split(i, 2, tail="mask") if shape.together == 2 else (i,)
        side, j = s.split(j, shape.columns, tail="mask")
        vectors, lane = s.split(j, choice.lanes)
        order_tile(s, [*outer, groups, vectors], [*rows, side, lane])
        s.parallel(reduce(s.fuse, [*outer, groups]))
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
