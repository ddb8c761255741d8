"""Whether a product by a constant is better computed by seven of half the size: the error it may have, its time.

Errors. Sums of K products whose rounding errors are independent deviate by a multiple of √K roundings (Higham and Mary,
"A new approach to probabilistic rounding error analysis", 2019); sums of blocks add a few. All errors together grow by
what the sums can make of them: relative to the sum of |w| times the largest |x| of a pair of rows, results are off by

    u * (√(K/2) + R) * growth        growth = max over columns of (sum over products of |C| |L| |U|) / sum of |w|

with u = 2⁻²⁴, R the roundings of the sums, and the coefficients L, U and C of the sums of x, of w and of products.
With random w, growth is about 7; random data is off by twice as much as the product itself. A column that is small
beside the one that it shares sums with is off by as much as that one: such constants are left alone.

Times. Multiply-adds at a share of the peak, or the constant by the bandwidth of where it lies, where that takes longer;
the sums by cycles a vector. Products of few rows are bound by the constant's way, which is longer: they do not gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr.dtypes import f32
from tilewright.ops.strassen import DERIVED, PRODUCTS, STORED, input_terms, output_terms
from tilewright.plan.tile.registers import hertz
from tilewright.target import Target

Array = np.ndarray[Any, Any]

LARGEST_ERROR = 1e-4
"""The largest error, relative to the sum of |w| times the largest |x|, that a product may have."""

ROUNDINGS = 10
"""The roundings of an element on its way through the sums."""

LEFT = np.abs([input_terms(unit) for unit in np.eye(4).tolist()]).sum(0)[:, None]
"""How many blocks of x each product sums up."""

OUTPUT = np.array([output_terms(unit) for unit in np.eye(PRODUCTS).tolist()]).T
"""How often each block of the result has each product."""

DIRECT, APART = 0.95, 0.9
"""The share of the peak that products reach: as a rule; where a factor is a difference that is taken on the way."""

SUM_CYCLES = 16
"""Cycles of a vector of all seven sums of blocks, or of all four of products, beside what an epilogue takes anyway."""

LEAST_GAIN = 1.05
"""How much faster products of halves must be."""

LEAST_ROWS = 16
"""The least rows of halves: fewer do not repay the loads of what they meet."""

PANELS, LITTLE = 6, 1 / 64
"""Vectors that panels divide evenly, for threads to share; by how much wider halves may be for it."""

AT_ONCE = 32
"""Rows of a constant that are looked at together: what is made of them stays in the caches."""

CALLS = 3e-6
"""Seconds of further kernels."""

CACHE_SHARE = 1 / 2
"""Constants that take at most this part of the last cache stay there, and may grow."""

BETWEEN_SHARE, FAR_TRAFFIC = 1 / 4, 1.6
"""Sums of blocks and products that take at most this part of the last cache stay there beside all else; larger ones
come and go as if they were so many times as large."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The extents of products by one constant: how many there are, rows and columns of each result, terms of a sum."""

    number: int
    rows: int
    depth: int
    columns: int

    @property
    def half(self) -> Sizes:
        """Those of a product of halves."""
        return Sizes(self.number, *(-(-extent // 2) for extent in (self.rows, self.depth, self.columns)))


def keeps_all(constants: int, target: Target) -> bool:
    """Whether differences are stored, too, in a module with so many bytes of constants."""
    return constants <= target.caches[-1].bytes * CACHE_SHARE


def pays(sizes: Sizes, target: Target, stored: bool) -> bool:
    """Whether products are faster by products of halves; with `stored`, all factors of these are kept."""
    if min(sizes.rows // 2, sizes.depth, sizes.columns) < LEAST_ROWS:
        return False
    return halved_seconds(sizes, target, stored) * LEAST_GAIN <= _multiply(sizes, target) / DIRECT


def halved_seconds(sizes: Sizes, target: Target, stored: bool) -> float:
    """The time by products of halves."""
    half = sizes.half
    products = _multiply(half, target) * (STORED / DIRECT + DERIVED / (DIRECT if stored else APART))
    size = 4 * half.depth * half.columns
    rate, read = (target.peaks.cache_gbs[-1], PRODUCTS) if stored else (target.peaks.memory_gbs, STORED + 2 * DERIVED)
    sums = SUM_CYCLES * half.number * half.rows * (half.depth + half.columns) / (target.lanes(f32) * hertz(target))
    return max(products, size * read / (rate * 1e9)) + sums + _far_seconds(half, target) + CALLS


def _far_seconds(half: Sizes, target: Target) -> float:
    """The time of sums of blocks and of products to and from the last cache, where they drive each other out of it."""
    between = 4 * PRODUCTS * half.number * half.rows * (half.depth + half.columns)
    if between <= target.caches[-1].bytes * BETWEEN_SHARE:
        return 0.0
    return FAR_TRAFFIC * between / (target.peaks.cache_gbs[-1] * 1e9)


def half_columns(columns: int, target: Target) -> int:
    """The columns of a half: whole vectors, and as many as panels of two or three divide, where that is little more."""
    lanes = target.lanes(f32)
    few, even = (-(-columns // (2 * n * lanes)) * n * lanes for n in (1, PANELS))
    return even if even <= few * (1 + LITTLE) else few


def error_bound(w: Array, u: Array) -> float:
    """The largest error of a result, relative to the sum of |w| times the largest |x|, where u are the sums of w's
    blocks that are stored; infinite where w is."""
    roundings = np.sqrt(u.shape[1]) + ROUNDINGS
    return float(2.0**-24 * roundings) * growth(w, u)


def growth(w: Array, u: Array) -> float:
    """What the sums can make of the errors of products; infinite where w is, or a column of it is zero."""
    half = u.shape[2]
    sizes, weight = np.zeros((PRODUCTS, half)), np.zeros(w.shape[1])
    with np.errstate(all="ignore"):
        for k in range(0, len(w), AT_ONCE):
            weight += np.abs(w[k : k + AT_ONCE]).sum(0)
        for k in range(0, u.shape[1], AT_ONCE):
            part = u[:, k : k + AT_ONCE]
            sizes[:STORED] += np.abs(part).sum(1)
            sizes[STORED:] += np.abs(part[:DERIVED] - part[DERIVED]).sum(1)
        worst = 0.0
        for place, reached in enumerate(np.abs(OUTPUT) @ (LEFT * sizes)):
            own = weight[half * (place % 2) :][:half]
            worst = max(worst, float((reached[: own.size] / own).max(initial=0.0)))
    return worst if np.isfinite(weight).all() and not np.isnan(worst) else float("inf")


def _multiply(sizes: Sizes, target: Target) -> float:
    return 2 * sizes.number * sizes.rows * sizes.depth * sizes.columns / (target.fma_gflops * 1e9)
