"""Rows of images that windows reach next.

    y[o, i, j] = Σ x[c, i + k, j + l] * w[o, c, k, l]          row i + 1 reads one more row of each channel of x

What lies in a far cache or in memory comes row by row of each channel, in pieces too short for prefetchers to follow:
tiles ask for it while they work on the row before. So do stores for the next row of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tilewright.analysis.contractions import Contraction
from tilewright.analysis.products import Operand
from tilewright.analysis.sizes import known
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Var
from tilewright.plan.tile.next_tiles import prefetch_stored_later
from tilewright.schedule.schedule import Schedule


class NextRow(NamedTuple):
    """The axis along which windows move from row to row of an image, and after how many of its iterations they begin
    with the last row that the next one reaches. Where they move by several rows at a time, the axis of terms that goes
    over all rows of a window (`rows`)."""

    axis: int
    later: int
    rows: int | None


def next_row(found: Contraction, operand: Operand) -> NextRow | None:
    """How windows over an operand reach further rows; None where they overlap along no axis of batches."""
    for n in reversed(found.batch):
        for index in operand.load.indices:
            moved = polynomial(index)
            step = moved.get((found.block.axes[n].var,), 0)
            taps = {r: f for r in found.reduce if (f := moved.get((found.block.axes[r].var,)))}
            if step > 0 and taps:
                reach = sum(factor * (known(found.extents[r]) - 1) for r, factor in taps.items())
                return NextRow(n, 1 + reach // step, max(taps) if step > 1 else None)
    return None


def image_bytes(found: Contraction, operand: Operand) -> int:
    """Bytes of one image that windows move over row by row: of the dimensions that sums go through. 0 where there is
    none."""
    if next_row(found, operand) is None:
        return 0
    summed = {found.block.axes[n].var for n in found.reduce}
    places = zip(operand.load.indices, operand.load.buffer.shape, strict=True)
    extents = [known(e) for index, e in places if not summed.isdisjoint(index.variables)]
    return math.prod(extents) * operand.load.dtype.bytes


def prefetch_next_row(s: Schedule, found: Contraction, operand: Operand, loops: Sequence[Var], inner: Var) -> None:
    """Each iteration of the `inner` loop asks for what it reads of the next row, where that can be proved; for all rows
    that the next windows read, where they move by several. `loops` are those of the contraction's axes as they were
    before tiles."""
    reached = next_row(found, operand)
    if reached is None:
        return
    distance, each = (reached.later, inner) if reached.rows is None else (1, loops[reached.rows])
    s.attempt(s.prefetch, operand.buffer.name, loops[reached.axis], distance, each)


def prefetch_next_result(s: Schedule, found: Contraction, operand: Operand, loops: Sequence[Var], block: str) -> None:
    """Each vector that `block` stores asks for its place in the next row of the result."""
    reached = next_row(found, operand)
    if reached is not None:
        prefetch_stored_later(s, block, loops[reached.axis], s.get_loops(block)[-2])
