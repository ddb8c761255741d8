"""Register tiles by the machine model: how many rows and vectors of accumulators a contraction keeps in registers.

For each term of the sum, a tile of R rows and V vectors loads V vectors and R broadcast elements and does R*V fused
multiply-adds. It must fit the registers (accumulators, the vectors, one broadcast), hide the latency of a
multiply-add (R*V chains at least), and waste little of the extents. Tiles that do not spill are the first rule: see
"Anatomy of high-performance matrix multiplication" (Goto, van de Geijn, 2008) for the shape of the argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.target import Target

FMA_PORTS = 2
FMA_LATENCY = 4
"""Multiply-adds a cycle, and the cycles until a sum can be added to again, on the cores that the targets name."""

LOAD_CYCLES = 0.75
"""Cycles for a load, measured: two a cycle at best, and some cross cache lines."""

ROW_TRAFFIC, VECTOR_TRAFFIC = 0.03, 0.2
"""What bringing an element, or a vector, from the second cache adds to each term."""

STORE_CYCLES = 2
"""What writing one vector of a finished tile costs beside its terms, epilogue included."""

DEEPEST = 8
"""The most vectors of a tile that has one row."""

TALLEST = 13
"""The most rows of a tile: where the place of each row is known to a call alone, it has a general register each."""

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

    @property
    def cycles(self) -> float:
        """Cycles for one term of the sum."""
        work = self.rows * self.vectors / FMA_PORTS
        loads = (self.vectors + self.rows) * LOAD_CYCLES
        return max(work, loads, FMA_LATENCY) + self.rows * ROW_TRAFFIC + self.vectors * VECTOR_TRAFFIC


def candidates(registers: int, lanes: int) -> list[RegisterTile]:
    """The tiles that fit: accumulators, the vectors of a term and a broadcast element in registers. Where vectors are
    used by one row only, they are operands in memory."""
    found = []
    for vectors in range(1, DEEPEST + 1):
        for rows in range(1, TALLEST + 1):
            held = rows * vectors + (vectors if rows > 1 else 0) + 1
            if held <= registers:
                found.append(RegisterTile(rows, vectors, lanes))
    return found


def tile_registers(target: Target) -> int:
    """The vector registers that a tile may hold: all, less those for products that are no part of a sum yet, and for
    elements loaded ahead."""
    if target.architecture == "aarch64":
        return target.vector_registers - LOADED_AHEAD
    return target.vector_registers - (0 if target.has_fma else 1)


@lru_cache(maxsize=4096)
def choose_register_tile(rows: int, columns: int, depth: int, registers: int, lanes: int) -> RegisterTile:
    """The tile with the least cycles for extents of `rows` x `columns` and sums of `depth` terms, none of whose vectors
    lies beyond the last column altogether."""
    fitting = [t for t in candidates(registers, lanes) if (t.vectors - 1) * lanes < columns]
    return min(fitting, key=lambda t: (_cycles(t, rows, columns, depth), -t.rows * t.vectors))


def _cycles(tile: RegisterTile, rows: int, columns: int, depth: int) -> float:
    """Cycles for extents of `rows` x `columns` and sums of `depth` terms by a tile. Vectors that lie beyond the last
    column altogether are left out."""

    def run(tile: RegisterTile) -> float:
        return tile.cycles * depth + tile.rows * tile.vectors * STORE_CYCLES + FMA_LATENCY * FMA_PORTS

    whole, rest = divmod(columns, tile.columns)
    last = RegisterTile(tile.rows, -(-rest // tile.lanes), tile.lanes)
    return -(-rows // tile.rows) * (whole * run(tile) + (run(last) if rest else 0))
