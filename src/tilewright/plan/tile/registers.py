"""Register tiles by the machine model: how many rows and vectors of accumulators a contraction keeps in registers.

For each term of the sum, a tile of R rows and V vectors loads V vectors and R broadcast elements and does R*V fused
multiply-adds. It must fit the registers (accumulators, the vectors, one broadcast), hide the latency of a
multiply-add (R*V chains at least), and waste little of the extents. Tiles that do not spill are the first rule: see
"Anatomy of high-performance matrix multiplication" (Goto, van de Geijn, 2008) for the shape of the argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.expr import dtypes
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

SECOND_CACHE = 0.5
"""What a vector of a panel that does not stay in the first cache adds to each term beyond that."""

DIFFERENCE = 1.0
"""What a vector that is the difference of two adds to each term: one more load, from one more panel."""

HARDLY = 1.03
"""How much longer a tile may take for many rows that is better for a single one, where only a call knows which it has.
Of 512 x 128 weights, one row takes 3.0 us instead of 6.3, a hundred rows take 50 instead of 51."""

UNEVEN = 1.05
"""How much faster a tile must be that leaves a part of one at an edge, where panels are wanted in groups of one size,
or are asked for ahead."""

STREAMS, FEW_TILES = 4, 8
"""A tile of one row reads so many panels at once, or fewer; fewer tiles than the second number that are wide are shared
evenly by two threads only if they are even in number."""

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


def _fitting(columns: int, registers: int, lanes: int, tallest: int) -> list[RegisterTile]:
    """Those with at most `tallest` rows, none of whose vectors lies beyond the last column altogether."""
    return [t for t in candidates(registers, lanes) if (t.vectors - 1) * lanes < columns and t.rows <= tallest]


def tile_registers(target: Target) -> int:
    """The vector registers that a tile may hold: all, less those for products that are no part of a sum yet, and for
    elements loaded ahead."""
    if target.architecture == "aarch64":
        return target.vector_registers - LOADED_AHEAD
    return target.vector_registers - (0 if target.has_fma else 1)


@lru_cache(maxsize=4096)
def choose_register_tile(
    rows: int,
    columns: int,
    depth: int,
    registers: int,
    lanes: int,
    tallest: int = TALLEST,
    grouped: bool = False,
    least: float = 0.0,
    traffic: float = 0.0,
    any_rows: bool = False,
) -> RegisterTile:
    """The tile with the least cycles for extents of `rows` x `columns` and sums of `depth` terms, of at most `tallest`
    rows; with `grouped`, better one whose panels of columns can be worked on in groups of one size; where a term of
    any tile takes `least` cycles, and each vector comes with further cycles of `traffic` a term. With `any_rows`, where
    only a call knows how many they are, of the tiles that take hardly longer the one that is best for a single row: a
    tile is computed whole."""

    def cost(tile: RegisterTile) -> tuple[float, int]:
        uneven = grouped and columns % tile.columns != 0
        cycles = tile_cycles(tile, rows, columns, depth, traffic, least)
        return cycles * (UNEVEN if uneven else 1), -tile.rows * tile.vectors

    fitting = _fitting(columns, registers, lanes, tallest)
    best = min(fitting, key=cost)
    if not any_rows:
        return best
    good = [t for t in fitting if cost(t)[0] <= cost(best)[0] * HARDLY]
    return min(good, key=lambda t: (tile_cycles(t, 1, columns, depth, traffic, least), cost(t)))


@lru_cache(maxsize=1024)
def choose_even_tile(
    rows: int, columns: int, depth: int, registers: int, lanes: int, tallest: int, near: int
) -> RegisterTile:
    """The tile for rows that lie side by side, of at most `tallest` rows, where panels of more than `near` columns do
    not stay in the first cache. One that divides rows and columns is preferred: where the last row may be passed, each
    row has a place of its own to be counted on, and the panel beyond the last whole one is not asked for ahead."""

    def cost(tile: RegisterTile) -> tuple[float, int]:
        traffic = 0.0 if tile.columns <= near else SECOND_CACHE
        return tile_cycles(tile, rows, columns, depth, traffic), -tile.rows * tile.vectors

    fitting = _fitting(columns, registers, lanes, tallest)
    best = min(fitting, key=cost)
    even = [t for t in fitting if rows % t.rows == 0 and columns % t.columns == 0]
    return min((t for t in even if cost(t)[0] <= cost(best)[0] * UNEVEN), key=cost, default=best)


def choose_row_tile(columns: int, registers: int, lanes: int) -> RegisterTile:
    """The tile of one row of the result that reads packed panels, each element once: as many vectors as half of the
    registers hold, since the more of them, the longer the pieces that come from a cache or memory; but fewer where
    less then lies beyond the last column, or two threads can share few tiles evenly."""
    vectors = -(-columns // lanes)

    def cost(tile: RegisterTile) -> float:
        tiles = -(-vectors // tile.vectors)
        uneven = tiles % 2 == 1 and tile.vectors > DEEPEST and tiles < FEW_TILES
        return (tiles + 1 if uneven else tiles) * tile.cycles

    wide = [n for n in range(min(registers // 2, vectors), 0, -1) if n <= STREAMS or n % STREAMS == 0]
    return min((RegisterTile(1, n, lanes) for n in wide), key=cost)


def tile_cycles(
    tile: RegisterTile, rows: int, columns: int, depth: int, traffic: float = 0.0, least: float = 0.0
) -> float:
    """Cycles for extents of `rows` x `columns` and sums of `depth` terms by a tile, of which each vector comes with
    further cycles of `traffic` a term, and a term takes `least` cycles. Vectors that lie beyond the last column
    altogether are left out."""

    def run(tile: RegisterTile) -> float:
        term = max(tile.cycles + tile.vectors * traffic, least)
        stores = tile.rows * tile.vectors * STORE_CYCLES
        return term * depth + stores + FMA_LATENCY * FMA_PORTS

    whole, rest = divmod(columns, tile.columns)
    last = RegisterTile(tile.rows, -(-rest // tile.lanes), tile.lanes)
    return -(-rows // tile.rows) * (whole * run(tile) + (run(last) if rest else 0))


def hertz(target: Target) -> float:
    """The cycles a second that a core's f32 peak stands for."""
    return target.fma_gflops * 1e9 / (2 * FMA_PORTS * target.lanes(dtypes.f32))
