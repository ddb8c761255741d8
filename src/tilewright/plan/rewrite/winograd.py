"""Whether a convolution with a 3x3 kernel is better computed as Winograd's: how long it takes. How far off it is says
ops/accuracy.py; if factors may be rounded to bf16, so may those of the products of the smallest tiles.

Products take the price of their contraction, the time to read the filters from memory, or that to read factors and
write products where caches keep too few of them, whichever is longest: all of that is moved while products run.
Transforms take the instructions of their definitions (ops/winograd.py), or the time to read and write images and the
values between the kernels, whichever is longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.expr.dtypes import bf16, f32
from tilewright.ops.accuracy import tiles_are_accurate
from tilewright.ops.winograd import INPUT, edge_of
from tilewright.plan.price.contraction import MARGIN, Dot, Sums, least_seconds, pays
from tilewright.plan.price.convolution import Sizes, channels_fit, direct_seconds, filter_seconds, rounded_seconds
from tilewright.plan.transforms.winograd import Tiling, transform_seconds
from tilewright.plan.transforms.winograd_last import last_seconds
from tilewright.target import Target
from tilewright.target.transfer import reread_seconds, rewrite_seconds

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
    if pairs is not None:
        limit = min(limit, rounded_seconds(sizes, target))
    found = {tiles: tile_seconds(sizes, tiles, pairs, target) for tiles in candidates(sizes, pairs)}
    fast = [tiles for tiles in found if pays(limit, found[tiles])]
    fast.sort(key=lambda tiles: found[tiles] * (MARGIN if tiles.depth > 1 else 1))
    return next((t for t in fast if tiles_are_accurate(filters, t.size, sizes.stride, rounded=t.depth > 1)), None)


def candidates(sizes: Sizes, pairs: Dot | None) -> list[Tiles]:
    """The tiles for a convolution, those in f32 first. Only the smallest may have rounded factors: larger ones amplify
    the errors too much. So has none of dynamic sizes, whose channels are last."""
    found = [Tiles(size) for size, stride in sorted(INPUT) if stride == sizes.stride]
    if pairs is not None and channels_fit(sizes.inputs, sizes.outputs, pairs) and not sizes.dynamic:
        found.append(Tiles(min(tiles.size for tiles in found), pairs.depth))
    return found


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
    around = last_seconds(before, behind, target) if sizes.dynamic else transform_seconds(before, behind, target)
    moved = reread_seconds(tiling.products, before.between, target)
    moved += rewrite_seconds(behind.products, before.between, target)
    return max(least_seconds(sums, target), filters, moved) + around
