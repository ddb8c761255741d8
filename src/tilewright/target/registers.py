"""What the registers of a machine let a tile of sums have."""

from __future__ import annotations

from .target import Target


def tallest(target: Target) -> int:
    """The most rows of a tile: where the place of each row is known to a call alone, it has a general register each,
    beside the stack's, the panel's, and that of the count of terms."""
    return target.addresses - 3


def tallest_apart(target: Target) -> int:
    """The most rows of a tile whose places lie apart by a constant, and need no registers of their own. Of more, loads
    of vectors are a thirtieth of all at most, and a core does not see beyond such a tile to ask for the next one's rows
    (16 images of 56×56 by 4 groups of 16 channels: 14 rows 538 µs, 28 rows 738)."""
    return target.addresses


def free_places(target: Target) -> int:
    """The most rows of a tile that leave as many general registers as they take: for the places of terms that are
    written out, or for one to prefetch from where the last tile is not whole."""
    return target.addresses // 2


def tile_registers(target: Target, parts: int = 1) -> int:
    """The vector registers that a tile may hold: all, less those for products that are no part of a sum yet, and for
    elements loaded ahead, or for both parts of a difference where nothing is operated on in memory."""
    ahead = max(target.loaded_ahead, parts if parts > 1 and not target.operates_on_memory else 0)
    return target.vector_registers - ahead - (0 if target.has_fma else 1)
