"""The ways to run an attention, as data: the register tiles of its two products, and how many rows are worked on
together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.plan.price.attention import Size, best_tiles, seconds
from tilewright.plan.tile.nest import MANY
from tilewright.plan.tile.registers import RegisterTile
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Choice:
    """The register tiles of the scores and of the second product; the rows of a block; and whether blocks may overlap,
    so that only heads are shared by threads: rows left over then make a block together with rows of the one before.
    Reductions of so many rows, or of one row in so many vectors, run side by side (`together`, `chains`). Of both
    products so many `terms` are written out."""

    scores: RegisterTile
    sums: RegisterTile
    rows: int
    overlap: bool
    together: int
    chains: int
    terms: tuple[int, int] = (1, 1)


def choices(size: Size, target: Target) -> Iterator[Choice]:
    """Blocks of about equal size that have at least two tiles of rows: fewer tiles read panels too often."""
    chains = max(round(target.core.fma_latency / target.core.add_cycles) // 2, 1)
    seen = set()
    for rows in _row_blocks(size, target):
        scores, sums = best_tiles(size, rows, target)
        if size.any_rows:
            step = math.lcm(scores.rows, sums.rows)
            rows = -(-rows // step) * step
        overlap = not size.any_rows and not _shares_rows(size, target)
        together = max(n for n in range(1, chains + 1) if rows % n == 0)
        choice = Choice(scores, sums, rows, overlap, together, chains)
        if choice not in seen:
            seen.add(choice)
            yield choice


def _row_blocks(size: Size, target: Target) -> Iterator[int]:
    """The rows of blocks: of an even number of blocks of about equal size; few enough for threads to share where heads
    are few."""
    if size.any_rows:
        yield from range(1, 2 * target.vector_registers + 1)
        return
    most = size.rows
    if _shares_rows(size, target):
        most = max(-(-size.rows * size.heads // MANY), 1)
    for rows in range(1, most + 1):
        if rows == -(-size.rows // -(-size.rows // rows)):
            yield rows


def _shares_rows(size: Size, target: Target) -> bool:
    """Whether threads share the blocks of a head: heads are few, and each share takes longer than to hand it out."""
    if size.heads >= MANY or size.any_rows:
        return size.any_rows
    tiles = best_tiles(size, size.rows, target)
    return seconds(size, *tiles, size.rows, 1, target) > MANY * target.core.fork_seconds
