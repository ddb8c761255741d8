"""What a convolution takes as a contraction, by what lies along the lanes: positions of a row, or output channels.

In: extents of a convolution and a target. Out: seconds of one core, filters brought in from memory meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.expr.dtypes import bf16, f32
from tilewright.expr.work import Work
from tilewright.plan.price.contraction import Dot, Sums, least_cycles
from tilewright.plan.price.dots import choose_tiles, pairs_of
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


def tiles_seconds(c: Sizes, dot: Dot, target: Target) -> float:
    """The time by an instruction of tiles, channels innermost in the image and in the result: rows of tiles are
    neighbours in a row of the result. Infinite where no tile ends where rows do."""
    sums, dots = Sums(c.width, c.outputs, c.terms, batch=c.rows), dot.of_rows(c.width, copied=False)
    least = min((least_cycles(replace(sums, dot=d), target) for d in dots), default=math.inf)
    return max(least / target.core.hertz, filter_seconds(2 * c.terms, c, target))


def rounded_seconds(c: Sizes, target: Target) -> float:
    """The least time with both factors rounded to bf16; infinite where the machine multiplies none, or channels do not
    fill what it multiplies."""
    pairs, tiles = pairs_of(target), choose_tiles(bf16, bf16, f32, target)
    found = [dot_seconds(c, pairs, target)] if pairs is not None and channels_fit(c.inputs, c.outputs, pairs) else []
    found += [tiles_seconds(c, tiles, target)] if tiles is not None and channels_fit(c.inputs, c.outputs, tiles) else []
    return min(found, default=math.inf)


def channels_fit(inputs: int, outputs: int, dot: Dot) -> bool:
    """Whether channels of a convolution, in and out, fill the lanes of the machine's products."""
    return inputs % dot.depth == 0 and outputs >= dot.lanes


def filter_seconds(bytes_each: int, c: Sizes, target: Target) -> float:
    """The time in which filters of so many bytes for an output channel come from memory."""
    return read_seconds(bytes_each * c.outputs, memory(target), target)
