"""Whether a product by a constant is better computed by seven of half the size: the error it may have, its time.

Errors. Sums of K products whose rounding errors are independent deviate by a multiple of √K roundings (Higham and Mary,
"A new approach to probabilistic rounding error analysis", 2019); sums of blocks add a few. All errors together grow by
what the sums can make of them: relative to the sum of |w| times the largest |x| of a pair of rows, results are off by

    u * (√(K/2) + R) * growth        growth = max over columns of (sum over products of |C| |L| |U|) / sum of |w|

with u = 2⁻²⁴, R the roundings of the sums, and the coefficients L, U and C of the sums of x, of w and of products. With
random w, growth is about 7; random data is off by twice as much as the product itself. A column that is small beside the
one that it shares sums with is off by as much as that one: such constants are left alone.

Times. Multiply-adds at a share of the peak, or the constant by the bandwidth of where it lies, where that takes longer;
the sums by cycles a vector. Products of few rows are bound by the constant's way, which is longer: they do not gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr.dtypes import f32
from tilewright.ops.strassen import DERIVED, PRODUCTS, STORED, transform_factor
from tilewright.plan.register_tiles import hertz
from tilewright.target import Target

Array = np.ndarray[Any, Any]

LARGEST_ERROR = 1e-4
"""The largest error, relative to the sum of |w| times the largest |x|, that a product may have."""

ROUNDINGS = 10
"""The roundings of an element on its way through the sums."""

LEFT = (1, 1, 4, 3, 2, 1, 2)
"""The blocks of x that each product sums up."""

OUTPUT = ((0, 1), (0, 3, 6, 2), (0, 3, 4, 5), (0, 3, 4, 6))
"""The products that each block of the result sums up."""

DIRECT, APART = 0.95, 0.9
"""The share of the peak that products reach: as a rule; where a factor is a difference that is taken on the way."""

SUM_CYCLES = 20
"""Cycles of a vector of all seven sums of blocks, or of all four of products."""

LEAST_GAIN = 1.02
"""How much faster products of halves must be."""

LEAST_ROWS = 16
"""The least rows of halves: fewer do not repay the loads of what they meet."""

PANELS, LITTLE = 6, 1 / 64
"""Vectors that panels divide evenly, for threads to share; by how much wider halves may be for it."""

CALLS = 3e-6
"""Seconds of further kernels."""

CACHE_SHARE = 1 / 2
"""Constants that take at most this part of the last cache stay there, and may grow."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The extents of a product: rows of the result, terms of a sum, columns of the result; how many products there are
    by one constant."""

    rows: int
    depth: int
    columns: int
    number: int = 1


def keeps_all(constants: int, target: Target) -> bool:
    """Whether differences are stored, too, in a module with so many bytes of constants."""
    return constants <= target.caches[-1].bytes * CACHE_SHARE


def pays(sizes: Sizes, w: Array, target: Target, stored: bool) -> bool:
    """Whether a product by w: [k, n] is computed by products of halves; with `stored`, all their factors are kept."""
    if min(sizes.rows // 2, sizes.depth, sizes.columns) < LEAST_ROWS:
        return False
    faster = halved_seconds(sizes, target, stored) * LEAST_GAIN <= _multiply(sizes, target) / DIRECT
    return faster and error_bound(w, half_columns(sizes.columns, target)) <= LARGEST_ERROR


def halved_seconds(sizes: Sizes, target: Target, stored: bool) -> float:
    """The time by products of halves."""
    half = Sizes(*(-(-extent // 2) for extent in (sizes.rows, sizes.depth, sizes.columns)), sizes.number)
    products = _multiply(half, target) * (STORED / DIRECT + DERIVED / (DIRECT if stored else APART))
    size = 4 * half.depth * half.columns
    rate, read = (target.peaks.cache_gbs[-1], PRODUCTS) if stored else (target.peaks.memory_gbs, STORED + 2 * DERIVED)
    sums = SUM_CYCLES * half.number * half.rows * (half.depth + half.columns) / (target.lanes(f32) * hertz(target))
    return max(products, size * read / (rate * 1e9)) + sums + CALLS


def half_columns(columns: int, target: Target) -> int:
    """The columns of a half: whole vectors, and as many as panels of two or three divide, where that is little more."""
    lanes = target.lanes(f32)
    few, even = (-(-columns // (2 * n * lanes)) * n * lanes for n in (1, PANELS))
    return even if even <= few * (1 + LITTLE) else few


def error_bound(w: Array, half: int) -> float:
    """The largest error of a result, relative to the sum of |w| times the largest |x|; infinite where w is."""
    roundings = np.sqrt(-(-w.shape[0] // 2)) + ROUNDINGS
    return float(2.0**-24 * roundings) * growth(w, half)


def growth(w: Array, half: int) -> float:
    """What the sums can make of the errors of products; infinite where w is."""
    with np.errstate(all="ignore"):
        u = transform_factor(w, half)
        sizes = [np.abs(part).sum(0, dtype=np.float64) for part in (*u, *(part - u[3] for part in u[:3]))]
        weight = np.zeros(2 * half)
        weight[: w.shape[1]] = np.abs(w).sum(0, dtype=np.float64)
        worst = 0.0
        for place, products in enumerate(OUTPUT):
            own = weight[half * (place % 2) :][:half]
            reached = sum(LEFT[p] * sizes[p] for p in products)
            worst = max(worst, float((reached[own > 0] / own[own > 0]).max(initial=0.0)))
    return worst if np.isfinite(worst) and np.isfinite(weight).all() else float("inf")


def _multiply(sizes: Sizes, target: Target) -> float:
    return 2 * sizes.number * sizes.rows * sizes.depth * sizes.columns / (target.fma_gflops * 1e9)
