"""Random elements of tensors, in styles that find different mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Style(Enum):
    """How elements are drawn. The last two have infinities, NaN, negative zero and the ends of the type's range."""

    WHOLE = "small whole numbers, many of them equal"
    NORMAL = "normally distributed"
    UNIT = "between -1 and 1"
    POSITIVE = "between 0.1 and 4"
    WIDE = "of very different magnitudes"
    SPECIAL = "small numbers, and some special ones"
    EXTREME = "the ends of the type's range, and special ones"


def elements(random: np.random.Generator, dtype: np.dtype[Any], shape: Sequence[int], style: Style) -> Array:
    """A tensor of a type and a shape."""
    if dtype == np.bool_:
        return np.asarray(random.random(shape) < 0.5)
    if dtype.kind in "iu":
        return _integers(random, dtype, shape, style)
    found = {
        Style.NORMAL: lambda: random.normal(0, 1.5, shape),
        Style.UNIT: lambda: random.uniform(-1, 1, shape),
        Style.POSITIVE: lambda: random.uniform(0.1, 4, shape),
        Style.WIDE: lambda: random.normal(0, 1, shape) * 10.0 ** random.integers(-4, 5, shape),
    }.get(style, lambda: random.integers(-4, 5, shape) / random.choice((1, 1, 2, 4)))()
    values = np.asarray(found)
    if style in (Style.SPECIAL, Style.EXTREME):
        ends = _ends(dtype)
        special = random.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -0.5, *ends], np.shape(values))
        values = np.where(random.random(np.shape(values)) < (0.3 if style is Style.SPECIAL else 0.8), special, values)
    return np.asarray(values.astype(dtype))


def _ends(dtype: np.dtype[Any]) -> list[float]:
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    return [float(info.max), -float(info.max), float(info.tiny), float(info.smallest_subnormal)]


def _integers(random: np.random.Generator, dtype: np.dtype[Any], shape: Sequence[int], style: Style) -> Array:
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    if style in (Style.EXTREME, Style.WIDE):
        values = random.integers(low, high, shape, dtype, endpoint=True)
        if style is Style.EXTREME:
            ends = np.array([low, low + 1, high, high - 1, 0, 1, high // 2 + 1], dtype)
            values = np.where(random.random(shape) < 0.6, random.choice(ends, shape), values)
        return np.asarray(values, dtype)
    if style is Style.POSITIVE:
        return np.asarray(random.integers(1, 6, shape), dtype)
    bound = 100 if style is Style.NORMAL else 5
    return np.asarray(random.integers(max(low, -bound), bound, shape, endpoint=True)).astype(dtype)
