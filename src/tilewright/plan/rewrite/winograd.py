"""Whether a convolution with a 3x3 kernel is better computed as Winograd's: its error, its time.

Errors. A sum of C products with independent rounding errors is off by a multiple of √C roundings (Higham and Mary, "A
new approach to probabilistic rounding error analysis", 2019); the transforms add a few roundings. The transform
matrices amplify all these errors. Relative to the sum of |w| times the largest |x| of a tile, outputs are off by

    u * (√C + R) * growth        growth = max of |Aᵀ| (sum over c of |G w Gᵀ|) ⊙ (|Bᵀ| 1 |B|) |A| / sum of |w|

with u = 2⁻²⁴ and R the roundings of the transforms. With random filters, growth is about 3.5 for tiles of 2 x 2 and 140
for 4 x 4; at most it is 16 and 860, with filters of a single nonzero weight. Random data is off by a hundredth of the
bound.

If factors may be rounded to bf16, so may the factors of the products of tiles. Each rounding is off by 2⁻⁸ at most, and
tiles amplify it by `growth`, compared with a direct convolution in bf16. For random data and tiles of 2 x 2, errors are
1.6 times those of the direct one. Tiles of 4 x 4 amplify too much, and stay f32.

Times. Products take the price of their contraction, or the time to read the filters from memory, whichever is longer:
filters arrive while products run. Transforms take the instructions of their definitions (ops/winograd.py), or the time
to read and write the values between the kernels, whichever is longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.expr.dtypes import bf16, f32
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.ops.accuracy import ROUNDED_GROWTH, WINDOW_ERROR
from tilewright.ops.winograd import INPUT, OUTPUT, WINDOW, edge_of, input_terms, output_terms, transformed_parts
from tilewright.plan.price.contraction import MARGIN, Dot, Sums, least_seconds, pays
from tilewright.plan.price.convolution import Sizes, direct_seconds, dot_seconds, filter_seconds
from tilewright.plan.rewrite.precision import fits
from tilewright.plan.transforms.winograd import Tiling, transform_seconds
from tilewright.target import Target

Filters = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The rows and columns of outputs of a tile; how many products of bf16 factors an instruction adds up: 1 for f32
    factors."""

    size: int
    depth: int = 1


def choose_tiles(sizes: Sizes, filters: Filters, target: Target, pairs: Dot | None = None) -> Tiles | None:
    """The fastest tiles that are accurate enough; None where the direct convolution is better. With the machine's
    products of bf16 `pairs`, factors may be rounded: those of tiles, or those of the direct convolution."""
    limit = direct_seconds(sizes, target)
    if pairs is not None and fits(sizes, pairs):
        limit = min(limit, dot_seconds(sizes, pairs, target))
    found = {tiles: tile_seconds(sizes, tiles, pairs, target) for tiles in candidates(sizes, pairs)}
    fast = [tiles for tiles in found if pays(limit, found[tiles])]
    fast.sort(key=lambda tiles: found[tiles] * (MARGIN if tiles.depth > 1 else 1))
    return next((tiles for tiles in fast if is_accurate(filters, tiles, sizes.stride)), None)


def candidates(sizes: Sizes, pairs: Dot | None) -> list[Tiles]:
    """The tiles for a convolution, those in f32 first. Only the smallest may have rounded factors: larger ones amplify
    the errors too much."""
    found = [Tiles(size) for size, stride in sorted(INPUT) if stride == sizes.stride]
    if pairs is not None and fits(sizes, pairs):
        found.append(Tiles(min(tiles.size for tiles in found), pairs.depth))
    return found


def is_accurate(filters: Filters, tiles: Tiles, stride: int) -> bool:
    """Whether tiles are accurate enough: in f32 by their error bound, else by how they amplify rounding of factors."""
    if tiles.depth > 1:
        return growth(filters, tiles.size, stride) <= ROUNDED_GROWTH
    return error_bound(filters, tiles, stride) <= WINDOW_ERROR


def error_bound(filters: Filters, tiles: Tiles, stride: int = 1) -> float:
    """The largest error of an output, relative to the sum of |w| times the largest |x|; infinite where filters are."""
    of_factors = 0.0 if tiles.depth == 1 else 2 * 2.0**-8 + 2.0**-16
    of_sums = 2.0**-24 * (np.sqrt(filters.shape[1]) + _roundings(tiles.size, stride))
    return float(of_factors + of_sums) * growth(filters, tiles.size, stride)


def _roundings(size: int, stride: int) -> int:
    """The roundings of an element in the transforms of image, filters and products, along both axes."""
    elements = [Var(f"d{n}", f32, None) for n in range(edge_of(size, stride))]
    image, result = (terms(size, stride, elements) for terms in (input_terms, output_terms))
    return 2 * (longest_chain(image) + WINDOW - 1 + longest_chain(result))


def growth(filters: Filters, size: int, stride: int = 1) -> float:
    """The factor by which the matrices amplify errors of factors and products; infinite where filters are."""
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


def tile_seconds(sizes: Sizes, tiles: Tiles, pairs: Dot | None, target: Target) -> float:
    """Seconds with these tiles: two kernels of transforms and one of products."""
    bytes_each = bf16.bytes if tiles.depth > 1 else f32.bytes
    products, (rows, columns) = edge_of(tiles.size, sizes.stride) ** 2, sizes.tiles(tiles.size)
    dot = pairs if tiles.depth > 1 else None
    sums = Sums(sizes.images * rows * columns, sizes.outputs, sizes.inputs, products, dot=dot)
    filters = filter_seconds(bytes_each * products * sizes.inputs, sizes, target)
    tiling = Tiling(tiles.size, sizes.stride, sizes.images, sizes.inputs, rows, columns, bytes_each)
    behind = replace(tiling, channels=sizes.outputs, bytes=f32.bytes, beside=tiling.products)
    before = replace(tiling, beside=behind.products)
    return max(least_seconds(sums, target), filters) + transform_seconds(before, behind, target)


def longest_chain(terms: Iterable[Expr]) -> int:
    """The most operations between a variable of some terms and their result: so often sums round an element."""
    return max((_operations(e) for e in terms), default=0)


def _operations(e: Expr) -> int:
    return 0 if isinstance(e, Const | Var) else 1 + longest_chain(c for c in e.children() if isinstance(c, Expr))
