"""Whether a convolution by windows of 3x3 is better computed by tiles: the error it may have, the time it should take.

Errors. Sums of C products whose rounding errors are independent deviate by a multiple of √C roundings (Higham and Mary,
"A new approach to probabilistic rounding error analysis", 2019); the transforms add a few. All errors together grow by
what the matrices can make of them: relative to the sum of |w| times the largest |x| of a tile, outputs are off by

    u * (√C + R) * growth        growth = max of |Aᵀ| (sum over c of |G w Gᵀ|) ⊙ (|Bᵀ| 1 |B|) |A| / sum of |w|

with u = 2⁻²⁴ and R the roundings of the transforms. With random filters, growth is about 3.5 for tiles of 2 x 2 and 140
for 4 x 4; at most it is 16 and 860, with filters of a single tap. Random data is off by a hundredth of it.

Times. Multiply-adds at a share of the peak, the transforms by cycles a vector of tiles, what lies between the kernels
and the filters by bandwidths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr.dtypes import f32
from tilewright.ops.winograd import INPUT, OUTPUT, WINDOW, transform_filter
from tilewright.target import Target

Filters = np.ndarray[Any, Any]

LARGEST_ERROR = 1e-3
"""The largest error, relative to the sum of |w| times the largest |x|, that a convolution may have."""

ROUNDINGS = 16
"""The roundings of an element on its way through both transforms."""

DIRECT, TILES = 0.85, 0.75
"""The share of the peak that contractions reach: a convolution, the products of tiles."""

CYCLES = {2: (110, 90), 4: (210, 200)}
"""Cycles of the transforms of a vector of tiles: (input, output)."""

LEAST_GAIN = 1.1
"""How much faster tiles must be."""

FLOPS_A_LANE = 4
"""What a lane does in a cycle at the peak: two multiply-adds."""

CALL = 2e-6
"""Seconds of a further kernel."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The extents of a convolution: images, channels in and out, height and width of the output."""

    images: int
    inputs: int
    outputs: int
    height: int
    width: int

    def tiles(self, size: int) -> tuple[int, int]:
        """The tiles along height and width."""
        return -(-self.height // size), -(-self.width // size)


def choose_size(sizes: Sizes, filters: Filters, target: Target) -> int | None:
    """The size of the tiles that are accurate enough and fastest; None where the convolution is better left alone."""
    limit = direct_seconds(sizes, target) / LEAST_GAIN
    seconds = {size: tile_seconds(sizes, size, target) for size in sorted(INPUT)}
    fast = sorted([size for size in seconds if seconds[size] < limit], key=seconds.__getitem__)
    return next((size for size in fast if error_bound(filters, size) <= LARGEST_ERROR), None)


def error_bound(filters: Filters, size: int) -> float:
    """The largest error of an output, relative to the sum of |w| times the largest |x|; infinite where filters are."""
    if not np.isfinite(filters).all():
        return float("inf")
    weight = np.abs(filters.astype(np.float64)).sum((1, 2, 3))
    edge = size + WINDOW - 1
    rows = np.abs(np.array(INPUT[size])).sum(1)
    out = np.abs(np.array(OUTPUT[size]))
    u = np.abs(transform_filter(filters, size)).sum(2).reshape(edge, edge, -1)
    reached = np.einsum("ap,pqo,bq->abo", out, u * rows[:, None, None] * rows[None, :, None], out).max((0, 1))
    growth = float((reached[weight > 0] / weight[weight > 0]).max(initial=0.0))
    return float(2.0**-24 * (np.sqrt(filters.shape[1]) + ROUNDINGS) * growth)


def direct_seconds(sizes: Sizes, target: Target) -> float:
    """The time of the convolution as a contraction along its rows."""
    lanes = target.lanes(f32)
    points = sizes.images * sizes.height * -(-sizes.width // lanes) * lanes
    pairs = sizes.inputs * sizes.outputs
    filters = 4 * WINDOW * WINDOW * pairs / (target.peaks.memory_gbs * 1e9)
    return 2 * WINDOW * WINDOW * pairs * points / (DIRECT * target.fma_gflops * 1e9) + filters


def tile_seconds(sizes: Sizes, size: int, target: Target) -> float:
    """The time by tiles of this size."""
    lanes, peak = target.lanes(f32), target.fma_gflops * 1e9
    products = (size + WINDOW - 1) ** 2
    rows, columns = sizes.tiles(size)
    whole = -(-rows * columns // lanes)
    pairs = sizes.inputs * sizes.outputs
    multiply = 2 * products * pairs * sizes.images * whole * lanes / (TILES * peak)
    read, write = CYCLES[size]
    vectors = (
        sizes.inputs * rows * -(-columns // min(lanes, _power_below(columns))) * read + sizes.outputs * whole * write
    )
    transform = sizes.images * vectors * 4 * lanes / peak
    between = 4 * products * whole * lanes * (sizes.inputs + sizes.outputs) * sizes.images
    filters = 4 * products * pairs / (target.peaks.memory_gbs * 1e9)
    return multiply + transform + 2 * between / _bandwidth(between, target) + filters + 2 * CALL


def _power_below(n: int) -> int:
    """The largest power of two that is at most n."""
    return 1 << (n.bit_length() - 1)


def _bandwidth(size: int, target: Target) -> float:
    """Bytes a second from the cache that has room for twice as many bytes, or from memory."""
    for cache, rate in zip(target.caches, target.peaks.cache_gbs, strict=False):
        if 2 * size <= cache.bytes:
            return rate * 1e9
    return target.peaks.memory_gbs * 1e9
