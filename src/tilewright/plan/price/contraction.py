"""What a sum of products takes in a tile of registers: the one place that says so.

    sums = Sums(rows=128, columns=768, terms=768)
    tile = best(sums, target)                  the register tile of the least cycles, of those that fit
    cycles(sums, tile, target)                 of one core

For each term of a sum a tile of R rows and V vectors loads V vectors and R elements and does R*V multiply-adds, one
for each of its R*V accumulators. So a term takes at least as long as the longest of

    R * V multiply-adds        the loads of V vectors and R elements        the latency of a multiply-add
    the bytes of both operands, as fast as the cache that they lie in delivers them

longer where the latency is near the others (`both_limits`), and a part of the bytes that come from beyond the first
cache delays the rest (`Core.unhidden`). Each tile of results is stored once, and begins with sums that nothing can
overlap. Accumulators, the vectors and one broadcast have to fit the registers: tiles that do not spill are the first
rule. See "Anatomy of high-performance matrix multiplication" (Goto, van de Geijn, 2008) for the shape of the argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.expr.dtypes import DTYPES
from tilewright.target import Target
from tilewright.target.instructions import INSTRUCTIONS, TILE_LATENCY, TILE_REGISTERS, Instruction, named
from tilewright.target.registers import tallest, tile_registers
from tilewright.target.transfer import apart_cycles, byte_cycles, panel_cycles

MARGIN = 1.03
"""A rewrite that changes how results are rounded, or where tensors lie, has to be this much cheaper: prices of ways
that are nearly alike rank right to about this, whatever the machine, and a program as written is no surprise."""


def pays(plain: float, rewritten: float) -> bool:
    """Whether a rewrite of so many seconds is clearly better than the `plain` way."""
    return plain >= MARGIN * rewritten


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """`rows` x `vectors` accumulators of `lanes` elements."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


