"""Register tiles: how many rows and vectors of accumulators a contraction may keep in registers.

For each term of the sum, a tile of R rows and V vectors loads V vectors and R broadcast elements and does R*V fused
multiply-adds. Accumulators, the vectors and one broadcast have to fit the registers: tiles that do not spill are the
first rule ("Anatomy of high-performance matrix multiplication", Goto, van de Geijn, 2008). Which tile is best is a
matter of price (plan/price/contraction.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.target import Target

LOADED_AHEAD = 3
"""Elements beside the one in use that LLVM loads ahead where an instruction multiplies by one lane of a register."""


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """`rows` x `vectors` accumulators of `lanes` elements."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def tallest(target: Target) -> int:
    """The most rows of a tile: where the place of each row is known to a call alone, it has a general register each,
    beside the stack's, the panel's, and that of the count of terms."""
    return target.addresses - 3


def free_places(target: Target) -> int:
    """The most rows of a tile that leave as many general registers as they take: for the places of terms that are
    written out, or for one to prefetch from where the last tile is not whole."""
    return target.addresses // 2


def candidates(target: Target, lanes: int, registers: int) -> list[RegisterTile]:
    """The tiles that fit: accumulators, the vectors of a term and a broadcast element in registers. Where vectors are
    used by one row only, they are operands in memory. A row of as many vectors as multiply-adds are under way at a time
    waits for none of them: none is wider."""
    widest = max(round(target.core.fma_latency / target.core.fma_cycles), 1)
    return [
        RegisterTile(rows, vectors, lanes)
        for vectors in range(1, widest + 1)
        for rows in range(1, tallest(target) + 1)
        if rows * vectors + (vectors if rows > 1 else 0) + 1 <= registers
    ]


def tile_registers(target: Target) -> int:
    """The vector registers that a tile may hold: all, less those for products that are no part of a sum yet, and for
    elements loaded ahead."""
    if target.architecture == "aarch64":
        return target.vector_registers - LOADED_AHEAD
    return target.vector_registers - (0 if target.has_fma else 1)
