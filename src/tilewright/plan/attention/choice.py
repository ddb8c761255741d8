"""How an attention is run, in closed form: the register tiles of its two products, and how many rows are worked on
together."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.expr.nodes import Const
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.registers import RegisterTile, choose_register_tile, tile_registers
from tilewright.target import Target

SCORES_SHARE = 1 / 4
"""The scores of a block of rows, and what becomes of them, may take this part of the second cache."""

SCORES = 2
"""Buffers of scores: those that rows read, and those that the second product reads."""

ROWS = 24
"""The rows of a block where nobody knows how many there are."""

LEAST_TILES = 2
"""Fewer tiles of rows than this read panels of keys and values too often, whatever cache the scores are in."""


SHARES, LARGE = 8, 1 << 22
"""Fewer heads than this cannot be shared by threads evenly: where each has so many multiply-adds, its blocks of rows
are."""


TOGETHER = 4
"""The most rows side by side: enough to hide what a reduction of one waits for."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The register tiles of the scores and of the second product; the rows of a block; and whether blocks may overlap,
    so that only heads are shared by threads: rows left over then make a block together with rows of the one before."""

    scores: RegisterTile
    sums: RegisterTile
    rows: int
    overlap: bool = False

    @property
    def together(self) -> int:
        """The rows that steps of rows take side by side."""
        return max(n for n in range(1, TOGETHER + 1) if self.rows % n == 0)


def choose(first: Contraction, second: Contraction, target: Target) -> Choice:
    """The choice for two products, the rows of which are the same."""
    lanes, registers = target.lanes(first.out.dtype), tile_registers(target)
    assert first.rows is not None
    rows, keys = known(first.extents[first.rows]), known(first.extents[first.columns])
    scores = choose_register_tile(rows, keys, first.depth, registers, lanes)
    sums = choose_register_tile(rows, known(second.extents[second.columns]), keys, registers, lanes)
    step = math.lcm(scores.rows, sums.rows)
    if not isinstance(first.extents[first.rows], Const):
        return Choice(scores, sums, -(-ROWS // step) * step)
    room = int(target.cache(2).bytes * SCORES_SHARE) // (SCORES * keys * first.out.dtype.bytes)
    most = min(max(room, LEAST_TILES * scores.rows), rows)
    heads = math.prod(known(first.extents[n]) for n in first.batch)
    if heads < SHARES and rows * keys * first.depth >= LARGE:
        most = min(most, -(-rows * heads // SHARES))
        return Choice(scores, sums, max(most // step, 1) * step)

    def work(blocks: int) -> tuple[int, int]:
        together = -(-rows // blocks)
        return blocks * sum(-(-together // tile.rows) * tile.rows for tile in (scores, sums)), blocks

    least = -(-rows // most)
    return Choice(scores, sums, -(-rows // min(range(least, 2 * least + 2), key=work)), overlap=True)
