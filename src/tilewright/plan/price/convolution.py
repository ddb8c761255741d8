"""What a convolution takes as a contraction, by what lies along the lanes: positions of a row, or output channels.

In: extents of a convolution and a target. Out: seconds of one core, filters brought in from memory meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr.dtypes import f32
from tilewright.expr.work import Work
from tilewright.plan.price.contraction import Sums, best, cycles
from tilewright.plan.price.points import copy_cycles, transpose_cycles
from tilewright.plan.price.transfer import memory, read_seconds
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Convolution:
    """`rows` rows of `width` positions and `outputs` channels; each element sums `inputs` channels over a kernel of
    `taps` places. `stride` is that along the rows."""

    rows: int
    width: int
    outputs: int
    inputs: int
    taps: int
    stride: int = 1

    @property
    def terms(self) -> int:
        return self.inputs * self.taps

    def filter_seconds(self, bytes_each: int, target: Target) -> float:
        """The time in which the filters come from memory."""
        return read_seconds(bytes_each * self.terms * self.outputs, memory(target), target)


def direct_seconds(c: Convolution, target: Target) -> float:
    """The time in f32, the better of positions and channels along the lanes. Channels are transposed back."""
    along_row = Sums(c.outputs, c.width, c.terms, batch=c.rows, stride=c.stride)
    along_channels = Sums(c.width, c.outputs, c.terms, batch=c.rows)
    back = transpose_cycles(c.rows * c.width * c.outputs, target.lanes(f32), target)
    found = min(_best(along_row, target), _best(along_channels, target) + back) / target.core.hertz
    return max(found, c.filter_seconds(4, target))


def dot_seconds(c: Convolution, instruction: str, target: Target) -> float:
    """The time by an instruction that adds up several products: those, its result transposed back, its image with the
    terms of an instruction side by side."""
    sums = Sums(c.width, c.outputs, c.terms, batch=c.rows, instruction=instruction)
    moved = transpose_cycles(c.rows * c.width * c.outputs, target.lanes(f32), target)
    moved += copy_cycles(
        c.rows * c.width * c.stride * c.inputs, target.lanes(f32), target, Work(shuffles=1), aligned=True
    )
    return max((_best(sums, target) + moved) / target.core.hertz, c.filter_seconds(2, target))


def _best(sums: Sums, target: Target) -> float:
    return cycles(sums, best(sums, target), target)
