"""How a machine adds up products of narrow numbers: the instruction for a pair of element types, by its price.

An instruction of the table fits where its registers hold all values of the operands' types; of those that fit, the one
with the fewest cycles for a product, in the tile that is best for it, is taken. What it takes wider than it is, is
widened when it is packed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DTYPES, DType
from tilewright.plan.price.contraction import Sums, product_cycles, term_cycles, tiles
from tilewright.plan.tile.registers import tile_registers
from tilewright.target import Target
from tilewright.target.instructions import INSTRUCTIONS


@dataclass(frozen=True, slots=True)
class Dot:
    """How products are added up: by an `instruction` of the table, `depth` at a time, or one by one in vectors without
    it (""); and the types in which tiles read the elements of rows and the vectors."""

    instruction: str
    element: str
    vector: str

    @property
    def depth(self) -> int:
        """The products that are added to a lane at a time."""
        return INSTRUCTIONS[self.instruction].registers[0].shape[-1] if self.instruction else 1

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of rows with all terms of an instruction."""
        return self.depth * DTYPES[self.element].bytes

    @property
    def vector_bytes(self) -> int:
        """Bytes of a lane's part of a vector, all terms of an instruction."""
        return self.depth * DTYPES[self.vector].bytes

    @property
    def lanes(self) -> int:
        """The sums of a vector of the instruction."""
        return INSTRUCTIONS[self.instruction].accumulator.lanes

    def registers(self, target: Target) -> int:
        """Those that a tile may hold: less one for products that an instruction adds by a further step, and one for
        elements where nothing is operated on in memory."""
        own = len(INSTRUCTIONS[self.instruction].products) > 1 if self.instruction else False
        return tile_registers(target) - own - (target.architecture == "aarch64")

    def sums(self, rows: int, columns: int, terms: int, target: Target) -> Sums:
        """Sums of so many products, `terms` of them by themselves."""
        held, brought = self.vector_bytes, self.element_bytes
        return Sums(
            rows,
            columns,
            terms,
            instruction=self.instruction,
            held=held,
            brought=brought,
            converted=self.converted(target),
        )

    def converted(self, target: Target) -> tuple[float, float]:
        """Cycles in which the instruction widens each vector, and each element, in registers."""
        row = INSTRUCTIONS[self.instruction] if self.instruction else None
        if row is None or not row.conversions:
            return 0.0, 0.0
        each = max(target.dot_cycles(row.name) - product_cycles(row.name, target), 0.0) / len(row.conversions)
        first, second = (each * any(f"{{{r.name}}}" in line for line in row.conversions) for r in row.registers[:2])
        return (first, second) if row.registers[0].dtype.name != self.element else (second, first)


def choose_dot(element: DType, vector: DType, sums: DType, target: Target) -> Dot | None:
    """How to add up products of these types in the fewest cycles; of 16-bit floats without an instruction, products in
    f32. None where the machine has nothing for them."""
    halves = (dtypes.bf16, dtypes.f16)
    best = min(_able(element, vector, sums, target), key=lambda d: cost(d, target), default=None)
    if best is None and element in halves and vector in halves and sums is dtypes.f32:
        return Dot("", sums.name, sums.name)
    return best


def pairs_of(target: Target) -> Dot | None:
    """The machine's products of bf16 pairs; None where it has none."""
    dot = choose_dot(dtypes.bf16, dtypes.bf16, dtypes.f32, target)
    return dot if dot is not None and dot.instruction else None


@lru_cache(maxsize=1 << 8)
def cost(dot: Dot, target: Target) -> float:
    """Cycles of a product in the best tile of many, of vectors that come from the third cache."""
    sums = replace(dot.sums(0, 1 << 16, 1, target), panel=3)
    each = (
        term_cycles(sums, t, target) / (t.rows * t.columns * dot.depth)
        for t in tiles(sums, target, registers=dot.registers(target))
    )
    return min(each)


def _able(element: DType, vector: DType, sums: DType, target: Target) -> Iterator[Dot]:
    """The instructions that have room for operands of these types, either way."""
    for row in INSTRUCTIONS.values():
        if row.accumulator.dtype is sums and len(row.registers[0].shape) == 2 and row.runs_on(target):
            for one, other in (row.registers[:2], row.registers[1::-1]):
                if one.dtype.holds(element) and other.dtype.holds(vector):
                    yield Dot(row.name, one.dtype.name, other.dtype.name)
