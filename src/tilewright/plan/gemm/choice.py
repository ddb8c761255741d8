"""How a contraction is run, chosen in closed form: its register tile, its cache blocks, which operands are packed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.expr.nodes import Const
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.gemm.operands import (
    FEW_ROWS,
    first_tile_packs,
    least_cycles,
    line_elements,
    packing_pays,
    tallest,
    terms_in_cache,
)
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.registers import (
    DIFFERENCE,
    STREAMS,
    TALLEST,
    RegisterTile,
    choose_even_tile,
    choose_register_tile,
    choose_row_tile,
    tile_registers,
)
from tilewright.target import Target

PANEL_SHARE = 3 / 4
"""A panel of the vector operand may take this part of the second cache; sums over more terms are cut into blocks."""

ROWS_SHARE, LEAST_ROWS, DEEP_ROWS = 0.3, 32, 96
"""Of more rows, those whose operand takes this part of the second cache while panels stream by. Where these would be
fewer than the second number, sums are so deep that rows stream by, too, as many as the third for each panel."""

NEAR_SHARE = 1 / 8
"""Panels that are worked on before others are may take this part of the last cache, which other cores use, too."""

PACKED_SHARE, PACKED_TERMS = 3 / 8, 1024
"""Panels that a call packs together may take this part of the second cache, and have so many terms."""

GROUPS = 6
"""Threads share groups of panels that a call packs evenly where there are at least so many."""

MANY = 8
"""Iterations that several threads can share evenly."""

MANY_ROWS = 2 << 20
"""Bytes of the broadcast operand that are too many to stream by group after group of packed panels."""

FEW_TERMS = 8
"""The terms of a block where rows of an operand that lies as it came are read side by side: what caches can follow."""

SPREAD_REGISTERS = 6
"""What putting a vector together from elements that lie apart takes beside the vector."""

FAR_SHARE = 1 / 2
"""Panels that together take more than this part of the second cache come from beyond it."""

MOST_PLACES = 8
"""The most rows of a tile, each with a general register for its place, that leave one for a place to fetch ahead."""

MOST_TERMS, MANY_TERMS, LARGE, MOST_WRITTEN_OUT = 4, 8, 1 << 24, 120
"""The most terms that are written out; of products of at least so many multiply-adds, which repay what it takes to
compile them; and the most multiply-adds of taps and terms that an inner loop is written out to."""

NEAR = 16384
"""Bytes of a result that stay in the first cache while block after block of terms is added to them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`block_tiles` tiles of rows make a cache block (of columns, where there are no rows); `block_panels` panels are
    worked on for all rows before others are, or all (None), and packed together where a call packs them; sums are cut
    into blocks of `block_terms` terms, or None; the operands that are packed; and whether a block of rows stays in the
    second cache while panels stream by, or panels do while rows stream by. A tile reads `streams` panels at once.
    What a constant holds is brought near while the panel or the tile of rows before is computed, `ahead` elements at a
    time, which are a line of a cache; or (0) comes when it is read. `terms` of the innermost loop are written out, or a
    divisor of so many, the taps of windows among them. Panels that a call packs are packed before their tiles, or
    (`first_packs`) by the first of these as it reads them."""

    tile: RegisterTile
    block_tiles: int
    block_terms: int | None
    pack_vector: bool
    pack_broadcast: bool
    block_panels: int | None = None
    rows_stay: bool = True
    streams: int = 1
    ahead: int = 0
    terms: int = 1
    first_packs: bool = False

    @property
    def panel_columns(self) -> int:
        """The columns of a panel of the packed vector operand."""
        return self.tile.columns // self.streams


def choose(found: Contraction, target: Target) -> Choice | None:
    """The choice; None where the vector operand cannot be read in vectors."""
    blocks = _choose_blocks(found, target)
    if blocks is None or found.rows is None:
        return blocks
    return replace(blocks, terms=terms_at_once(found, blocks.tile, target))


def _choose_blocks(found: Contraction, target: Target) -> Choice | None:
    """The choice without the terms that are written out."""
    lanes = max(target.vector_bits // max(found.out.dtype.bits, 32), 2)
    step = found.vector.step(found.block.axes[found.columns].var)
    rows = known(found.extents[found.rows]) if found.rows is not None else 1
    columns, depth = known(found.extents[found.columns]), found.depth
    if columns < 2:
        return None
    pack_vector = found.vector.is_plain() and packing_pays(found, rows, step, target)
    if not pack_vector and step not in (1, 2):
        return None
    if step == 1 and found.vector.is_plain() and found.rows is not None:
        tile = _choose_tile(found, True, tile_registers(target), lanes, target, least_cycles(found, target))
        if first_tile_packs(found, rows, tile.columns, pack_vector, target):
            constant = found.broadcast.is_plain() and found.broadcast.is_constant
            return Choice(tile, -(-rows // tile.rows), None, True, constant, rows_stay=False, first_packs=True)
    registers = tile_registers(target) - (0 if pack_vector or step == 1 else SPREAD_REGISTERS)
    tile = _choose_tile(found, pack_vector, registers, lanes, target)
    pack_broadcast = found.broadcast.is_plain() and found.broadcast.is_constant and found.rows is not None
    size = found.broadcast.buffer.dtype.bytes
    rows_stay = found.vector.is_constant or rows * depth * size > MANY_ROWS
    terms = _block_terms(found, tile, pack_vector, rows_stay, target)
    if found.rows is None and terms is not None:
        return Choice(tile, max(NEAR // (tile.columns * found.out.dtype.bytes), 1), terms, pack_vector, pack_broadcast)
    if pack_vector and not rows_stay:
        group = _packed_together(found, tile, terms or depth, target) if step == 1 else None
        return Choice(tile, -(-rows // tile.rows), terms, pack_vector, pack_broadcast, group, rows_stay)
    together = rows_in_cache(tile, rows, terms or depth, size, target)
    group = None
    if pack_vector and terms is None and together * tile.rows < rows:
        group = _panels_near(found, tile, -(-rows // (together * tile.rows)), target)
    streams = _streams(found, tile, target) if pack_vector and found.rows is None else 1
    far = together > 1 and tile.rows <= _most_places(found, target) and _plain_panels_come_from_afar(found, target)
    ahead = line_elements(found, target) if terms is None and (far or _rows_come_from_afar(found, target)) else 0
    return Choice(tile, together, terms, pack_vector, pack_broadcast, group, streams=streams, ahead=ahead)


def _choose_tile(
    found: Contraction, pack_vector: bool, registers: int, lanes: int, target: Target, least: float = 0.0
) -> RegisterTile:
    """The register tile, for so many registers of so many lanes, where a term of a packed panel takes `least` cycles at
    least."""
    rows = known(found.extents[found.rows]) if found.rows is not None else 1
    columns, depth = known(found.extents[found.columns]), found.depth
    if found.rows is None and pack_vector:
        return choose_row_tile(columns, registers, lanes)
    if _rows_side_by_side(found):
        near = int(target.caches[0].bytes * PANEL_SHARE) // (depth * found.vector.buffer.dtype.bytes)
        return choose_even_tile(rows, columns, depth, registers, lanes, MOST_PLACES, near)
    grouped = pack_vector and (not found.vector.is_constant or bool(found.own_batches))
    least = least if pack_vector else least_cycles(found, target)
    tall = min(tallest(found, target), _most_places(found, target))
    traffic = DIFFERENCE if found.own_batches else 0.0
    any_rows = found.rows is not None and not isinstance(found.extents[found.rows], Const)
    return choose_register_tile(rows, columns, depth, registers, lanes, tall, grouped, least, traffic, any_rows)


def _most_places(found: Contraction, target: Target) -> int:
    """The most rows of a tile. Of several products by constants of their own, rows lie apart by numbers that are known,
    and need no registers."""
    return MOST_PLACES if _plain_panels_come_from_afar(found, target) and not found.own_batches else TALLEST


def _rows_side_by_side(found: Contraction) -> bool:
    """Whether the rows are neighbours in an operand that only a call knows, and panels of a constant meet them."""
    if found.rows is None or not found.vector.is_constant or found.broadcast.is_constant:
        return False
    return found.broadcast.is_plain() and found.broadcast.step(found.block.axes[found.rows].var) == 1


def terms_at_once(found: Contraction, tile: RegisterTile, target: Target) -> int:
    """How many terms of a tile are written out. To count and to move places on is up to a quarter of the instructions
    of a term, and a core that runs two threads issues half as many for each. Where LLVM loads ahead what it multiplies
    by, or rows take all general registers, more terms at once would not stay in registers."""
    if tile.rows > MOST_PLACES or target.architecture == "aarch64":
        return 1
    work = math.prod(map(known, found.extents))
    most = MANY_TERMS if work >= LARGE else MOST_TERMS
    return max(min(most, MOST_WRITTEN_OUT // (tile.rows * tile.vectors)), 1)


def _streams(found: Contraction, tile: RegisterTile, target: Target) -> int:
    """How many panels, whole cache lines wide, a tile of one row reads at once: what comes from memory for one use
    comes faster in a few streams than in one."""
    line = max(line_elements(found, target), tile.lanes)
    return next((n for n in range(STREAMS, 1, -1) if tile.columns % (n * line) == 0), 1)


def _plain_panels_come_from_afar(found: Contraction, target: Target) -> bool:
    """Whether the panels of a tensor, not those of windows, come from beyond the second cache."""
    return len(found.reduce) == 1 and panels_come_from_afar(found, target)


def panels_come_from_afar(found: Contraction, target: Target) -> bool:
    """Whether panels of a constant come from beyond the second cache. The first tile that reads one would wait for it:
    what the processor fetches ahead by itself ends with each page."""
    batches = math.prod(known(found.extents[n]) for n in found.batch if found.vector.moves(found.block.axes[n].var))
    size = batches * known(found.extents[found.columns]) * found.depth * found.vector.buffer.dtype.bytes
    far = size > target.cache(2).bytes * FAR_SHARE
    return far and found.vector.is_constant and found.rows is not None


def _rows_come_from_afar(found: Contraction, target: Target) -> bool:
    """Whether tiles of a constant that meets the panels come from beyond the second cache, as they do when it has room
    in that: between two calls a network reads all of its constants. A tile of few kilobytes waits at each page."""
    if found.rows is None or not (found.broadcast.is_constant and found.broadcast.is_plain()):
        return False
    size = known(found.extents[found.rows]) * found.depth * found.broadcast.buffer.dtype.bytes
    return size > target.caches[0].bytes and len(found.reduce) == 1


def rows_in_cache(tile: RegisterTile, rows: int, depth: int, bytes_each: int, target: Target) -> int:
    """How many tiles of rows are worked on before the next column panel is: all of few; of many as many as stay in the
    second cache while panels stream by, or repay a panel, in an even number of blocks of about equal size."""
    tiles = -(-rows // tile.rows)
    if rows <= FEW_ROWS:
        return tiles
    fitting = int(target.cache(2).bytes * ROWS_SHARE / max(depth * bytes_each, 1))
    most = (fitting if fitting >= LEAST_ROWS else DEEP_ROWS) // tile.rows
    return -(-tiles // _even(-(-tiles // max(most, 1))))


def _even(parts: int) -> int:
    """As many parts or one more, so that two threads have as many each; one stays one."""
    return parts + parts % 2 if parts > 1 else parts


def _panels_near(found: Contraction, tile: RegisterTile, blocks: int, target: Target) -> int | None:
    """How many panels stay in the last cache while block after block of rows passes by; None where all do. Groups are
    so many, and evenly many, that threads can share them, with `blocks` blocks of rows in each."""
    panels, size = _panels(found, tile, found.depth)
    most = max(int(target.caches[-1].bytes * NEAR_SHARE) // size, 1)
    if found.vector.is_constant:
        return None if panels <= most else -(-panels // _even(max(-(-panels // most), -(-MANY // blocks))))
    return _divisor(panels, most)


def _packed_together(found: Contraction, tile: RegisterTile, terms: int, target: Target) -> int | None:
    """How many panels of an operand that a call packs stay in the second cache while tile after tile of rows passes by.
    They are packed together, so that its rows are read in longer pieces; None of them are where groups would be few."""
    panels, size = _panels(found, tile, terms)
    return _divisor(panels, min(int(target.cache(2).bytes * PACKED_SHARE) // size, panels // GROUPS))


def _panels(found: Contraction, tile: RegisterTile, terms: int) -> tuple[int, int]:
    """The number of panels, and the bytes of each with so many terms."""
    size = tile.columns * terms * found.vector.buffer.dtype.bytes
    return -(-known(found.extents[found.columns]) // tile.columns), size


def _divisor(panels: int, most: int) -> int | None:
    """The largest group of at most so many panels that all groups can be as large as, or one of half that size where
    threads then share an even number of groups; None where that is one panel."""
    fits = [n for n in range(2, min(most, panels) + 1) if panels % n == 0]
    even = [n for n in fits if panels // n % 2 == 0 and 2 * n >= fits[-1]]
    return max(even or fits, default=None)


def _block_terms(found: Contraction, tile: RegisterTile, packed: bool, rows_stay: bool, target: Target) -> int | None:
    """The terms of a block: few where one row of the result is made of an operand as it lies; of more rows, so many
    that a packed panel leaves room in the second cache, or another stays there; None where a sum is best left whole."""
    if len(found.reduce) != 1:
        return None
    if found.rows is None and not packed and found.vector.is_plain():
        return FEW_TERMS if found.depth > FEW_TERMS else None
    if found.rows is None:
        return None
    most = terms_in_cache(found, target)
    if packed:
        most = int(target.cache(2).bytes * PANEL_SHARE) // (tile.columns * found.out.dtype.bytes)
        most = most if rows_stay else min(most, PACKED_TERMS)
    if most is None or found.depth <= most:
        return None
    return -(-found.depth // -(-found.depth // most))
