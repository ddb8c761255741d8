"""The template of attentions: the register tiles of both products, how many rows are worked on together, and what that
takes: both products by their best tiles, what is done to scores, panels of keys and values.

for each head: panels; for blocks of rows: scores, steps of rows, sums
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from tilewright.analysis.sizes import LARGE, USUAL
from tilewright.plan.attention.schedule import Choice, apply_choice
from tilewright.plan.attention.shape import Attention, Size, recognise
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.choice import written_out
from tilewright.plan.price.contraction import RegisterTile, Sums, cycles, tiles
from tilewright.plan.price.points import copy_cycles, transpose_cycles, vector_cycles
from tilewright.plan.price.transfer import byte_cycles, fits
from tilewright.plan.template import Template
from tilewright.plan.tile.loops import MANY
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class Attentions(Template[Attention, Choice]):
    """Two products with a softmax between them: scores are never all in memory."""

    name = "attention"
    choice = Choice
    whole = True

    def recognise(self, facts: Facts) -> Attention | None:
        return recognise(facts)

    def choices(self, shape: Attention, target: Target) -> Iterator[Choice]:
        size, seen = shape.size, set()
        chains = max(round(target.core.fma_latency / target.core.add_cycles) // 2, 1)
        overlap = not size.any_rows and not _shares_rows(size, target)
        for rows in _row_blocks(size, target):
            tiles = best_tiles(size, rows, target)
            if size.any_rows:
                step = math.lcm(*(tile.rows for tile in tiles))
                rows = -(-rows // step) * step
            together = max(n for n in range(1, chains + 1) if rows % n == 0)
            terms = written_out(tiles[0], target), written_out(tiles[1], target)
            choice = Choice(*tiles, rows, overlap, together, chains, terms)
            if choice not in seen:
                seen.add(choice)
                yield choice

    def price(self, choice: Choice, shape: Attention, target: Target) -> float:
        return seconds(shape.size, choice.scores, choice.sums, choice.rows, choice.together, target)

    def apply(self, s: Schedule, shape: Attention, choice: Choice) -> Schedule:
        return apply_choice(shape.begun.copy(), shape, choice)


def _row_blocks(size: Size, target: Target) -> Iterator[int]:
    """The rows of blocks: of blocks of about equal size; few enough for threads to share where heads are few."""
    if size.any_rows:
        yield from range(1, 2 * target.vector_registers + 1)
        return
    most = max(-(-size.rows * size.heads // MANY), 1) if _shares_rows(size, target) else size.rows
    yield from (rows for rows in range(1, most + 1) if rows == -(-size.rows // -(-size.rows // rows)))


def _shares_rows(size: Size, target: Target) -> bool:
    """Whether threads share the blocks of a head: heads are few, and each share takes longer than to hand it out."""
    if size.heads >= MANY or size.any_rows:
        return size.any_rows
    tiles = best_tiles(size, size.rows, target)
    return seconds(size, *tiles, size.rows, 1, target) > MANY * target.core.fork_seconds


def seconds(size: Size, first: RegisterTile, second: RegisterTile, rows: int, together: int, target: Target) -> float:
    """Seconds of one core, in blocks of so many rows, with register tiles for both products; so many rows are reduced
    together. A dynamic number of rows is priced as many, and as usual ones."""
    if size.any_rows:
        usual, many = replace(size, rows=USUAL, any_rows=False), replace(size, rows=LARGE, any_rows=False)
        found = [seconds(each, first, second, rows, together, target) for each in (usual, many)]
        return (found[0] + found[1] * USUAL / LARGE) / 2
    blocks = -(-size.rows // rows)
    block = _product(size, size.scores, first, rows, target) + _product(size, size.sums, second, rows, target)
    block += _between(size, first.lanes, rows, together, target)
    return size.heads * (_panels(size, first.lanes, target) + blocks * block) / target.core.hertz


@lru_cache(maxsize=1 << 10)
def best_tiles(size: Size, rows: int, target: Target) -> tuple[RegisterTile, RegisterTile]:
    """The register tiles that take the least time for blocks of so many rows."""
    found = []
    for sums in (size.scores, size.sums):
        fitting = sorted(tiles(replace(sums, rows=rows), target), key=lambda t: -t.rows * t.vectors)
        found.append(min(fitting, key=lambda t: _product(size, sums, t, rows, target)))
    return found[0], found[1]


def _product(size: Size, sums: Sums, tile: RegisterTile, rows: int, target: Target) -> float:
    """Cycles of a product of a block of rows. Of each panel, the first tile of rows reads it from where all panels of
    the head stay beside the scores of the block, the others from the nearest cache that keeps it beside their rows."""
    panel = tile.columns * sums.terms * size.bytes
    own = rows * sums.terms * size.bytes
    near = fits(panel + tile.rows * sums.terms * size.bytes, target)
    first, elements = max(size.level(rows, target), near), fits(own + panel, target)
    return cycles(replace(sums, rows=rows, panel=near, first=first, elements=elements), tile, target)


def _between(size: Size, lanes: int, rows: int, together: int, target: Target) -> float:
    """Cycles of what is done to the scores of a block, in the cache that keeps them. Vectors of partial results are
    halved until one number is left, each time after the one before."""
    core, level = target.core, size.level(rows, target)
    each = vector_cycles(size.work, target, lanes) + size.reads * core.load_cycles + size.stores * core.store_cycles
    moved = (
        (size.reads + size.stores) * rows * size.keys * size.bytes * byte_cycles(level, target) if level > 1 else 0.0
    )
    halvings = (lanes - 1).bit_length() * size.reductions * -(-rows // together)
    return max(rows * -(-size.keys // lanes) * each, moved) + halvings * core.fma_latency


def _panels(size: Size, lanes: int, target: Target) -> float:
    """Cycles to lay out the keys and the values of a head in panels."""
    counts = zip((size.keys * size.depth, size.keys * size.columns), size.apart, strict=True)
    return sum((transpose_cycles if apart else copy_cycles)(elements, lanes, target) for elements, apart in counts)
