"""What a sum of products takes in a tile of registers: the one place that says so.

    sums = Sums(rows=128, columns=768, terms=768)
    tile = best(sums, target)                  the register tile of the least cycles, of those that fit
    cycles(sums, tile, target)                 of one core
    seconds(sums, tile, target)

For each term of a sum a tile of R rows and V vectors loads V vectors and R elements and does R*V multiply-adds, one
for each of its R*V accumulators. So a term takes at least as long as the longest of

    R * V multiply-adds        the loads of V vectors and R elements        the latency of a multiply-add
    the bytes of both operands, as fast as the cache that they lie in delivers them

and a part of the bytes that come from beyond the first cache delays the rest (`Core.unhidden`). Each tile of results is
stored once, and begins with sums that nothing can overlap. See "Anatomy of high-performance matrix multiplication"
(Goto, van de Geijn, 2008) for the shape of the argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.plan.price.transfer import apart_cycles, byte_cycles, memory
from tilewright.plan.tile.registers import RegisterTile, candidates, tile_registers
from tilewright.target import Target
from tilewright.target.instructions import INSTRUCTIONS


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
    scattered      whether the vectors of a term lie a page or more behind those of the term before, where nothing is
                   fetched before it is asked for
    brought        bytes that come from `elements` for each element: 0 for as many as it has, more where the rest of its
                   line is gone before it is read
    held           bytes of a vector's part that one sum meets: 0 for as many as the sum has
    converted      cycles in which each vector, as it is loaded, and each element, beside the products, is widened
    integers       whether a product and the addition to its sum are instructions of their own
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
    scattered: bool = False
    brought: float = 0
    held: int = 0
    converted: tuple[float, float] = (0.0, 0.0)
    integers: bool = False

    def lanes(self, target: Target) -> int:
        """Sums in a vector."""
        if self.instruction:
            return INSTRUCTIONS[self.instruction].accumulator.lanes
        return max(target.vector_bits // self.bits, 1)

    @property
    def depth(self) -> int:
        """Products that are added to a lane at a time."""
        return INSTRUCTIONS[self.instruction].registers[0].shape[-1] if self.instruction else 1

    @property
    def steps(self) -> int:
        """How often terms are taken."""
        return -(-self.terms // self.depth)


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
        for t in candidates(target, lanes, registers or tile_registers(target))
        if t.rows <= (most_rows or t.rows)
        and t.vectors <= (most_vectors or t.vectors)
        and (t.vectors - 1) * lanes < max(sums.columns, 1)
    ]


def seconds(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """What one core takes, the start of a kernel not counted."""
    return cycles(sums, tile, target) / target.core.hertz


def least_cycles(sums: Sums, target: Target) -> float:
    """Cycles in the best tile."""
    return cycles(sums, best(sums, target), target)


def least_seconds(sums: Sums, target: Target) -> float:
    """Seconds in the best tile."""
    return least_cycles(sums, target) / target.core.hertz


def cycles(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """Cycles of one core, the start of a kernel not counted. Tiles over the last row are computed whole; vectors that
    lie beyond the last column altogether are left out."""
    found = -(-sums.rows // tile.rows) * _pass(sums, tile, target, sums.panel, sums.elements, sums.scattered)
    if sums.first:
        found += added_cycles(sums, tile, target, panel=sums.first)
    return sums.batch * found


def added_cycles(
    sums: Sums, tile: RegisterTile, target: Target, panel: int = 0, elements: int = 0, scattered: bool | None = None
) -> float:
    """Cycles that one tile of rows takes longer to pass all panels where these, or the elements of its rows, come from
    another level of cache, or each term's vectors by themselves."""
    usual = (sums.panel, sums.elements, sums.scattered)
    other = (panel or sums.panel, elements or sums.elements, sums.scattered if scattered is None else scattered)
    return _pass(sums, tile, target, *other) - _pass(sums, tile, target, *usual)