@dataclass(frozen=True, slots=True)
class Sums:
    """`batch` products of `rows` x `terms` by `terms` x `columns`, the columns along vectors.

    bits           of a lane that sums up
    dot            how products of narrow numbers are added up; None for multiply-adds
    panel          the level of cache, 1 the nearest, that tiles of rows read a panel of columns from; beyond the last
                   one is memory
    first          the level that the first of these tiles reads it from; 0 where that is the same
    elements       the level that the elements of the rows are read from
    parts          tensors that a vector is the difference of: 1 or 2
    packs          the same of the first of these tiles, which stores the differences for the others; 0 where it stores
                   none
    stride         elements of memory from one lane of a vector to the next
    aligned        whether vectors begin at multiples of their size
    scattered      whether the vectors of a term lie a page or more behind those of the term before, where nothing is
                   fetched before it is asked for; `scattered_elements` says the same of the elements of the rows
    brought        bytes that come from `elements` for each element: 0 for as many as it has, more where the rest of its
                   line is gone before it is read
    held           bytes of a vector's part that one sum meets: 0 for as many as the sum has
    converted      cycles in which each vector, as it is loaded, and each element, beside the products, is widened, if
                   not by `dot`
    integers       whether a product and the addition to its sum are instructions of their own
    instructions   those of a vector of terms that are no products, with their addition to the sums; 0 of products
    """

    rows: int
    columns: int
    terms: int
    batch: int = 1
    bits: int = 32
    dot: Dot | None = None
    panel: int = 2
    first: int = 0
    elements: int = 2
    parts: int = 1
    packs: int = 0
    stride: int = 1
    aligned: bool = True
    scattered: bool = False
    scattered_elements: bool = False
    brought: float = 0
    held: int = 0
    converted: tuple[float, float] = (0.0, 0.0)
    integers: bool = False
    instructions: float = 0.0

    def lanes(self, target: Target) -> int:
        """Sums in a vector."""
        if self.dot is not None and self.dot.instruction:
            return self.dot.lanes
        return max(target.vector_bits // self.bits, 1)

    @property
    def steps(self) -> int:
        """How often terms are taken."""
        return -(-self.terms // self.dot.depth) if self.dot is not None else self.terms


def tiles(
    sums: Sums, target: Target, most_rows: int = 0, most_vectors: int = 0, *, spread: bool = False
) -> list[RegisterTile]:
    """The tiles that fit: accumulators, the vectors of a term and a broadcast element in registers, none with a vector
    beyond the last column altogether. Where vectors are used by one row only, they are operands in memory. A row of as
    many vectors as multiply-adds are under way at a time waits for none of them: none is wider. At most so many rows,
    where this is not 0, or as many as have a place each, and so many vectors; in half of the registers, where vectors
    are put together from `spread` ones."""
    core, lanes = target.core, sums.lanes(target)
    widest = min(max(round(core.fma_latency / core.fma_cycles), 1), -(-max(sums.columns, 1) // lanes))
    registers = tile_registers(target, sums.parts) if sums.dot is None else sums.dot.registers(target)
    highest, most = most_rows or tallest(target), registers // (2 if spread else 1)
    each = 1 if sums.dot is None else sums.dot.rows

    def held(rows: int, vectors: int) -> int:
        """Registers beside those of the sums."""
        if each > 1:  # a tile of each factor, which are loaded when they are multiplied
            return 2
        return (vectors if rows > 1 else 0) + 1 + (sums.instructions > 0)  # a term is somewhere before it is added

    return [
        RegisterTile(rows * each, vectors, lanes)
        for vectors in range(1, min(widest, most_vectors or widest) + 1)
        for rows in range(1, highest + 1)
        if rows * vectors + held(rows, vectors) <= most
    ]


@lru_cache(maxsize=1 << 12)
def best(sums: Sums, target: Target) -> RegisterTile:
    """The tile with the least cycles; of several, that with the most accumulators."""
    return min(tiles(sums, target), key=lambda t: (cycles(sums, t, target), -t.rows * t.vectors))


def least_cycles(sums: Sums, target: Target) -> float:
    """Cycles in the best tile."""
    return cycles(sums, best(sums, target), target)


def least_seconds(sums: Sums, target: Target) -> float:
    """Seconds in the best tile."""
    return least_cycles(sums, target) / target.core.hertz


def cycles(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """Cycles of one core, the start of a kernel not counted. Tiles over the last row are computed whole; vectors that
    lie beyond the last column altogether are left out."""
    found = -(-sums.rows // tile.rows) * _pass(sums, tile, target)
    if sums.first:
        found += added_cycles(sums, tile, target, panel=sums.first)
    if sums.packs:
        found += added_cycles(sums, tile, target, parts=sums.packs)
        found += target.core.unhidden * sums.columns * sums.steps / tile.lanes * target.core.store_cycles
    return sums.batch * found


def added_cycles(sums: Sums, tile: RegisterTile, target: Target, **other: int) -> float:
    """Cycles that one tile of rows takes longer to pass all panels where these, or the elements of its rows, come from
    another level of cache, or each term's vectors by themselves: `other` are those fields of the sums."""
    return _pass(replace(sums, **other), tile, target) - _pass(sums, tile, target)  # type: ignore[arg-type]


def _pass(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """Cycles of a tile of rows with all panels. What is stored of each (with one operand of an epilogue, read and
    added) and the latency of its first loads and last sums are not hidden."""
    core, terms = target.core, sums.steps
    store = core.store_cycles + core.load_cycles + core.add_cycles
    if sums.dot is not None and sums.dot.in_tiles:  # these are stored before they are read
        store += core.store_cycles + core.load_cycles
    whole, rest = divmod(sums.columns, tile.columns)
    found = 0.0
    for count, vectors in ((whole, tile.vectors), (rest > 0, -(-rest // tile.lanes))):
        if count:
            term = term_cycles(sums, RegisterTile(tile.rows, vectors, tile.lanes), target)
            found += count * (term * terms + tile.rows * vectors * store + 2 * _latency(sums, target))
    return found


def term_cycles(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """Cycles for one term of all sums of a tile."""
    core, v, high = target.core, tile.vectors, 1 if sums.dot is None else sums.dot.rows
    r, lines = tile.rows // high, sums.dot.depth // sums.dot.beside if sums.dot is not None and high > 1 else 1
    width, line = target.vector_bits // 8, target.caches[0].line
    streaming = max(width * byte_cycles(1, target) / core.load_cycles, 1.0)
    across = 1.0 if sums.aligned else 1 + min(width / line, 1.0)  # lines that a vector lies in
    loads = v * lines * (core.load_cycles * streaming) * across * sums.parts * sums.stride
    loads += tile.rows * ((core.broadcast_cycles if high == 1 else core.load_cycles) * streaming)
    again = _loaded_again(r, v) * high * core.load_cycles if high > 1 else 0.0
    loads += again
    vector, element = sums.converted if sums.dot is None else sums.dot.converted(target)
    busy = max(
        r * (v * _multiply_cycles(sums, target) + element) + v * (sums.parts - 1) * core.add_beside_cycles,
        loads + v * ((sums.stride - 1) * core.shuffle2_cycles + vector),
    )
    work = both_limits(busy, _latency(sums, target))
    brought = again  # from the first cache, while that takes lines from the next one
    if sums.panel > 1:
        streamed = (panel_cycles if r > 1 and high == 1 else byte_cycles)(sums.panel, target)
        held = sums.held or (sums.bits / 8 if sums.dot is None else sums.dot.vector_bytes)
        brought += v * tile.lanes * held * across * sums.parts * sums.stride * streamed
        if sums.scattered:
            brought += max(apart_cycles(sums.panel, target) - line * streamed, 0.0)
    if sums.elements > 1:
        each = sums.brought or (sums.bits / 8 if sums.dot is None else sums.dot.element_bytes)
        brought += tile.rows * each * byte_cycles(sums.elements, target)
        if sums.scattered_elements:
            brought += max(apart_cycles(sums.elements, target) - line * byte_cycles(sums.elements, target), 0.0)
    return core.together(work, brought)


def _loaded_again(rows: int, vectors: int) -> int:
    """How many tiles of factors a step of so many tiles of sums loads again, where there is no room for them until
    their last product: two are there, and one of them is new for each product."""
    room = TILE_REGISTERS - rows * vectors
    return 0 if room > min(rows, vectors) else rows * vectors + 1 - rows - vectors


def both_limits(busy: float, latency: float) -> float:
    """Cycles of an iteration whose instructions keep units `busy` for so long, and whose sums the next one waits for,
    for their `latency`. Units are bound to instructions before their operands are there: where the two are near each
    other, a unit waits for a sum that is late, and sums for a unit that is taken. So it takes longer than the longer of
    the two: by a fifth where they are equal, by a twentieth where one is one and a half times the other. (Measured on a
    Zen 5 with tiles of 4 to 30 sums, in vectors of 8 and of 16 lanes: docs/findings.md.)"""
    return math.sqrt(math.hypot(busy * busy, latency * latency))


def _latency(sums: Sums, target: Target) -> float:
    """Cycles from one product to the next that is added to the same sum."""
    return TILE_LATENCY if sums.dot is not None and sums.dot.in_tiles else target.core.fma_latency


def _multiply_cycles(sums: Sums, target: Target) -> float:
    """Cycles of a vector of products, added to their sums; products of 32-bit integers are two steps."""
    if sums.dot is not None and sums.dot.instruction:
        return product_cycles(sums.dot.instruction, target)
    core = target.core
    if sums.instructions:
        return sums.instructions * core.add_cycles
    return 2 * core.fma_cycles + core.add_cycles if sums.integers else core.fma_cycles


@lru_cache(maxsize=1 << 8)
def product_cycles(instruction: str, target: Target) -> float:
    """Cycles of the products of an instruction by themselves: the core's rate counts conversions of operands, too,
    which a tile does once for each vector or element, so it is that of the fastest one with the same products."""
    own = named(instruction)
    assert own is not None
    alike = [own]
    if own.conversions:
        others = (row for row in INSTRUCTIONS.values() if not row.conversions and row.runs_on(target))
        alike += [row for row in others if row.products == own.products]
    return min(target.dot_cycles(row.name) for row in alike)


@dataclass(frozen=True, slots=True)
class Dot:
    """How products of narrow numbers are added up: by an `instruction` of the table, `depth` at a time, or one by one
    in vectors without it (""); and the types in which tiles read the elements of rows and the vectors, which are
    widened to these when they are packed."""

    instruction: str
    element: str
    vector: str

    @property
    def row(self) -> Instruction | None:
        """The instruction's."""
        return named(self.instruction)

    @property
    def in_tiles(self) -> bool:
        """Whether registers of two dimensions hold the sums."""
        return self.row is not None and self.row.has_tiles

    @property
    def depth(self) -> int:
        """The products that are added to a lane at a time."""
        first = self.row.registers[0] if self.row else None
        return 1 if first is None else first.row if first.is_tile else first.shape[-1]

    @property
    def beside(self) -> int:
        """How many terms of a column the packed vector operand has next to each other."""
        return self.row.registers[0].shape[-1] if self.row else 1

    @property
    def rows(self) -> int:
        """The rows of sums that an instruction adds to."""
        acc = self.row.accumulator if self.row else None
        return acc.shape[0] if acc is not None and acc.is_tile else 1

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
        assert self.row is not None
        return self.row.accumulator.lanes // self.rows

    def of_rows(self, rows: int, copied: bool = True) -> Iterator[Dot]:
        """Of an instruction of tiles, that with the most rows that divide so many; and itself, where the rows of a last
        tile may be `copied` to have room for others."""
        assert self.row is not None
        dividing = [n for n in range(self.rows, 1, -1) if rows % n == 0]
        for each in dict.fromkeys((*dividing[:1], *([self.rows] if copied else ()))):
            yield replace(self, instruction=self.row.with_rows(each).name)

    def registers(self, target: Target) -> int:
        """Those that a tile may hold: less one for products that an instruction adds by a further step, and one for
        elements where nothing is operated on in memory. Of tiles there are others."""
        if self.rows > 1:
            return TILE_REGISTERS
        own = len(self.row.products) > 1 if self.row else False
        return tile_registers(target) - own - (not target.operates_on_memory)

    def converted(self, target: Target) -> tuple[float, float]:
        """Cycles in which the instruction widens each vector, and each element, in registers."""
        row = self.row
        if row is None or not row.conversions:
            return 0.0, 0.0
        each = max(target.dot_cycles(row.name) - product_cycles(row.name, target), 0.0) / len(row.conversions)
        first, second = (each * any(f"{{{r.name}}}" in line for line in row.conversions) for r in row.registers[:2])
        return (first, second) if row.registers[0].dtype.name != self.element else (second, first)
