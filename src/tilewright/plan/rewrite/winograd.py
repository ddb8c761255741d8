"""Whether a convolution by windows of 3x3 is better computed by tiles: the error it may have, the time it should take.

Errors. Sums of C products whose rounding errors are independent deviate by a multiple of √C roundings (Higham and Mary,
"A new approach to probabilistic rounding error analysis", 2019); the transforms add a few. All errors together grow by
what the matrices can make of them: relative to the sum of |w| times the largest |x| of a tile, outputs are off by

    u * (√C + R) * growth        growth = max of |Aᵀ| (sum over c of |G w Gᵀ|) ⊙ (|Bᵀ| 1 |B|) |A| / sum of |w|

with u = 2⁻²⁴ and R the roundings of the transforms. With random filters, growth is about 3.5 for tiles of 2 x 2 and 140
for 4 x 4; at most it is 16 and 860, with filters of a single tap. Random data is off by a hundredth of it.

Where factors may be rounded to bf16, so may those of products of tiles. That is 2⁻⁸ of each of both, and tiles make
`growth` times as much of it, too: as much more than of factors that are rounded for products by windows. Random data is
off by 1.6 times as much as with these, where tiles are 2 x 2. Tiles of 4 x 4 make too much of it, and stay f32.

Times. Multiply-adds at a share of the peak, or the filters by the bandwidth of memory where that takes longer, for they
are brought near meanwhile; the transforms by cycles a vector, or by the bandwidth of what lies between the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr.dtypes import f32
from tilewright.ops.winograd import INPUT, OUTPUT, WINDOW, edge_of, transformed_parts
from tilewright.plan.dot.instruction import Dot
from tilewright.plan.rewrite.precision import Windows, fits, window_seconds
from tilewright.target import Target

Filters = np.ndarray[Any, Any]

LARGEST_ERROR = 1e-3
"""The largest error, relative to the sum of |w| times the largest |x|, that a convolution may have."""

LARGEST_GROWTH = 8.0
"""The most that tiles may make of rounded factors: how many times as far as products by windows they may be off."""

ROUNDED, HALF = 2, 2.0**-8
"""The tiles whose factors may be rounded to bf16; by how much of it a number is off then."""

ROUNDINGS = 16
"""The roundings of an element on its way through both transforms."""

DIRECT, TILES = {1: 0.85, 2: 0.65}, 0.9
"""The share of the peak that contractions reach: a convolution of each stride, the products of tiles."""

TURNED = 1.1
"""How much longer a point takes where channels lie along the lanes, and no lane is left empty."""

CYCLES = {(2, 1): (110, 90), (4, 1): (210, 200), (2, 2): (110, 100)}
"""Cycles of the transforms, of each size and stride: of a vector of tiles of the input, of a vector of channels of a
tile of the output."""

LEAST_GAIN = 1.1
"""How much faster tiles must be, and those of rounded factors than others."""

FLOPS_A_LANE = 4
"""What a lane does in a cycle at the peak: two multiply-adds."""

CALL = 2e-6
"""Seconds of a further kernel."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The extents of a convolution: images, channels in and out, height and width of the output; and its stride."""

    images: int
    inputs: int
    outputs: int
    height: int
    width: int
    stride: int = 1

    def tiles(self, size: int) -> tuple[int, int]:
        """The tiles along height and width."""
        return -(-self.height // size), -(-self.width // size)


@dataclass(frozen=True, slots=True)
class Tiles:
    """How many rows and columns of outputs a tile has; how many products of factors in bf16 an instruction adds up: 1
    where they stay f32."""

    size: int
    depth: int = 1


def choose_tiles(sizes: Sizes, filters: Filters, target: Target, pairs: Dot | None = None) -> Tiles | None:
    """The tiles that are accurate enough and fastest; None where the convolution is better left alone. With the
    machine's products of bf16 `pairs`, factors may be rounded: those of tiles, or of a convolution left alone."""
    limit = min(direct_seconds(sizes, target), pair_seconds(sizes, pairs, target)) / LEAST_GAIN
    seconds = {tiles: tile_seconds(sizes, tiles, target) for tiles in candidates(sizes, pairs)}
    fast = [tiles for tiles in seconds if seconds[tiles] < limit]
    fast.sort(key=lambda tiles: seconds[tiles] * (LEAST_GAIN if tiles.depth > 1 else 1))
    return next((tiles for tiles in fast if is_accurate(filters, tiles, sizes.stride)), None)


def candidates(sizes: Sizes, pairs: Dot | None) -> list[Tiles]:
    """The tiles that there are for a convolution, those in f32 first."""
    found = [Tiles(size) for size, stride in sorted(INPUT) if stride == sizes.stride]
    if pairs is not None and sizes.inputs % pairs.depth == 0 and sizes.outputs >= pairs.lanes:
        found.append(Tiles(ROUNDED, pairs.depth))
    return found


def is_accurate(filters: Filters, tiles: Tiles, stride: int) -> bool:
    """Whether tiles are accurate enough: in f32 by a bound of their own, else by what they make of rounded factors."""
    if tiles.depth > 1:
        return growth(filters, tiles.size, stride) <= LARGEST_GROWTH
    return error_bound(filters, tiles, stride) <= LARGEST_ERROR


def error_bound(filters: Filters, tiles: Tiles, stride: int = 1) -> float:
    """The largest error of an output, relative to the sum of |w| times the largest |x|; infinite where filters are."""
    of_factors = 0.0 if tiles.depth == 1 else 2 * HALF + HALF * HALF
    of_sums = 2.0**-24 * (np.sqrt(filters.shape[1]) + ROUNDINGS)
    return float(of_factors + of_sums) * growth(filters, tiles.size, stride)


def growth(filters: Filters, size: int, stride: int = 1) -> float:
    """What the matrices can make of the errors of factors and products; infinite where filters are."""
    if not np.isfinite(filters).all():
        return float("inf")
    weight = np.abs(filters.astype(np.float64)).sum((1, 2, 3))
    edge = edge_of(size, stride)
    rows = np.abs(np.array(INPUT[size, stride])).sum(1)
    out = np.abs(np.array(OUTPUT[size, stride]))
    sums = np.zeros((edge * edge, len(filters)))
    for _, part in transformed_parts(filters, size, stride):
        sums += np.abs(part, out=part).sum(1)
    u = sums.reshape(edge, edge, -1)
    reached = np.einsum("ap,pqo,bq->abo", out, u * rows[:, None, None] * rows[None, :, None], out).max((0, 1))
    return float((reached[weight > 0] / weight[weight > 0]).max(initial=0.0))


def direct_seconds(sizes: Sizes, target: Target) -> float:
    """The time of the convolution as a contraction."""
    lanes = target.lanes(f32)
    points = sizes.images * _points(sizes.height, sizes.width, lanes)
    pairs = sizes.inputs * sizes.outputs
    filters = 4 * WINDOW * WINDOW * pairs / (target.peaks.memory_gbs * 1e9)
    return max(2 * WINDOW * WINDOW * pairs * points / (DIRECT[sizes.stride] * target.fma_gflops * 1e9), filters)


def pair_seconds(sizes: Sizes, pairs: Dot | None, target: Target) -> float:
    """The time of the convolution by products of bf16 pairs; infinite where it does not fill them."""
    rows = sizes.images * sizes.height
    windows = Windows(rows, sizes.width, sizes.outputs, sizes.inputs, WINDOW * WINDOW)
    if pairs is None or not fits(windows, pairs):
        return float("inf")
    filters = 2 * WINDOW * WINDOW * sizes.inputs * sizes.outputs / (target.peaks.memory_gbs * 1e9)
    return window_seconds(windows, pairs, target) + filters


def tile_seconds(sizes: Sizes, tiles: Tiles, target: Target) -> float:
    """The time by these tiles."""
    lanes, peak, bytes_each = target.lanes(f32), target.fma_gflops * 1e9, 4 if tiles.depth == 1 else 2
    products = edge_of(tiles.size, sizes.stride) ** 2
    rows, columns = sizes.tiles(tiles.size)
    number, vectors = sizes.images * rows * columns, -(-sizes.outputs // lanes)
    multiply = 2 * products * sizes.inputs * vectors * lanes * number / (TILES * peak * tiles.depth)
    filters = bytes_each * products * sizes.inputs * sizes.outputs / (target.peaks.memory_gbs * 1e9)
    read, write = CYCLES[tiles.size, sizes.stride]
    loaded = sizes.images * sizes.inputs * rows * -(-columns // min(lanes, _power_below(columns)))
    transform = (loaded * read + vectors * number * write) * FLOPS_A_LANE * lanes / peak
    between = products * number * (bytes_each * sizes.inputs + 4 * sizes.outputs)
    return max(multiply, filters) + max(transform, 2 * between / _bandwidth(between, target)) + 2 * CALL


def _points(rows: int, columns: int, lanes: int) -> float:
    """How many points a convolution computes in place of rows x columns: whole vectors along the columns, or all points
    one by one."""
    return min(rows * -(-columns // lanes) * lanes, rows * columns * TURNED)


def _power_below(n: int) -> int:
    """The largest power of two that is at most n."""
    return 1 << (n.bit_length() - 1)


def _bandwidth(size: int, target: Target) -> float:
    """Bytes a second from the cache that has room for twice as many bytes, or from memory."""
    for cache, rate in zip(target.caches, target.peaks.cache_gbs, strict=False):
        if 2 * size <= cache.bytes:
            return rate * 1e9
    return target.peaks.memory_gbs * 1e9
