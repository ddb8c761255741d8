"""What a sum of products takes in a tile of registers: the one place that says so.

    sums = Sums(rows=128, columns=768, terms=768)
    tile = best(sums, target)                  the register tile of the least cycles, of those that fit
    cycles(sums, tile, target)                 of one core
    seconds(sums, tile, target)

For each term of a sum a tile of R rows and V vectors loads V vectors and R elements and does R*V multiply-adds, one
for each of its R*V accumulators. So a term takes at least as long as the longest of

    R * V multiply-adds        the loads of V vectors and R elements        the latency of a multiply-add
    the bytes of both operands, as fast as the cache that they lie in delivers them

and a part of the bytes that come from beyond the first cache delays the rest (`UNHIDDEN`). Each tile of results is
stored once, and begins with sums that nothing can overlap. See "Anatomy of high-performance matrix multiplication"
(Goto, van de Geijn, 2008) for the shape of the argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.plan.tile.registers import RegisterTile, candidates, tile_registers
from tilewright.target import Target
from tilewright.target.instructions import INSTRUCTIONS

UNHIDDEN = 0.2
"""The part of what a cache takes to deliver that adds to the time of multiply-adds. How far a core runs ahead of a load
is no rate: of cores whose second caches deliver 60 and 30 bytes a cycle it ranks register tiles as they were measured
(6 x 4 vectors at 99 % and 84 % of the peak, 14 x 2 at 95 % on the second)."""


@dataclass(frozen=True, slots=True)
class Sums:
    """`batch` products of `rows` x `terms` by `terms` x `columns`, the columns along vectors.

    bits           of a lane that sums up
    instruction    a row of target.instructions that adds several products to a lane; "" for multiply-adds
    panel          the level of cache, 1 the nearest, that tiles of rows read a panel of columns from; beyond the last
                   one is memory
    first          the level that the first of these tiles reads it from; 0 where that is the same
    elements       the level that the elements of the rows are read from
    parts          tensors that a vector is the difference of: 1 or 2
    stride         elements of memory from one lane of a vector to the next
    aligned        whether vectors begin at multiples of their size
    least          cycles that a term takes at least, for a reason that is not in this list
    """

    rows: int
    columns: int
    terms: int
    batch: int = 1
    bits: int = 32
    instruction: str = ""
    panel: int = 2
    first: int = 0
    elements: int = 2
    parts: int = 1
    stride: int = 1
    aligned: bool = True
    least: float = 0.0

    def lanes(self, target: Target) -> int:
        """Sums in a vector."""
        if self.instruction:
            return INSTRUCTIONS[self.instruction].accumulator.lanes
        return max(target.vector_bits // self.bits, 1)

    @property
    def depth(self) -> int:
        """Products that are added to a lane at a time."""
        return INSTRUCTIONS[self.instruction].registers[0].shape[-1] if self.instruction else 1


@lru_cache(maxsize=1 << 12)
def best(sums: Sums, target: Target, most_rows: int = 0, most_vectors: int = 0, registers: int = 0) -> RegisterTile:
    """The tile with the least cycles; of several, that with the most accumulators. At most so many rows and vectors
    and in so many registers, where these are not 0."""
    fitting = tiles(sums, target, most_rows, most_vectors, registers)
    return min(fitting, key=lambda t: (cycles(sums, t, target), -t.rows * t.vectors))


def tiles(
    sums: Sums, target: Target, most_rows: int = 0, most_vectors: int = 0, registers: int = 0
) -> list[RegisterTile]:
    """The tiles that fit, restricted as in `best`: none has a vector beyond the last column altogether."""
    lanes = sums.lanes(target)
    return [
        t
        for t in candidates(registers or tile_registers(target), lanes)
        if t.rows <= (most_rows or t.rows)
        and t.vectors <= (most_vectors or t.vectors)
        and (t.vectors - 1) * lanes < max(sums.columns, 1)
    ]


def seconds(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """What one core takes, the start of a kernel not counted."""
    return cycles(sums, tile, target) / target.core.hertz


@lru_cache(maxsize=1 << 14)
def cycles(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """Cycles of one core, the start of a kernel not counted. Tiles over the last row are computed whole; vectors that
    lie beyond the last column altogether are left out."""
    tiles = -(-sums.rows // tile.rows)
    whole, rest = divmod(sums.columns, tile.columns)
    last = RegisterTile(tile.rows, -(-rest // tile.lanes), tile.lanes)

    def panel(tile: RegisterTile) -> float:
        again = _tile_cycles(sums, tile, target)
        if not sums.first or sums.first == sums.panel:
            return tiles * again
        return (tiles - 1) * again + _tile_cycles(replace(sums, panel=sums.first), tile, target)

    return sums.batch * (whole * panel(tile) + (panel(last) if rest else 0.0))


def _tile_cycles(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """Cycles of one tile: its terms, what is stored of it (with one operand of an epilogue, read and added), and the
    latency of its first loads and last sums."""
    core = target.core
    stores = tile.rows * tile.vectors * (core.store_cycles + core.load_cycles + core.add_cycles)
    terms = -(-sums.terms // sums.depth)
    return term_cycles(sums, tile, target) * terms + stores + 2 * core.fma_latency


def term_cycles(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """Cycles for one term of all sums of a tile."""
    core, r, v = target.core, tile.rows, tile.vectors
    multiply = core.dots[sums.instruction] if sums.instruction else core.fma_cycles
    width = target.vector_bits // 8
    vector = tile.lanes * sums.bits // 8 * sums.parts
    streaming = max(width * byte_cycles(1, target) / core.load_cycles, 1.0)
    load = core.load_cycles * (1 if sums.aligned else 1 + min(width / target.caches[0].line, 1))
    work = r * v * multiply + v * (sums.parts - 1) * core.add_beside_cycles
    loads = (v * load * sums.parts * sums.stride + r * core.broadcast_cycles) * streaming
    loads += v * (sums.stride - 1) * core.shuffle2_cycles
    panel = v * vector * sums.stride * byte_cycles(sums.panel, target)
    elements = r * sums.bits / 8 * byte_cycles(sums.elements, target)
    near = (panel if sums.panel > 1 else 0.0) + (elements if sums.elements > 1 else 0.0)
    return max(work, loads, core.fma_latency, panel, elements, sums.least) + UNHIDDEN * near


def byte_cycles(level: int, target: Target) -> float:
    """Cycles for a byte that streams from a level of cache, 1 the nearest; beyond the last one is memory."""
    rates: Sequence[float] = (*target.peaks.cache_gbs, target.peaks.memory_gbs)
    return target.core.hertz / (rates[min(level, len(rates)) - 1] * 1e9)
