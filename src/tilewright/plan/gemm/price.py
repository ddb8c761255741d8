"""What a choice for a contraction takes: its register tile, with both operands where the loops around it keep them.

Between two uses of a panel, or of the elements of a tile of rows, loops bring other data by: what fits into a cache
together with these is found there again. So each operand comes for the first time from where it lies, and from then on
from the nearest cache that holds what passes by in between. Rows that begin a power of two apart share few sets of a
cache (`Cache.room`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from tilewright.analysis.zero_terms import left_out
from tilewright.plan.gemm.choice import SPREAD, Choice
from tilewright.plan.gemm.shape import Lies, Size
from tilewright.plan.price.contraction import MARGIN, RegisterTile, Sums, added_cycles, cycles
from tilewright.plan.price.points import copy_cycles, transpose_cycles
from tilewright.target import Target
from tilewright.target.registers import tallest
from tilewright.target.transfer import (
    byte_cycles,
    fits,
    level_of_sets,
    move_cycles,
    panel_cycles,
    pieces_cycles,
    room_in,
    wait_cycles,
)

CONSTANTS = 32
"""How many constants of a size a network has: that much is read between two uses of one."""


Runs = Sequence[tuple[int, RegisterTile]]
"""The tiles that a block of rows runs in, and how many rows each kind has."""


@lru_cache(maxsize=1 << 13)
def seconds(choice: Choice, size: Size, target: Target) -> float:
    """Seconds of one core for all batches. Dynamic rows and columns are priced as many and as a usual number, dynamic
    rows as one, too."""
    size = size.side_by_side(choice.beside)
    if replace(size, dot=choice.dot).shares_panels:
        whole = replace(size, rows=size.row_tiles(choice.tile) * choice.tile.rows)
        choice = replace(choice, block_tiles=size.row_tiles(choice.tile) * size.batch)
        size = replace(whole, lines=size.batch).side_by_side(size.batch)
    found = _seconds(choice, size.taken(choice.dot), target)
    if choice.dot is None or not choice.pack_broadcast:
        return found
    rows = max(size.rows, 1) * size.batch if size.batched_elements else max(size.rows, 1)
    copied = 0 if size.element.constant else rows * size.terms
    return found + copy_cycles(copied, size.lanes(target), target) / target.core.hertz


def _seconds(choice: Choice, size: Size, target: Target) -> float:
    if not size.rows and choice.dot is None:
        return size.batch * _one_row(choice, size, target) / target.core.hertz
    own = size.own if size.vector.constant else size.batch
    found = own * of_sizes(lambda numbers: _rows(choice, numbers, target), size)
    if own < size.batch:
        found += (size.batch - own) * of_sizes(lambda numbers: _rows(choice, numbers, target, again=True), size)
    if size.any_rows:
        single = cycles(size.tile_sums(1, size.terms, target), choice.part, target)
        most = tallest(target) * size.columns * size.terms / choice.tile.lanes * target.core.fma_cycles
        # How often calls have one row, nobody knows: a tile that is better for it may be worse by what prices err.
        found *= 1 + (MARGIN - 1) * single / most
    share = left_out(size.edges, choice.tile.rows) if choice.leaves_out else 1.0
    return found * share / target.core.hertz


def of_sizes(price: Callable[[Size], float], size: Size) -> float:
    """A price of all results: where rows or columns are dynamic, the mean of what a result takes among many and among
    as many as are usual."""
    many, usual = price(size), size.usually
    results = size.rows * size.columns, usual.rows * usual.columns
    return many if usual == size else (many + price(usual) * max(results[0], 1) / max(results[1], 1)) / 2


def _one_row(choice: Choice, size: Size, target: Target) -> float:
    """Cycles of a row of results: each vector comes once from where it lies. Of terms in blocks, results are taken up
    and put down for each."""
    terms = choice.block_terms or size.terms
    lies = where(size.vector, size.columns * size.terms * size.vector.bytes * size.batch, target)
    stride = 1 if choice.pack_vector else size.vector.step or 1
    sums = size.tile_sums(1, terms, target, panel=lies, elements=1, stride=stride)
    return cycles(sums, choice.tile, target) * size.terms / terms


def _rows(choice: Choice, size: Size, target: Target, again: bool = False) -> float:
    """Cycles of one product of rows: those of its blocks of terms and of rows. Where batches before have read the same
    panels, these come from nearer `again`: of the batches that pass by a panel, or by all. Vectors beyond the last one
    of a dynamic number of columns, or of tiles of the machine, are computed, too."""
    if size.any_columns or (choice.dot is not None and choice.dot.in_tiles):
        size = replace(size, columns=size.panels(choice.tile) * choice.tile.columns)
    tile, vector = choice.tile, size.vector
    blocks = -(-size.terms // choice.block_terms) if choice.block_terms else 1
    terms = -(-size.terms // blocks)
    rows = min(choice.block_tiles * tile.rows, max(size.rows, 1))
    row_blocks = -(-max(size.rows, 1) // rows)
    sums = _sums(choice, size, rows, terms, target)
    lies = where(vector, size.terms * size.columns * vector.bytes * size.own, target)
    if again:
        passed = size.panels_outside or (blocks > 1 and size.axes > 1 and size.own == 1)
        held = _panel_bytes(choice, size, terms) if passed else vector.held // size.own
        lies = fits(held + _element_bytes(size, rows, terms), target)
    panels = choice.block_panels or (size.panels(tile) if choice.rows_stay else 1)
    near = fits(panels * _panel_bytes(choice, size, terms) + _element_bytes(size, rows, terms), target)
    if _packs_all(choice, size):
        near = max(near, fits(vector.held, target))
    left = sums.rows % tile.rows if choice.parts else 0
    runs = [(n, t) for n, t in ((sums.rows - left, tile), *choice.left_over(left)) if n]
    work = _work(sums, runs, target)
    found = row_blocks * work + _first(choice, size, sums, runs, lies, target)
    later = row_blocks - 1 + (choice.pack_vector and not (vector.constant or choice.first_packs))
    if later:
        found += later * _again(choice, size, sums, runs, near, target)
    busy, waits = row_blocks * work, _results(choice, size, target)
    found += target.core.together(busy, waits) - busy
    return blocks * (found + _first_rows(choice, size, sums, target)) + _taken_up(choice, size, blocks, target)


def _taken_up(choice: Choice, size: Size, blocks: int, target: Target) -> float:
    """Cycles in which sums that are added block by block are cleared before the first, where results lie, and come
    again for each, from the cache that holds all of a product. What vectors store goes there while the next ones
    multiply; tiles of the machine multiply as fast as caches deliver, and wait for that, too."""
    moved = size.rows * size.columns * size.bits // 8
    if choice.block_terms is None:
        return 0.0
    cleared, again = fits(moved * size.batch, target), fits(moved, target)
    stored = byte_cycles(again, target, stores=True) if choice.dot is not None and choice.dot.in_tiles else 0.0
    return moved * (byte_cycles(cleared, target, stores=True) + blocks * (byte_cycles(again, target) + stored))


def _results(choice: Choice, size: Size, target: Target) -> float:
    """Cycles until the rows of all tiles of results have come, as far as each is on a page of its own: it is a piece
    that prefetchers have not followed there, and a line that two pieces share comes twice. A tile asks for those of the
    next, which come while that one multiplies; so what lies in memory has left it by then."""
    rows, columns = size.usual
    row, piece = (n * size.bits // 8 for n in (columns, choice.tile.columns))
    level, line = min(fits(rows * row * size.batch, target), len(target.caches)), target.caches[0].line
    pieces = size.rows * size.panels(choice.tile) * (2 - math.gcd(piece, line) / line)
    return pieces_cycles(pieces, row, level, target) if level > 1 else 0.0


def _sums(choice: Choice, size: Size, rows: int, terms: int, target: Target) -> Sums:
    """The sums of a block of rows and terms, with both operands where they are from their second use on."""
    tile, vector, element = choice.tile, size.vector, size.element
    panel, of_tile = _panel_bytes(choice, size, terms), tile.rows * terms * element.bytes
    beside = panel if choice.first_packs else 0  # what the first tile reads to pack it
    level = fits(panel + beside + of_tile, target)
    lost = not (choice.pack_vector or size.any_columns) and leave_near_caches(vector, terms, target)
    if not choice.pack_vector and vector.plain:
        level = max(level, level_of_sets(vector.apart, terms, target))
    all_rows = _element_bytes(size, rows, size.terms)
    again = fits(all_rows + panel, target) if size.columns > tile.columns else where(element, all_rows, target)
    room = target.caches[0].room(element.apart)
    # Panels pass through the same sets.
    crowded = not choice.pack_vector and target.caches[0].room(vector.apart) <= room
    kept = choice.pack_broadcast or element.step == 1
    kept = kept or tile.rows <= room_in(room / 2 if crowded else room)
    return size.tile_sums(
        rows,
        terms,
        target,
        panel=level,
        elements=again,
        parts=1 if choice.first_packs else size.parts,
        packs=size.parts if choice.packs_in_first_tile and vector.constant else 0,
        stride=1 if choice.pack_vector else vector.step or 1,
        aligned=choice.pack_vector or vector.apart % target.caches[0].line == 0,
        scattered=lost or (not choice.pack_vector and is_scattered(size, target)),
        brought=size.element.bytes if kept else target.caches[0].line,
    )


def _work(sums: Sums, runs: Runs, target: Target) -> float:
    """Cycles of all tiles of a block of rows, with panels where they are from their second use on."""
    return sum(cycles(replace(sums, rows=rows), tile, target) for rows, tile in runs)


def _first(choice: Choice, size: Size, sums: Sums, runs: Runs, source: int, target: Target) -> float:
    """Cycles that the first use of all panels adds to those of later ones: they come from where the operand lies, and
    are packed where a call does that."""
    tile, vector = choice.tile, size.vector
    whole = size.columns * sums.steps * vector.bytes
    if not choice.pack_vector or vector.constant:
        apart = choice.first_packs and not choice.packs_in_first_tile
        found = _again(choice, size, sums, runs, source, target)
        return found + (_differences(choice, size, whole, source, target) if apart else 0.0)
    if choice.first_packs:
        level = max(source, sums.panel)
        added = added_cycles(sums, tile, target, panel=level, scattered=is_scattered(size, target))
        return added + target.core.unhidden * whole / (tile.lanes * vector.bytes) * target.core.store_cycles
    pieces: float = sums.steps * size.panels(tile)
    if size.is_turned:  # the terms of a column are one, on each page
        pieces = size.columns * max(whole / max(size.columns, 1) / target.page, 1.0)
    # A copy of a piece of a row waits for its page and for its line; of rows that an instruction interleaves, one waits
    # while another one does.
    waits = wait_cycles(source, target) * (2 if choice.dot is None else 1)
    waiting = pieces * waits * min(vector.apart / target.page, 1.0)
    elements = whole / _copied_bytes(choice, size)
    if size.axes == 1 and (choice.rows_stay or size.is_turned):
        moved = transpose_cycles(elements, tile.lanes, target)
    else:
        moved = copy_cycles(elements, tile.lanes if vector.step == 1 else 1, target)
    if vector.step != 1 and size.columns % tile.columns:
        # Panels over an edge are not copied line by line: each line is brought again for each of its elements.
        moved += whole / vector.bytes * target.caches[0].line * byte_cycles(2, target)
    packed = vector.held if _packs_all(choice, size) else _panel_bytes(choice, size, sums.steps)
    return moved + move_cycles(whole, source, fits(packed, target), target) + waiting


def _again(choice: Choice, size: Size, sums: Sums, runs: Runs, source: int, target: Target) -> float:
    """Cycles that a use of all panels adds where they come from a level of cache behind that of the uses that follow:
    with the first tile, a constant that is prefetched while the panel before is computed."""
    level, tile = max(source, sums.panel), runs[0][1]
    whole = size.columns * sums.steps * size.vector.bytes * size.brought
    read = replace(sums, parts=sums.packs or sums.parts)
    if not (choice.prefetch and size.vector.constant):
        stops = size.vector.constant and level > sums.panel and sums.rows > choice.tile.rows
        pages = whole / target.page if stops else 0.0  # a stream that other tiles interrupt ends with each
        return added_cycles(read, tile, target, panel=level) + pages * wait_cycles(level, target)
    hidden, asked, waits = (1 - target.core.unhidden) * _work(sums, runs, target), 1.0, 0.0
    comes = whole * panel_cycles(level, target, asked=True)
    tiles = sums.rows / choice.tile.rows
    if choice.distance:
        hidden /= max(tiles, 1.0)
    elif choice.prefetch_tiles is not None:
        first = choice.prefetch_tiles * choice.part.rows / choice.tile.rows
        if first < tiles:  # some ask for what all could share, faster than it comes
            hidden *= first / tiles
            waits = target.core.unhidden * max(comes - hidden / SPREAD, 0.0)
        asked = min(tiles / first, 1.0)
    found = _asking(whole, target) + max(asked * comes - hidden, waits)
    # Nothing asks for columns left over, in a loop of their own, and for the first panel, unless its tiles do.
    alone = 0 if choice.block_panels else size.columns % choice.tile.columns
    alone += 0 if choice.distance else min(choice.tile.columns, size.columns - alone)
    missed = alone + (1 - asked) * (size.columns - alone)
    return found + missed / size.columns * added_cycles(read, tile, target, panel=level)


def _differences(choice: Choice, size: Size, whole: int, source: int, target: Target) -> float:
    """Cycles to store the differences of two constants, `whole` bytes of them, before the tiles that read them: both
    come from where they lie, or from the second cache where they were asked for."""
    lies = min(source, 2) if choice.prefetch else source
    copied = copy_cycles(whole / size.vector.bytes, choice.tile.lanes, target, aligned=True)
    return copied + size.parts * whole * byte_cycles(lies, target)


def _first_rows(choice: Choice, size: Size, sums: Sums, target: Target) -> float:
    """Cycles that the first use of all rows adds: they come from where they lie, a constant while the tile before is
    computed where it is prefetched; to ask for it again for each panel is hidden. A packed one that is not prefetched,
    line after line, is waited for, for each panel if the second cache does not keep it."""
    tile, element, panels = choice.tile, size.element, size.panels(choice.tile)
    whole = _element_bytes(size, size.rows, sums.steps)
    source = where(element, whole, target)
    if choice.prefetch and not size.vector.constant:
        return (1 + (panels - 1) * target.core.unhidden) * _asking(whole, target)
    if size.constant_rows:
        again = byte_cycles(sums.elements, target) if sums.elements > 2 else 0.0
        return whole * (byte_cycles(max(source, sums.elements), target) + (panels - 1) * again)
    first = replace(sums, columns=min(tile.columns, size.columns))
    each = added_cycles(first, tile, target, elements=max(source, sums.elements))
    return size.row_tiles(tile) * each


def _asking(whole: float, target: Target) -> float:
    """Cycles to prefetch so many bytes, line by line: each takes a load, and room for what is on its way."""
    return whole / target.caches[0].line * 2 * target.core.load_cycles


def is_scattered(size: Size, target: Target) -> bool:
    """Whether the rows of a panel, as the vector operand lies, have to be waited for one by one."""
    return size.vector.plain and size.vector.apart >= target.page and size.terms > target.pages_followed


def leave_near_caches(operand: Lies, terms: int, target: Target) -> bool:
    """Whether the rows of an operand, as it lies, are gone from the first two caches when they are read again, since
    they share a few of their sets: they are waited for one by one, for nothing follows lines that come again."""
    return operand.plain and operand.apart >= target.page and level_of_sets(operand.apart, terms, target) > 2


def _packs_all(choice: Choice, size: Size) -> bool:
    """Whether a call packs the panels of all batches before any tile."""
    return choice.pack_vector and choice.rows_stay and not size.vector.constant


def _panel_bytes(choice: Choice, size: Size, terms: int) -> int:
    """Bytes of a panel of so many terms: those of a window overlap, and are not more than there are."""
    held = choice.tile.columns * terms * size.vector.bytes
    return held if size.vector.plain else min(held, size.vector.whole)


def _copied_bytes(choice: Choice, size: Size) -> float:
    """Bytes of a lane that a call copies at a time: the terms that lie next to each other for an instruction."""
    return size.vector.bytes * (choice.dot.beside / choice.dot.depth if choice.dot is not None else 1)


def _element_bytes(size: Size, rows: int, terms: int) -> int:
    """Bytes of so many terms of so many rows: those of windows overlap."""
    held = rows * terms * size.element.bytes
    return held if size.element.plain else min(held, size.element.whole)


def where(operand: Lies, whole: int, target: Target) -> int:
    """The level of cache where an operand of so many bytes lies when a kernel begins."""
    return lies(whole, operand.constant, target)


def lies(whole: int, constant: bool, target: Target) -> int:
    """The level of cache where so many bytes lie when a kernel begins. Between two uses of a constant the others of its
    network are read."""
    return max(fits(whole * CONSTANTS, target), 3) if constant else fits(whole, target)
