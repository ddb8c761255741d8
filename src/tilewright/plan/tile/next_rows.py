"""Rows of images that windows reach next.

    y[o, i, j] = Σ x[c, i + k, j + l] * w[o, c, k, l]          row i + 1 reads one more row of each channel of x

What lies in a far cache or in memory comes row by row of each channel, in pieces too short for prefetchers to follow:
tiles ask for it while they work on the row before.
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
from tilewright.schedule.schedule import Schedule


class NextRow(NamedTuple):
    """The axis along which windows move from row to row of an image, and after how many of its iterations they begin
    with the last row that the next one reaches."""

    axis: int
    later: int


def next_row(found: Contraction, operand: Operand) -> NextRow | None:
    """How windows over an operand reach further rows; None where they overlap along no axis of batches."""
    for n in reversed(found.batch):
        for index in operand.load.indices:
            moved = polynomial(index)
            step = moved.get((found.block.axes[n].var,), 0)
            taps = [(f, known(found.extents[r])) for r in found.reduce if (f := moved.get((found.block.axes[r].var,)))]
            if step > 0 and taps:
                return NextRow(n, 1 + sum(factor * (extent - 1) for factor, extent in taps) // step)
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
    """Each iteration of the `inner` loop asks for what it reads of the next row, where that can be proved. `loops` are
    those of the contraction's axes as they were before tiles."""
    reached = next_row(found, operand)
    if reached is not None:
        s.attempt(s.prefetch, operand.buffer.name, loops[reached.axis], reached.later, inner)
