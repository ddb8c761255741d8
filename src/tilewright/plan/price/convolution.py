"""What a convolution takes as a contraction, by what lies along the lanes: positions of a row, or output channels.

In: extents of a convolution and a target. Out: seconds of one core, filters brought in from memory meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr.dtypes import f32
from tilewright.expr.work import Work
from tilewright.plan.price.contraction import Dot, Sums, least_cycles
from tilewright.plan.price.points import copy_cycles, transpose_cycles
from tilewright.target import Target
from tilewright.target.transfer import memory, read_seconds


@dataclass(frozen=True, slots=True)
class Sizes:
    """The extents of a convolution: images, channels in and out, height and width of the output, the stride, and the
    places of the kernel. Height or width may be `dynamic`: an assumption."""

    images: int
    inputs: int
    outputs: int
    height: int
    width: int
    stride: int = 1
    taps: int = 9
    dynamic: bool = False

    @property
    def rows(self) -> int:
        """The rows of all images."""
        return self.images * self.height

    @property
    def terms(self) -> int:
        """The terms of each sum."""
        return self.inputs * self.taps

    def tiles(self, size: int) -> tuple[int, int]:
        """The tiles of `size` x `size` outputs along height and width."""
        return -(-self.height // size), -(-self.width // size)


def direct_seconds(c: Sizes, target: Target) -> float:
    """The time in f32, the better of positions and channels along the lanes. Channels are transposed back."""
    along_row = Sums(c.outputs, c.width, c.terms, batch=c.rows, stride=c.stride)
    along_channels = Sums(c.width, c.outputs, c.terms, batch=c.rows)
    back = transpose_cycles(c.rows * c.width * c.outputs, target.lanes(f32), target)
    found = min(least_cycles(along_row, target), least_cycles(along_channels, target) + back)
    return max(found / target.core.hertz, filter_seconds(f32.bytes * c.terms, c, target))


def dot_seconds(c: Sizes, dot: Dot, target: Target) -> float:
    """The time by an instruction that adds up several products: those, its result transposed back, its image with the
    terms of an instruction side by side."""
    lanes, woven = target.lanes(f32), c.rows * c.width * c.stride * c.inputs
    sums = Sums(c.width, c.outputs, c.terms, batch=c.rows, dot=dot)
    moved = transpose_cycles(c.rows * c.width * c.outputs, lanes, target)
    moved += copy_cycles(woven, lanes, target, Work(shuffles=1), aligned=True)
    return max((least_cycles(sums, target) + moved) / target.core.hertz, filter_seconds(2 * c.terms, c, target))


def filter_seconds(bytes_each: int, c: Sizes, target: Target) -> float:
    """The time in which filters of so many bytes for an output channel come from memory."""
    return read_seconds(bytes_each * c.outputs, memory(target), target)
