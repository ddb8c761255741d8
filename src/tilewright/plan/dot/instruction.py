"""How a machine adds up products of narrow numbers: the instruction for a pair of element types, by its work.

An instruction of the table fits where its registers hold all values of the operands' types; of those that fit, the one
with the fewest machine operations for a product is taken. What it takes wider than it is, is widened when it is packed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.target import Target
from tilewright.target.instructions import INSTRUCTIONS, Instruction, Register

HALVES = (dtypes.bf16, dtypes.f16)

AHEAD = {"aarch64": 4}
"""Registers for elements that are loaded before their turn: where instructions take no operands from memory."""

USUAL_ROWS, USUAL_VECTORS = 6, 2
"""The tile for which instructions are compared."""

VECTOR_LOAD = 2
"""What loading a whole vector of the packed operand costs, in operations: it comes from the second cache."""


@dataclass(frozen=True, slots=True)
class Dot:
    """How products are added up: `depth` of them at a time by an instruction, or one by one in vectors without it; the
    types in which it takes the operands."""

    instruction: Instruction | None
    lanes: int
    depth: int
    broadcast: DType
    vector: DType
    registers: int
    """The registers that it needs for values of its own."""


@dataclass(frozen=True, slots=True)
class Use:
    """An instruction, and which of its registers the broadcast and the vector operand go to."""

    row: Instruction
    broadcast: Register
    vector: Register

    @property
    def depth(self) -> int:
        """The products that it adds to a lane."""
        return self.broadcast.shape[1]

    @property
    def steps(self) -> list[str]:
        """The lines that are work of its own: neither conversions of operands nor other names of the same bits."""
        return [line for line in self.row.llvm if line.split()[0] not in ("sext", "zext", "bitcast")]

    @property
    def work(self) -> tuple[float, int]:
        """Machine operations for a product in a usual tile, and the bytes of an element of the vector operand."""
        once = [line for line in self.row.llvm if line.split()[0] in ("sext", "zext")]
        size = self.vector.dtype.bytes
        each = USUAL_ROWS * USUAL_VECTORS * len(self.steps)
        rows = USUAL_ROWS * sum(f"{{{self.broadcast.name}}}" in line for line in once)
        traffic = VECTOR_LOAD * size * self.depth / self.row.accumulator.dtype.bytes
        vectors = USUAL_VECTORS * (sum(f"{{{self.vector.name}}}" in line for line in once) + traffic)
        return (each + rows + vectors) / self.broadcast.lanes, size


def choose_dot(broadcast: DType, vector: DType, sums: DType, target: Target) -> Dot | None:
    """How to add up products of these types with the least work; of halves without an instruction, products in f32.
    None where the machine has nothing for them."""
    best, ahead = best_use(broadcast, vector, sums, target), AHEAD.get(target.architecture, 0)
    if best is not None:
        own = ahead + (1 if len(best.steps) > 1 else 0)
        row = best.row
        return Dot(row, row.accumulator.lanes, best.depth, best.broadcast.dtype, best.vector.dtype, own)
    if broadcast in HALVES and vector in HALVES and sums is dtypes.f32:
        return Dot(None, max(target.vector_bits // sums.bits, 2), 1, sums, sums, ahead)
    return None


def best_use(broadcast: DType, vector: DType, sums: DType, target: Target) -> Use | None:
    """The instruction with the least work that has room for operands of these types."""
    able = [
        Use(row, one, other)
        for row in INSTRUCTIONS.values()
        if row.accumulator.dtype is sums and len(row.registers[0].shape) == 2 and row.runs_on(target)
        for one, other in (row.registers[:2], row.registers[1::-1])
        if one.dtype.holds(broadcast) and other.dtype.holds(vector)
    ]
    return min(able, key=lambda use: use.work, default=None)
