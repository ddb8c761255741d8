"""The ways to run a contraction in tiles, as data: register tiles, how operands are packed, cache blocks.

What follows from a tile in closed form (how many tiles of rows make a block, how many panels a group) is a field of a
choice, too. Which one is best is a matter of price (plan/gemm/price.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.analysis.sizes import even_terms
from tilewright.plan.gemm.shape import Size
from tilewright.plan.price import contraction
from tilewright.plan.price.contraction import Dot, RegisterTile
from tilewright.plan.price.dots import choose_dot
from tilewright.plan.tile.loops import MANY, WRITTEN_OUT
from tilewright.target import Target
from tilewright.target.registers import free_places, tallest, tallest_apart, tile_registers
from tilewright.target.transfer import fits, memory, panel_cycles, room_in

MOST_TERMS = 4
"""The most terms that are written out: more take longer to compile, and no less to run."""
SPREAD = 4
"""Tiles that fetch the next panel at the full rate of memory wait for it; at so small a part of the rate they do not.
No property of a machine: queues in front of memory are long where requests come as fast as they are served."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`block_tiles` tiles of rows make a cache block (of columns, where there are no rows); `block_panels` panels are
    worked on for all rows before others are, or all (None), and packed together where a call packs them; sums are cut
    into blocks of `block_terms` terms, or None; the operands that are packed; and whether a block of rows stays in the
    second cache while panels stream by (`rows_stay`), or each panel that a call packs while rows stream by. A tile
    reads `streams` panels at once.

    A constant is prefetched while the panel or the tile of rows before is computed, `prefetch` elements at a time,
    which are a line of a cache; or (0) comes when it is read. Of a dynamic number of rows, those left over run in tiles
    of as many rows as `parts` says, the tallest first; the first `prefetch_tiles` tiles of `part` prefetch. Or each
    tile prefetches its own panel, `distance` terms ahead. `terms` of the innermost loop are written out, or a
    divisor of so many, the kernel of a window among them. Panels that a call packs are packed before their tiles, or
    (`first_packs`) by the first of these as it reads them; so are differences of two constants (before their tiles
    where rows are dynamic), or each tile takes them. With a `dot`, products are added up by an instruction, or of wider
    copies: the vector operand is packed for it, and so are the elements of rows (`pack_broadcast`) where they do not
    lie ready. The rows of a tile are those of `beside` batches, such as rows of an image. With `next_row`, the row of
    an image that windows reach next is prefetched meanwhile."""

    tile: RegisterTile
    block_tiles: int
    block_terms: int | None
    pack_vector: bool
    pack_broadcast: bool
    block_panels: int | None = None
    rows_stay: bool = True
    streams: int = 1
    prefetch: int = 0
    prefetch_tiles: int | None = None
    distance: int = 0
    parts: tuple[int, ...] | None = None
    terms: int = 1
    first_packs: bool = False
    dot: Dot | None = None
    beside: int = 1
    next_row: bool = False

    @property
    def panel_columns(self) -> int:
        """The columns of a panel of the packed vector operand."""
        return self.tile.columns // self.streams

    @property
    def packing(self) -> tuple[object, ...]:
        """How constants lie for it."""
        return self.pack_vector, self.panel_columns, self.pack_broadcast, self.dot

    @property
    def part(self) -> RegisterTile:
        """The tile that this one, and each that rows left over run in, is several of."""
        return replace(self.tile, rows=math.gcd(self.tile.rows, *(self.parts or ())))

    @property
    def packs_in_first_tile(self) -> bool:
        """Whether the first tile of rows packs a panel as it reads it: of a dynamic number there may be none."""
        return self.first_packs and self.parts is None

    @property
    def leaves_out(self) -> bool:
        """Whether terms that the loops around a tile know to be zero are left out."""
        return self.block_terms is None and self.dot is None and not self.first_packs and self.part == self.tile

    def left_over(self, rows: int) -> Iterator[tuple[int, RegisterTile]]:
        """The tiles that so many rows, less than a tile's, run in, and how many rows each kind has."""
        return in_parts(self.tile, self.parts or (), rows)

    def of_parts(self) -> Choice:
        """The choice in tiles of `part`."""
        return replace(self, tile=self.part, block_tiles=self.block_tiles * (self.tile.rows // self.part.rows))


def in_parts(tile: RegisterTile, parts: Sequence[int], rows: int) -> Iterator[tuple[int, RegisterTile]]:
    """The tiles of `parts` rows that so many rows, less than a tile's, run in, and how many rows each kind has: as many
    as there are of the tallest first; the last of the smallest may not be full."""
    for n, part in enumerate(parts, 1):
        whole = rows // part * part if n < len(parts) else rows
        if whole:
            yield whole, replace(tile, rows=part)
        rows -= whole


def choices(size: Size, target: Target) -> Iterator[Choice]:
    """The ways to run a contraction as it lies. None where its vector operand cannot be read in vectors."""
    if size.columns < 2:
        return
    for choice in _of_rows(size, target) if size.rows else _of_one_row(size, target):
        yield replace(
            choice, terms=written_out(choice.tile, target, size.parts, any_rows=size.any_rows) if size.rows else 1
        )
    dot = None if size.instructions else choose_dot(size.element.dtype, size.vector.dtype, size.sums, target)
    if dot is not None and size.vector.plain and size.adds_together and size.summed >= dot.depth:
        for choice in of_dot(size.taken(dot), target):
            yield replace(choice, pack_broadcast=not size.is_ready(dot), dot=dot)


def of_dot(size: Size, target: Target) -> Iterator[Choice]:
    """The ways to run a contraction whose operands are packed for an instruction."""
    for tile in likely_tiles(size, target):
        if size.vector.constant:
            yield from (c for c in _of_constant(size, tile, target) if c.block_terms is None)
        else:
            yield Choice(tile, max(size.row_tiles(tile), 1), None, True, False, rows_stay=False)


def _of_one_row(size: Size, target: Target) -> Iterator[Choice]:
    """Each element of the vector operand is read once: in tiles of one row of as many vectors as half of the registers
    hold, packed before a call or as it lies, a few terms of all panels of a block at a time."""
    lanes, streams = size.lanes(target), target.streams
    if size.vector.constant and size.vector.plain:
        line = max(target.caches[0].line // size.vector.bytes, lanes)
        for vectors in range(1, min(tile_registers(target) // 2, -(-size.columns // lanes)) + 1):
            if vectors <= streams or vectors % streams == 0:
                tile = RegisterTile(1, vectors, lanes)
                at_once = next((n for n in range(streams, 1, -1) if tile.columns % (n * line) == 0), 1)
                yield Choice(tile, 1, None, True, False, streams=at_once)
    elif size.vector.step in (1, 2):
        terms = streams if size.vector.plain and size.axes == 1 and size.terms > streams else None
        for tile in contraction.tiles(size.tile_sums(1, size.terms, target), target, spread=size.spread):
            yield Choice(tile, _panels_of_results(size, tile, target) if terms else 1, terms, False, False)


def _panels_of_results(size: Size, tile: RegisterTile, target: Target) -> int:
    """How many panels of a row of results stay in the first cache while terms are added to them, in blocks of one
    size; all of them where there is none."""
    panels = size.panels(tile)
    most = target.caches[0].bytes // 2 // (tile.columns * size.bits // 8)
    if size.columns % tile.columns or size.any_columns:
        return panels
    return next((n for n in range(min(most, panels), panels // MANY, -1) if panels % n == 0), panels)


def _of_rows(size: Size, target: Target) -> Iterator[Choice]:
    """Tiles of rows: each way to bring panels, with each register tile that comes near the best."""
    vector, likely = size.vector, likely_tiles(size, target)
    if vector.plain and vector.constant:
        for tile in likely:
            yield from _of_constant(size, tile, target)
        return
    for tile in likely if vector.plain else ():
        yield from _packed_by_the_call(size, tile, target)
    for tile in likely if (vector.step or 0) > 0 else ():
        yield from _as_it_lies(size, tile, target)


@lru_cache(maxsize=1 << 10)
def likely_tiles(size: Size, target: Target) -> tuple[RegisterTile, ...]:
    """Of the register tiles that fit, the two best of each width by their registers alone, the two best with free
    places, and the two best whose rows have room in the sets of the first cache: the more accumulators, the earlier. A
    tile that registers alone make longer than what caches add to the best one (with room, if it has it) is left out."""
    sums = size.tile_sums(max(size.rows, 1), size.terms, target, parts=size.parts, panel=1, elements=1)
    side_by_side = size.element.step == 1 and not size.element.constant
    # Places lie apart by a constant, but for rows over the end. Beside one vector, loads are as many as products; with
    # several columns of vectors, tall tiles save next to none.
    even, high = 0 if size.any_rows else size.rows, 1 if size.dot is None else size.dot.rows
    places = most = tallest(target)
    if side_by_side:
        places = free_places(target)
    elif size.columns <= sums.lanes(target):
        most = tallest_apart(target)
    fitting = [
        t
        for t in contraction.tiles(sums, target, most if size.rows else 1, spread=size.spread)
        if t.rows <= places * high or (even and even % t.rows == 0)
    ]
    price = {t: contraction.cycles(sums, t, target) for t in sorted(fitting, key=lambda t: -t.rows * t.vectors)}
    room = room_in(target.caches[0].room(size.element.apart))
    kinds: dict[tuple[int, bool, bool], list[RegisterTile]] = {}
    for has_room in (False, True):
        best = min((price[t] for t in price if t.rows <= room or not has_room), default=0.0)
        for tile in sorted(price, key=lambda t: price[t]):
            if (tile.rows <= room) == has_room and price[tile] <= (1 + target.core.unhidden) * best:
                kinds.setdefault((tile.vectors, tile.rows <= free_places(target), has_room), []).append(tile)
    return tuple(sorted((t for found in kinds.values() for t in found[:2]), key=lambda t: -t.rows * t.vectors))


def _of_constant(size: Size, tile: RegisterTile, target: Target) -> Iterator[Choice]:
    """Panels are packed before any call. All rows pass by a panel, or a block of them that stays in a cache while
    groups of panels do."""
    in_tiles = size.dot is not None and size.dot.in_tiles
    # Of counted rows places lie apart by a constant, and need no registers of their own.
    counted = not size.any_rows and (size.own > 1 or size.rows % tile.rows == 0 or in_tiles)
    ahead = (size.axes == 1 or size.dot is not None) and (tile.rows <= free_places(target) or counted)
    for block in row_blocks(size, tile, target):
        blocks = -(-size.rows // (block * tile.rows))
        near = panels_near(size, tile, blocks, target) if blocks > 1 else None
        even = near is None or size.panels(tile) % near == 0
        parts = None if not size.any_rows else (tile.rows,) if in_tiles else best_parts(size, tile, target)
        plain = Choice(tile, block, None, True, size.constant_rows, near, parts=parts)
        line = target.caches[0].line // size.vector.bytes
        alone = size.rows <= tile.rows and not size.shares_panels  # comes at a part of memory's rate if nothing asks
        asks = ahead and even and size.dot is None and (size.any_rows or size.rows <= tile.rows)
        found = [] if asks and alone else [plain]
        if ahead and even and (size.rows > tile.rows or size.shares_panels):
            tiles = None if parts is None else tiles_ahead(size, tile, target) * (tile.rows // plain.part.rows)
            found.append(replace(plain, prefetch=line, prefetch_tiles=tiles))
        if asks:
            distance = -(-2 * target.page // (tile.columns * size.vector.bytes))
            found.append(replace(plain, prefetch=line, distance=distance))
        yield from found
        held = tile.rows * tile.vectors + tile.vectors + 2  # with what a difference is taken in
        spare = size.parts > 1 and held <= tile_registers(target)
        if spare and (blocks == 1 or size.any_rows) and size.columns % tile.columns == 0:
            yield from (replace(each, first_packs=True) for each in found if not each.distance)
    panel = tile.columns * size.vector.bytes
    each = size.terms // max(size.turns, 1)  # terms of an iteration of the first loop over terms
    most = int(room_in(target.cache(2).bytes)) // max(each * panel, 1)
    if size.dot is None and fits(panel * size.terms, target) > 2 and 1 <= most < size.turns:
        terms = even_terms(size.turns, most) * each
        for block in row_blocks(replace(size, terms=terms), tile, target):
            yield Choice(tile, block, terms, True, size.constant_rows)


def _packed_by_the_call(size: Size, tile: RegisterTile, target: Target) -> Iterator[Choice]:
    """Panels of an operand that a call brings are packed one by one before their tiles, where not all terms of one stay
    in the second cache in blocks of terms; or by the first tile that reads them. Rows of a constant are prefetched."""
    ahead = target.caches[0].line // size.element.bytes if size.constant_rows and size.axes == 1 else 0
    plain = Choice(tile, size.row_tiles(tile), None, True, size.constant_rows, rows_stay=False, prefetch=ahead)
    if size.vector.step != 1:
        if size.is_turned and size.columns % tile.columns == 0 and not size.any_columns:
            yield plain  # first, since of alike prices the first one is taken: it takes less memory
        yield replace(plain, rows_stay=True)
        return
    whole = size.columns % tile.columns == 0 and not size.any_columns
    alone = size.axes == 1 and size.batch == 1 and not size.any_rows
    if whole and alone and size.is_float and size.panels(tile) >= MANY:
        yield replace(plain, first_packs=True)
    yield plain
    terms = int(room_in(target.cache(2).bytes) / 2) // (tile.columns * size.vector.bytes)
    if size.axes == 1 and 1 < terms < size.terms:
        yield replace(plain, block_terms=even_terms(size.terms, terms), prefetch=0)


def _as_it_lies(size: Size, tile: RegisterTile, target: Target) -> Iterator[Choice]:
    """Panels are read where they are; sums may be cut where a cache has no room in the sets that rows begin in."""
    far = fits(size.vector.image, target) > 2
    plain = Choice(tile, size.row_tiles(tile), None, False, size.constant_rows, next_row=far)
    yield plain
    if size.constant_rows and size.axes == 1:
        yield replace(plain, prefetch=target.caches[0].line // size.vector.bytes)
    if size.vector.plain and size.axes == 1:
        room = int(room_in(target.cache(2).room(size.vector.apart)))
        for most in (room, room // 2):
            if 1 < most < size.terms:
                yield replace(plain, block_terms=even_terms(size.terms, most))


def row_blocks(size: Size, tile: RegisterTile, target: Target) -> list[int]:
    """Tiles of rows in a cache block: all of them, or as many as stay in a cache while panels stream by, in an even
    number of blocks of about equal size. Of a dynamic number of rows blocks are the outer loop, of many iterations."""
    all_tiles = max(size.row_tiles(tile), 1)
    if size.any_rows:
        all_tiles = -(-all_tiles // MANY)
    found = {all_tiles: None}
    for cache in target.kept_caches[1:]:
        fitting = int(room_in(cache.bytes) / (2 * cache.shared)) // (size.terms * size.element.bytes * tile.rows)
        blocks = -(-all_tiles // max(fitting, 1))
        if fitting > 0 and blocks > 1:
            found[-(-all_tiles // (blocks + blocks % 2))] = None
    return list(found)


def panels_near(size: Size, tile: RegisterTile, blocks: int, target: Target) -> int | None:
    """How many panels are worked on for all rows before others are; None where all stay in the last cache while block
    after block of rows passes by. Groups are so many, and evenly many, that threads can share them, with `blocks`
    blocks of rows in each."""
    panels, last = size.panels(tile), target.kept_caches[-1]
    most = int(room_in(last.bytes) / (2 * last.shared)) // (tile.columns * size.terms * size.vector.bytes)
    if panels <= max(most, 1):
        return None
    groups = max(-(-panels // max(most, 1)), -(-MANY // blocks))
    return -(-panels // (groups + groups % 2))


def tiles_ahead(size: Size, tile: RegisterTile, target: Target) -> int:
    """Of how many tiles of rows the arithmetic takes `SPREAD` times as long as memory takes to deliver a panel."""
    term = contraction.term_cycles(size.tile_sums(tile.rows, size.terms, target), tile, target)
    panel = tile.columns * size.vector.bytes * panel_cycles(memory(target), target, asked=True)
    return math.ceil(SPREAD * panel / term)


@lru_cache(maxsize=1 << 10)
def best_parts(size: Size, tile: RegisterTile, target: Target) -> tuple[int, ...]:
    """The tiles in which rows that are left over take the least in the mean, the tallest first: multiples of one, which
    divides the tile's, up to half of it. One after the other is added that saves most, as long as that is more than
    prices err by, and all of them have at most a quarter more rows than the tile: code takes time to compile."""
    room = tile.rows + tile.rows // 4

    @lru_cache
    def term(rows: int) -> float:
        return contraction.term_cycles(size.tile_sums(rows, size.terms, target), replace(tile, rows=rows), target)

    def left_over(parts: Sequence[int]) -> float:
        runs = (run for left in range(1, tile.rows) for run in in_parts(tile, parts, left))
        return sum(-(-rows // part.rows) * term(part.rows) for rows, part in runs)

    def grown(least: int) -> tuple[int, ...]:
        parts: tuple[int, ...] = (least,)
        while True:
            most = min(tile.rows // 2, room - sum(parts))
            taller = (rows for rows in range(2 * least, most + 1, least) if rows not in parts)
            more = [tuple(sorted((*parts, rows), reverse=True)) for rows in taller]
            best = min(more, key=left_over, default=parts)
            if best == parts or not contraction.pays(left_over(parts), left_over(best)):
                return parts
            parts = best

    return min((grown(rows) for rows in range(tile.rows, 0, -1) if tile.rows % rows == 0), key=left_over)


def written_out(tile: RegisterTile, target: Target, parts: int = 1, *, any_rows: bool = False) -> int:
    """How many terms of a tile are written out. To count and to move places on is up to a quarter of the instructions
    of a term, and a core that runs two threads issues half as many for each. In a loop of one term prefetchers see each
    load move by an element, and ask for the next lines of rows late. More terms at once would not stay in registers
    where LLVM loads ahead what it multiplies by, or both parts of differences; nor would those of tall tiles where the
    next term's vectors have none, or where dynamic rows, or as many as there may be, take all general registers."""
    ahead = target.loaded_ahead or (parts > 1 and not target.operates_on_memory)
    no_vectors = (tile.rows + 2) * tile.vectors >= target.vector_registers
    if ahead or (tile.rows > free_places(target) and (any_rows or no_vectors or tile.rows == tallest(target))):
        return 1
    return max(min(MOST_TERMS, WRITTEN_OUT // (tile.rows * tile.vectors)), 1)
