"""How a contraction is run, chosen in closed form: its register tile, its cache blocks, which operands are packed."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.plan.contraction import Contraction
from tilewright.plan.register_tiles import RegisterTile, choose_register_tile, known, tile_registers, tiles_in_block
from tilewright.target import Target

PANEL_SHARE = 6
"""A panel of the vector operand may take this part of the second cache; sums over more terms are cut into blocks."""

FEW_TERMS = 16
"""The terms of a block where rows of an operand that lies as it came are read side by side: what caches can follow."""

ROWS_OF_SPREAD, ROWS_OF_VECTORS = 16, 48
"""From so many rows on, packing an operand that only a call knows is paid back by them: one whose vectors are spread in
memory, and one that lies in vectors already."""

NEAR = 8192
"""Bytes of a result that stay in the first cache while block after block of terms is added to them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`block_tiles` tiles of rows make a cache block (of columns, where there are no rows); sums are cut into blocks of
    `block_terms` terms, or None; and the operands that are packed."""

    tile: RegisterTile
    block_tiles: int
    block_terms: int | None
    pack_vector: bool
    pack_broadcast: bool


def choose(found: Contraction, target: Target) -> Choice | None:
    """The choice; None where the vector operand cannot be read in vectors."""
    lanes = max(target.vector_bits // max(found.out.dtype.bits, 32), 2)
    step = found.vector.step(found.block.axes[found.columns].var)
    rows = known(found.extents[found.rows]) if found.rows is not None else 1
    columns, depth = known(found.extents[found.columns]), found.depth
    if columns < 2:
        return None
    pays = found.vector.is_constant or rows >= (ROWS_OF_SPREAD if step != 1 else ROWS_OF_VECTORS)
    pack_vector = found.vector.is_plain() and pays
    if not pack_vector and step not in (1, 2):
        return None
    tile = choose_register_tile(rows, columns, depth, tile_registers(target), lanes)
    pack_broadcast = found.broadcast.is_plain() and found.broadcast.is_constant and found.rows is not None
    size = found.broadcast.buffer.dtype.bytes
    terms = _block_terms(found, tile, pack_vector, target)
    if found.rows is None and terms is not None:
        return Choice(tile, max(NEAR // (tile.columns * found.out.dtype.bytes), 1), terms, pack_vector, pack_broadcast)
    together = -(-rows // tile.rows)
    if not pack_vector or found.vector.is_constant or terms is not None:
        together = tiles_in_block(tile, rows, terms or depth, size, target)
    return Choice(tile, together, terms, pack_vector, pack_broadcast)


def _block_terms(found: Contraction, tile: RegisterTile, packed: bool, target: Target) -> int | None:
    """The terms of a block: few where one row of the result is made of an operand as it lies; where panels are packed,
    so many that a panel leaves room in the second cache; None where a sum is best left whole."""
    if len(found.reduce) != 1:
        return None
    if found.rows is None and not packed and found.vector.is_plain():
        return FEW_TERMS if found.depth > FEW_TERMS else None
    cache = target.caches[1].bytes if len(target.caches) > 1 else target.caches[0].bytes
    most = cache // PANEL_SHARE // (tile.columns * found.out.dtype.bytes)
    if not packed or found.rows is None or found.depth <= most:
        return None
    return -(-found.depth // -(-found.depth // most))