def _pass(sums: Sums, tile: RegisterTile, target: Target, panel: int, elements: int, scattered: bool) -> float:
    """Cycles of a tile of rows with all panels. What is stored of each (with one operand of an epilogue, read and
    added) and the latency of its first loads and last sums are not hidden."""
    rates = _rates(target, sums.instruction, sums.integers)
    terms = sums.steps
    whole, rest = divmod(sums.columns, tile.columns)
    found = 0.0
    for count, vectors in ((whole, tile.vectors), (rest > 0, -(-rest // tile.lanes))):
        if count:
            term = _term(sums, rates, tile.rows, vectors, tile.lanes, panel, elements, scattered)
            found += count * (term * terms + tile.rows * vectors * rates.store + rates.ends)
    return found


@dataclass(frozen=True, slots=True)
class _Rates:
    """What a target says of sums, in cycles: of a multiply-add, a vector's load, an element's, a sum, a shuffle; of the
    store of a vector; of the beginning and end of a tile; of a byte that streams from each level of cache, and of what
    the first line on a page of its own takes longer; and the least of a term. `unhidden` is the core's, `across` how
    many lines an unaligned vector lies in."""

    multiply: float
    load: float
    broadcast: float
    add: float
    shuffle: float
    store: float
    ends: float
    least: float
    unhidden: float
    across: float
    byte: tuple[float, ...]
    apart: tuple[float, ...]


@lru_cache(maxsize=64)
def _rates(target: Target, instruction: str, integers: bool) -> _Rates:
    core, width, line = target.core, target.vector_bits // 8, target.caches[0].line
    plain = 2 * core.fma_cycles + core.add_cycles if integers else core.fma_cycles  # 32-bit products are two steps
    levels = range(memory(target) + 1)
    streaming = max(width * byte_cycles(1, target) / core.load_cycles, 1.0)
    return _Rates(
        multiply=product_cycles(instruction, target) if instruction else plain,
        load=core.load_cycles * streaming,
        broadcast=core.broadcast_cycles * streaming,
        add=core.add_beside_cycles,
        shuffle=core.shuffle2_cycles,
        store=core.store_cycles + core.load_cycles + core.add_cycles,
        ends=2 * core.fma_latency,
        least=core.fma_latency,
        unhidden=core.unhidden,
        across=1 + min(width / line, 1.0),
        byte=tuple([byte_cycles(level, target) for level in levels]),
        apart=tuple([max(apart_cycles(level, target) - line * byte_cycles(level, target), 0.0) for level in levels]),
    )


def product_cycles(instruction: str, target: Target) -> float:
    """Cycles of the products of an instruction by themselves: the core's rate counts conversions of operands, too,
    which a tile does once for each vector or element, so it is that of the fastest one with the same products."""
    own = INSTRUCTIONS[instruction]
    alike = [own]
    if own.conversions:
        others = (row for row in INSTRUCTIONS.values() if not row.conversions and row.runs_on(target))
        alike += [row for row in others if row.products == own.products]
    return min(target.dot_cycles(row.name) for row in alike)


def term_cycles(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """Cycles for one term of all sums of a tile."""
    rates = _rates(target, sums.instruction, sums.integers)
    return _term(sums, rates, tile.rows, tile.vectors, tile.lanes, sums.panel, sums.elements, sums.scattered)


def _term(sums: Sums, rates: _Rates, r: int, v: int, lanes: int, panel: int, elements: int, scattered: bool) -> float:
    across = 1.0 if sums.aligned else rates.across
    loads = v * rates.load * across * sums.parts * sums.stride + r * rates.broadcast
    work = max(
        r * (v * rates.multiply + sums.converted[1]) + v * (sums.parts - 1) * rates.add,
        loads + v * ((sums.stride - 1) * rates.shuffle + sums.converted[0]),
        rates.least,
    )
    brought = 0.0
    if panel > 1:
        brought += v * lanes * (sums.held or sums.bits / 8) * across * sums.parts * sums.stride * rates.byte[panel]
        if scattered:
            brought += rates.apart[panel]
    if elements > 1:
        brought += r * (sums.brought or sums.bits / 8) * rates.byte[elements]
    return max(work, brought) + rates.unhidden * min(brought, work)
