"""Whether operands of a contraction are read as they lie or packed: what the sets of the caches have room for.

Rows that lie apart by a multiple of a cache's line begin in few of its sets: 768 floats apart in four of the 64 of a
first cache, 1024 apart in one. What of a panel does not find room there is read again from further away.
"""

from __future__ import annotations

from tilewright.expr.nodes import Const
from tilewright.loops.nodes import Buffer
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.registers import TALLEST
from tilewright.target import Target
from tilewright.target.host import Cache

FEW_ROWS = 144
"""As many rows are worked on together whatever cache their operand stays in: each panel serves all of them."""

ROWS_OF_SPREAD, ROWS_OF_VECTORS = 16, 12
"""From so many rows on, packing an operand that only a call knows is paid back by them: one whose vectors are spread in
memory; and one that lies in vectors already, far apart, if reading it so is slow at all."""

ROWS_OF_SETS = 48
"""From so many rows on, packing pays for an operand whose rows begin in one set of the first cache, if the first tile
packs it."""

PANEL_SHARE = 1 / 4
"""A panel that the first tile packs takes this part of the second cache at most: rows pass by it."""

LEAST_PANELS = 8
"""So many panels are shared evenly by a few threads."""

LAST_SHARE = 1 / 4
"""Rows that pass by each panel take this part of the last cache at most."""

FEW_SHORT_ROWS, SHORT_BYTES = 96, 2048
"""The most rows that read panels of rows of fewer bytes as they lie, where vectors lie across two lines."""

NEAR_SHARE, FAR_SHARE = 1 / 2, 1 / 2
"""The rows of a panel may take these parts of the sets of the first and of the second cache."""

WHOLE_SHARE, LEAST_TERMS = 3 / 4, 256
"""A panel that takes at most this part of the second cache's sets is not cut into blocks; no block has fewer terms, or
results would be taken up and put down for too little."""

SET_CYCLES = 12
"""The least cycles of a term where all rows of the vector operand begin in one set of the first cache, measured: they
take as long for one vector as for three."""

ROWS_OF_WAYS = 3 / 4
"""The rows of a tile may take this part of the sets of the first cache."""


def packing_pays(found: Contraction, rows: int, step: int | None, target: Target) -> bool:
    """Whether the vector operand is packed: a constant always, because that costs calls nothing; another for as many
    rows as pay for it, where its vectors are spread, or its panels do not stay in the first cache as they lie. Few
    rows, which are worked on together, read a panel from memory once as it lies, and then from the second cache."""
    if found.vector.is_constant:
        return True
    if step != 1:
        return rows >= ROWS_OF_SPREAD
    if rows < ROWS_OF_VECTORS or found.depth <= _room(found.vector.buffer, target.caches[0]) * NEAR_SHARE:
        return False
    apart = _bytes_apart(found.vector.buffer)
    return rows > (FEW_SHORT_ROWS if apart < SHORT_BYTES and apart % target.caches[0].line else FEW_ROWS)


def terms_in_cache(found: Contraction, target: Target) -> int | None:
    """How many terms of a panel stay in the second cache while rows pass by, where the panel lies as it came; None
    where all do."""
    rows = known(found.extents[found.rows]) if found.rows is not None else 1
    if not found.vector.is_plain() or rows < ROWS_OF_VECTORS:
        return None
    room = _room(found.vector.buffer, target.cache(2))
    return None if found.depth <= room * WHOLE_SHARE else max(int(room * FAR_SHARE), LEAST_TERMS)


def tallest(found: Contraction, target: Target) -> int:
    """The most rows of a tile: what one tile reads of rows that lie as they came stays in the first cache from one line
    to the next only if it leaves room in its sets for the panel that streams by."""
    if not found.broadcast.is_plain() or found.broadcast.is_constant:
        return TALLEST
    return max(min(int(_room(found.broadcast.buffer, target.caches[0]) * ROWS_OF_WAYS), TALLEST), 1)


def first_tile_packs(found: Contraction, rows: int, columns: int, packed: bool, target: Target) -> bool:
    """Whether the first tile of rows packs a panel of so many columns, term by term as it needs them, for those that
    follow: of an operand that only a call knows, which is `packed` anyway or whose rows begin in one set of the first
    cache. Its panels are whole, stay in the second cache, and are enough for threads to share; and all rows, which pass
    by each panel, come from the last cache at most."""
    if found.rows is None or not all(isinstance(found.extents[n], Const) for n in (found.rows, found.columns)):
        return False
    if rows < ROWS_OF_SETS or not (packed or _begin_in_one_set(found, target)) or len(found.reduce) != 1:
        return False
    plain = found.out.dtype.is_float and found.out.dtype is found.vector.buffer.dtype
    if found.vector.is_constant or not plain or any(known(found.extents[n]) > 1 for n in found.batch):
        return False
    size, wide = found.vector.buffer.dtype.bytes, known(found.extents[found.columns])
    fits = columns * found.depth * size <= target.cache(2).bytes * PANEL_SHARE
    near = rows * found.depth * size <= target.caches[-1].bytes * LAST_SHARE
    return fits and near and wide % columns == 0 and wide // columns >= LEAST_PANELS


def least_cycles(found: Contraction, target: Target) -> float:
    """The least cycles of a term by any tile that reads the vector operand as it lies."""
    return SET_CYCLES if _begin_in_one_set(found, target) else 0.0


def _begin_in_one_set(found: Contraction, target: Target) -> bool:
    """Whether all rows of the vector operand begin in one set of the first cache."""
    first = target.caches[0]
    return found.vector.is_plain() and _room(found.vector.buffer, first) <= first.ways


def line_elements(found: Contraction, target: Target) -> int:
    """The elements of the vector operand that a line of a cache holds."""
    return target.caches[0].line // found.vector.buffer.dtype.bytes


def _room(buffer: Buffer, cache: Cache) -> int:
    """How many rows of a buffer find room in a cache, a line of each."""
    return cache.room(_bytes_apart(buffer))


def _bytes_apart(buffer: Buffer) -> int:
    return known(buffer.shape[-1]) * buffer.dtype.bytes
