"""The ways to run a contraction in tiles, as data: register tiles, how operands are packed, cache blocks.

What follows from a tile in closed form (how many tiles of rows make a block, how many panels a group) is a field of a
choice, too. Which one is best is a matter of price (plan/gemm/price.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.plan.gemm.shape import Size
from tilewright.plan.price.contraction import cycles, tiles
from tilewright.plan.price.dots import Dot, choose_dot
from tilewright.plan.price.transfer import fits, room_in
from tilewright.plan.tile.nest import MANY, MOST_WRITTEN_OUT
from tilewright.plan.tile.registers import RegisterTile, free_places, tallest
from tilewright.target import Target

MOST_TERMS, MANY_TERMS, LARGE = 4, 8, 1 << 24
"""The most terms that are written out; and of products of at least so many multiply-adds, which repay what it takes to
compile them. What compiling is worth is no rate of a core."""

NEARLY = 1.12
"""Tiles that take longer than this by their registers alone are not priced with caches: none of them gains that."""

FEW_TERMS = 8
"""The terms of a block where rows of an operand that lies as it came are read side by side: what prefetchers follow."""

STREAMS = 4
"""The most panels that a tile of one row reads at once: what comes from memory for one use comes faster in a few
streams than in one, and prefetchers lose count of many."""

SPREAD_REGISTERS = 6
"""What putting a vector together from elements that lie apart takes beside the vector."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`block_tiles` tiles of rows make a cache block (of columns, where there are no rows); `block_panels` panels are
    worked on for all rows before others are, or all (None), and packed together where a call packs them; sums are cut
    into blocks of `block_terms` terms, or None; the operands that are packed; and whether a block of rows stays in the
    second cache while panels stream by, or panels do while rows stream by. A tile reads `streams` panels at once.
    A constant is prefetched while the panel or the tile of rows before is computed, `prefetch` elements at a time,
    which are a line of a cache; or (0) comes when it is read. `terms` of the innermost loop are written out, or a
    divisor of so many, the kernel of a window among them. Panels that a call packs are packed before their tiles, or
    (`first_packs`) by the first of these as it reads them. A vector operand that columns move by several elements may
    be deinterleaved into `phases`. With a `dot`, products are added up by an instruction, or of wider copies: the
    vector operand is packed for it, and so are the elements of rows (`pack_broadcast`) where they do not lie ready."""

    tile: RegisterTile
    block_tiles: int
    block_terms: int | None
    pack_vector: bool
    pack_broadcast: bool
    block_panels: int | None = None
    rows_stay: bool = True
    streams: int = 1
    prefetch: int = 0
    terms: int = 1
    first_packs: bool = False
    phases: int = 1
    dot: Dot | None = None

    @property
    def panel_columns(self) -> int:
        """The columns of a panel of the packed vector operand."""
        return self.tile.columns // self.streams


def choices(size: Size, target: Target) -> Iterator[Choice]:
    """The ways to run a contraction as it lies. None where its vector operand cannot be read in vectors."""
    if size.columns < 2:
        return
    plain = replace(size, vector=replace(size.vector, step=1))
    for phases in (1, size.vector.step or 1):
        if phases > 1 and not _can_deinterleave(size):
            break
        each = plain if phases > 1 else size
        for choice in _of_rows(each, target) if size.rows else _of_one_row(each, target):
            yield replace(choice, phases=phases, terms=written_out(size, choice.tile, target) if size.rows else 1)
        if phases == size.vector.step:
            break
    dot = choose_dot(size.element.dtype, size.vector.dtype, size.sums, target)
    if dot is not None and size.vector.plain and size.summed >= dot.depth:
        for choice in _of_dot(size.taken(dot), target):
            yield replace(choice, pack_broadcast=not size.is_ready(dot), dot=dot)


def _of_dot(size: Size, target: Target) -> Iterator[Choice]:
    """The ways to run a contraction whose operands are packed for an instruction."""
    for tile in likely_tiles(size, target):
        if size.vector.constant:
            yield from (c for c in _of_constant(size, tile, False, target) if c.block_terms is None)
        else:
            yield Choice(tile, -(-max(size.rows, 1) // tile.rows), None, True, False, rows_stay=False)


def _can_deinterleave(size: Size) -> bool:
    """Whether columns move the vector operand by several elements, few enough that phases fill vectors."""
    step = size.vector.step
    return step is not None and step >= 2 and not size.any_columns and size.rows > 0


def _of_one_row(size: Size, target: Target) -> Iterator[Choice]:
    """Each element of the vector operand is read once: in tiles of one row of as many vectors as half of the registers
    hold, packed before a call or as it lies, a few terms of all panels of a block at a time."""
    lanes, columns = size.lanes(target), size.columns
    if size.vector.constant and size.vector.plain:
        line = max(target.caches[0].line // size.vector.bytes, lanes)
        for vectors in range(1, min(size.registers(target) // 2, -(-columns // lanes)) + 1):
            if vectors <= STREAMS or vectors % STREAMS == 0:
                tile = RegisterTile(1, vectors, lanes)
                streams = next((n for n in range(STREAMS, 1, -1) if tile.columns % (n * line) == 0), 1)
                yield Choice(tile, -(-1 // tile.rows), None, True, False, streams=streams)
    elif size.vector.step in (1, 2):
        terms = FEW_TERMS if size.vector.plain and size.axes == 1 and size.terms > FEW_TERMS else None
        registers = size.registers(target) - (SPREAD_REGISTERS if size.vector.step == 2 else 0)
        for tile in tiles(size.tile_sums(1, columns, size.terms, target), target, registers=registers):
            yield Choice(tile, _panels_of_results(size, tile, target) if terms else 1, terms, False, False)


def _panels_of_results(size: Size, tile: RegisterTile, target: Target) -> int:
    """How many panels of a row of results stay in the first cache while terms are added to them, in blocks of one
    size; all of them where there is none."""
    panels = -(-size.columns // tile.columns)
    most = target.caches[0].bytes // 2 // (tile.columns * size.bits // 8)
    if size.columns % tile.columns or size.any_columns:
        return panels
    return next((n for n in range(min(most, panels), panels // MANY, -1) if panels % n == 0), panels)


def _of_rows(size: Size, target: Target) -> Iterator[Choice]:
    """Tiles of rows: each way to bring panels, with each register tile that comes near the best."""
    constant_rows = size.element.plain and size.element.constant
    if size.vector.plain and size.vector.constant:
        for tile in likely_tiles(size, target):
            yield from _of_constant(size, tile, constant_rows, target)
        return
    if size.vector.plain:
        for tile in likely_tiles(size, target):
            yield from _packed_by_the_call(size, tile, constant_rows, target)
    if size.vector.step in (1, 2):
        for tile in likely_tiles(size, target):
            yield from _as_it_lies(size, tile, constant_rows, target)


@lru_cache(maxsize=1 << 10)
def likely_tiles(size: Size, target: Target) -> tuple[RegisterTile, ...]:
    """Of the register tiles that fit and come near the best of them, the two best of each width, and the two best with
    free places: the more accumulators, the earlier."""
    spread = SPREAD_REGISTERS if (size.vector.step or 1) > 1 and not size.vector.constant else 0
    sums = size.tile_sums(max(size.rows, 1), size.columns, size.terms, target)
    sums = replace(sums, parts=size.parts, panel=1, elements=1)
    side_by_side = size.element.step == 1 and not size.element.constant
    most = 1 if not size.rows else free_places(target) if side_by_side else tallest(target)
    fitting = tiles(sums, target, most, registers=size.registers(target) - spread)
    price = {t: cycles(sums, t, target) for t in sorted(fitting, key=lambda t: -t.rows * t.vectors)}
    near = [t for t in sorted(price, key=lambda t: price[t]) if price[t] <= NEARLY * min(price.values())]
    alike: dict[tuple[int, bool], list[RegisterTile]] = {}
    for tile in near:
        alike.setdefault((tile.vectors, tile.rows <= free_places(target)), []).append(tile)
    kept = [tile for found in alike.values() for tile in found[:2]]
    return tuple(sorted(kept, key=lambda t: -t.rows * t.vectors))


def _of_constant(size: Size, tile: RegisterTile, constant_rows: bool, target: Target) -> Iterator[Choice]:
    """Panels are packed before any call. All rows pass by a panel, or a block of them that stays in a cache while
    groups of panels do."""
    line = target.caches[0].line // size.vector.bytes
    # Rows then lie apart by a constant, and need no places of their own.
    counted = size.own > 1 or (not size.any_rows and size.rows % tile.rows == 0)
    alone = size.axes == 1 or size.dot is not None
    ahead = (0, line) if alone and size.rows > tile.rows and (tile.rows <= free_places(target) or counted) else (0,)
    for block in row_blocks(size, tile, target):
        blocks = -(-size.rows // (block * tile.rows))
        near = panels_near(size, tile, blocks, target) if blocks > 1 else None
        even = near is None or -(-size.columns // tile.columns) % near == 0
        for prefetch in ahead if even else (0,):
            yield Choice(tile, block, None, True, constant_rows, near, prefetch=prefetch)
    panel = tile.columns * size.vector.bytes
    if size.axes == 1 and fits(panel * size.terms, target) > 2:
        terms = even_terms(size.terms, int(room_in(target.cache(2).bytes)) // panel)
        for block in row_blocks(replace(size, terms=terms), tile, target):
            yield Choice(tile, block, terms, True, constant_rows)


def _packed_by_the_call(size: Size, tile: RegisterTile, constant_rows: bool, target: Target) -> Iterator[Choice]:
    """Panels of an operand that a call brings are packed in groups that stay in the second cache for all rows, or
    each by the first tile that reads it."""
    tiles_of_rows = -(-size.rows // tile.rows)
    if size.vector.step != 1:
        yield Choice(tile, tiles_of_rows, None, True, constant_rows)
        return
    whole = size.columns % tile.columns == 0 and not size.any_columns
    if whole and size.axes == 1 and size.batch == 1 and not size.any_rows and size.is_float:
        if size.columns // tile.columns >= MANY:
            yield Choice(tile, tiles_of_rows, None, True, constant_rows, rows_stay=False, first_packs=True)
    for terms in {None, *term_blocks(size, tile, target)} if size.axes == 1 else {None}:
        yield Choice(tile, tiles_of_rows, terms, True, constant_rows, rows_stay=False)
    for block in row_blocks(size, tile, target):
        near = largest_divisor(-(-size.columns // tile.columns), panels_in_last_cache(size, tile, target))
        if near is not None and block * tile.rows < size.rows:
            yield Choice(tile, block, None, True, constant_rows, near)


def _as_it_lies(size: Size, tile: RegisterTile, constant_rows: bool, target: Target) -> Iterator[Choice]:
    """Panels are read where they are; sums may be cut where a cache has no room in the sets that rows begin in."""
    tiles_of_rows = -(-size.rows // tile.rows)
    line = target.caches[0].line // size.vector.bytes
    ahead = (0, line) if constant_rows and size.axes == 1 else (0,)
    for prefetch in ahead:
        yield Choice(tile, tiles_of_rows, None, False, constant_rows, prefetch=prefetch)
    if size.vector.plain and size.axes == 1:
        room = int(room_in(target.cache(2).room(size.vector.apart)))
        for most in (room, room // 2):
            if 1 < most < size.terms:
                yield Choice(tile, tiles_of_rows, even_terms(size.terms, most), False, constant_rows)


def row_blocks(size: Size, tile: RegisterTile, target: Target) -> list[int]:
    """Tiles of rows in a cache block: all of them, or as many as stay in a cache while panels stream by, in an even
    number of blocks of about equal size. Of a dynamic number of rows blocks are the outer loop, of many iterations."""
    all_tiles = max(-(-size.rows // tile.rows), 1)
    if size.any_rows:
        all_tiles = -(-all_tiles // MANY)
    found = {all_tiles: None}
    for cache in target.caches[1:]:
        fitting = int(room_in(cache.bytes) / (2 * cache.shared)) // (size.terms * size.element.bytes * tile.rows)
        blocks = -(-all_tiles // max(fitting, 1))
        if fitting > 0 and blocks > 1:
            found[-(-all_tiles // (blocks + blocks % 2))] = None
    return list(found)


def panels_in_last_cache(size: Size, tile: RegisterTile, target: Target) -> int:
    """How many panels stay in the last cache while block after block of rows passes by."""
    last = target.caches[-1]
    return max(int(room_in(last.bytes) / (2 * last.shared)) // (tile.columns * size.terms * size.vector.bytes), 1)


def panels_near(size: Size, tile: RegisterTile, blocks: int, target: Target) -> int | None:
    """How many panels are worked on for all rows before others are; None where all stay in the last cache. Groups are
    so many, and evenly many, that threads can share them, with `blocks` blocks of rows in each."""
    panels, most = -(-size.columns // tile.columns), panels_in_last_cache(size, tile, target)
    if panels <= most:
        return None
    groups = max(-(-panels // most), -(-MANY // blocks))
    return -(-panels // (groups + groups % 2))


def largest_divisor(panels: int, most: int) -> int | None:
    """The largest group of at most so many panels that all groups can be as large as, or one of half that size where
    threads then share an even number of groups; None where that is one panel."""
    fitting = [n for n in range(2, min(most, panels) + 1) if panels % n == 0]
    even = [n for n in fitting if panels // n % 2 == 0 and 2 * n >= fitting[-1]]
    return max(even or fitting, default=None)


def term_blocks(size: Size, tile: RegisterTile, target: Target) -> list[int]:
    """Terms of a block, where the panel of all terms does not stay in the second cache beside the rows."""
    most = int(room_in(target.cache(2).bytes) / 2) // (tile.columns * size.vector.bytes)
    return [even_terms(size.terms, most)] if 1 < most < size.terms else []


def even_terms(terms: int, most: int) -> int:
    """Terms of blocks of about equal size, of at most so many."""
    return -(-terms // -(-terms // max(most, 1)))


def written_out(size: Size, tile: RegisterTile, target: Target) -> int:
    """How many terms of a tile are written out. To count and to move places on is up to a quarter of the instructions
    of a term, and a core that runs two threads issues half as many for each. Where LLVM loads ahead what it multiplies
    by, or rows take all general registers, more terms at once would not stay in registers."""
    if tile.rows > free_places(target) or target.architecture == "aarch64":
        return 1
    most = MANY_TERMS if size.work >= LARGE else MOST_TERMS
    return max(min(most, MOST_WRITTEN_OUT // (tile.rows * tile.vectors)), 1)
