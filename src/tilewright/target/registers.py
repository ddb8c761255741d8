"""What the registers of a machine let a tile of sums have."""

from __future__ import annotations

from .target import Target


def tallest(target: Target) -> int:
    """The most rows of a tile: where the place of each row is known to a call alone, it has a general register each,
    beside the stack's, the panel's, and that of the count of terms."""
    return target.addresses - 3


def free_places(target: Target) -> int:
    """The most rows of a tile that leave as many general registers as they take: for the places of terms that are
    written out, or for one to prefetch from where the last tile is not whole."""
    return target.addresses // 2


def tile_registers(target: Target, parts: int = 1) -> int:
    """The vector registers that a tile may hold: all, less those for products that are no part of a sum yet, and for
    elements loaded ahead, or for both parts of a difference where nothing is operated on in memory."""
    ahead = max(target.loaded_ahead, parts if parts > 1 and not target.operates_on_memory else 0)
    return target.vector_registers - ahead - (0 if target.has_fma else 1)
