"""How far two results lie apart, and how far they may.

The relative difference of an element is |found - expected| / (|expected| + the mean of |expected|): the mean keeps
elements near zero, which are sums of terms that cancel, from counting as far off. Whole numbers and truth values must
be equal; a NaN agrees with a NaN, an infinity with the same infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.core.switches import PLAIN
from tilewright.expr import dtypes

Array = np.ndarray[Any, Any]

ALLOWED = {"f64": 1e-10, "f32": 1e-4, "f16": 1e-2, "bf16": 5e-2}
"""The greatest relative difference of each floating-point type. Other types allow none. Where factors of products were
rounded, f32 is allowed what the type that they were rounded to is."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The greatest differences of an output's elements, infinite where shapes, types or special values differ."""

    name: str
    absolute: float
    relative: float
    allowed: float

    @property
    def agrees(self) -> bool:
        return self.relative <= self.allowed


def differ(name: str, found: Array, expected: Array, precision: str = PLAIN) -> Difference:
    """The difference of one output from what it should be, for a model compiled in a precision."""
    dtype = dtypes.from_numpy(expected.dtype)
    kind = precision if dtype is dtypes.f32 else dtype.name if dtype is not None else ""
    allowed = ALLOWED.get(kind, 0.0)
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return Difference(name, math.inf, math.inf, allowed)
    if expected.size == 0:
        return Difference(name, 0.0, 0.0, allowed)
    if dtype is None or not dtype.is_float:
        gap = float(np.abs(found.astype(np.float64) - expected.astype(np.float64)).max())
        return Difference(name, gap, 0.0 if np.array_equal(found, expected) else max(gap, 1.0), allowed)
    return _differ_in_floats(name, found.astype(np.float64), expected.astype(np.float64), allowed)


def _differ_in_floats(name: str, found: Array, expected: Array, allowed: float) -> Difference:
    finite = np.isfinite(expected)
    special = np.array_equal(found[~finite], expected[~finite], equal_nan=True)
    if not special or not np.isfinite(found[finite]).all():
        return Difference(name, math.inf, math.inf, allowed)
    if not finite.any():
        return Difference(name, 0.0, 0.0, allowed)
    gaps, sizes = np.abs(found[finite] - expected[finite]), np.abs(expected[finite])
    scale = sizes + sizes.mean()
    relative = np.divide(gaps, scale, out=np.where(gaps > 0, math.inf, 0.0), where=scale > 0)
    return Difference(name, float(gaps.max()), float(relative.max()), allowed)
