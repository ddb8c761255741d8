"""How far results are from the exact ones, and how large an error rounding explains.

The relative difference of an element is |found - exact| / (|exact| + the mean of |exact|): the mean keeps elements near
zero, which are sums of terms that cancel, from counting as far off. An element may differ by

    u*|exact| + SAFETY * max(spread, the median of all spreads)

from the exact one, where u is the unit roundoff of its type and its spread the root of the mean square of what random
rounding errors made of it (analysis/rounding.py). Results that are no floating-point numbers must be the exact ones,
and so must infinities and NaN, except where a random rounding error led to just what was found, or to numbers among
which it is: there rounding decides, as between the two largest elements of an arg_reduce that are equal but for
rounding, and such elements are counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.analysis.rounding import unit_roundoff
from tilewright.cli.steps import Steps
from tilewright.expr import dtypes
from tilewright.expr.meaning import widened

Array = np.ndarray[Any, Any]

SAFETY = 10.0
"""By how many spreads a result may differ from the exact one: a spread is known from few samples, and errors of sums of
equal terms are not independent."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an output compares with the exact one, by the element whose difference is the largest part of what is
    allowed: the `absolute` and the `relative` difference, that of the evaluator's result, which is computed in the
    model's own types, and the greatest relative one that is `allowed`. Infinite where types, shapes or special values
    differ. `decided` counts elements that only rounding decides, and which are not the exact ones; `elements` all of
    them; `steps` says of quantised results how many differ by how many steps."""

    name: str
    absolute: float
    relative: float
    evaluator: float
    allowed: float
    agrees: bool
    decided: int = 0
    elements: int = 0
    steps: Steps | None = None


def relative_difference(found: Array, expected: Array) -> float:
    """The greatest relative difference of two arrays' elements; infinite where shapes, types or special values differ,
    and where other than floating-point numbers do."""
    dtype = dtypes.from_numpy(expected.dtype)
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return math.inf
    if dtype is None or not dtype.is_float:
        return 0.0 if np.array_equal(found, expected) else math.inf
    ours, exact = found.astype(np.float64), expected.astype(np.float64)
    if not _same(ours, exact)[~(np.isfinite(ours) & np.isfinite(exact))].all():
        return math.inf
    gaps, scale = _gaps(ours, exact), _scale(exact)
    return float(_ratio(gaps, scale).max(initial=0.0))


def judge(name: str, found: Array, evaluated: Array, exact: Array, center: Array, samples: Sequence[Array]) -> Verdict:
    """The verdict on an output: what was found, what the evaluator makes of the graph, and the exact result of the
    graph as it was read; `center` is that of the graph that was compiled, and `samples` what it becomes with random
    rounding errors. Floating-point numbers of the last three are f64."""
    dtype = dtypes.from_numpy(found.dtype)
    if dtype is None or found.dtype != evaluated.dtype:
        return Verdict(name, math.inf, math.inf, math.inf, 0.0, False, 0, found.size)
    alike = [s for s in samples if s.shape == found.shape]
    if found.shape != exact.shape:
        if not alike:
            return Verdict(name, math.inf, math.inf, math.inf, 0.0, False, 0, found.size)
        exact = center = alike[0]  # rounding decides the shape: the result is compared with one that has it
    if dtype.kind != "f":
        return _judge_others(name, widened(found), widened(evaluated), widened(exact), [widened(s) for s in alike])
    ours = found.astype(np.float64)
    allowed = _allowed(exact, center if center.shape == exact.shape else exact, alike, unit_roundoff(dtype))
    theirs = evaluated.astype(np.float64) if evaluated.shape == exact.shape else np.full(exact.shape, math.inf)
    return _judge_floats(name, ours, theirs, exact, allowed, alike, unit_roundoff(dtype))


def _judge_others(name: str, found: Array, evaluated: Array, exact: Array, samples: Sequence[Array]) -> Verdict:
    """Whole numbers, truth values and numbers of narrow types: each equals the exact one, or the value in a sample with
    rounding errors."""
    wrong = ~_same(found, exact)
    explained = wrong & _any(_same(found, s) for s in samples)
    gap = float(np.nan_to_num(np.abs(found.astype(np.float64) - exact.astype(np.float64)), nan=0.0).max(initial=0.0))
    same = evaluated.shape == exact.shape and bool(_same(evaluated, exact).all())
    relative, other = max(gap, 1.0) if wrong.any() else 0.0, 0.0 if same else math.inf
    agrees = not (wrong & ~explained).any()
    return Verdict(name, gap, relative, other, 0.0, agrees, int(explained.sum()), found.size)


def _judge_floats(
    name: str, ours: Array, theirs: Array, exact: Array, allowed: Array, samples: Sequence[Array], u: float
) -> Verdict:
    special = ~(np.isfinite(ours) & np.isfinite(exact))
    wrong = special & ~_same(ours, exact)
    explained = wrong & (_any(_same(ours, s) for s in samples) | _near_samples(ours, samples, u))
    if (wrong & ~explained).any():
        return Verdict(name, math.inf, math.inf, math.inf, 0.0, False, int(explained.sum()), ours.size)
    gaps = np.where(special, 0.0, _gaps(ours, exact))
    if not gaps.size:
        return Verdict(name, 0.0, 0.0, 0.0, 0.0, True)
    at = int(_ratio(gaps, allowed).argmax())
    gap, other, limit, size = (float(x.reshape(-1)[at]) for x in (gaps, _gaps(theirs, exact), allowed, _scale(exact)))
    relative, evaluator, share = (float(_ratio(np.array(x), np.array(size))) for x in (gap, other, limit))
    return Verdict(name, gap, relative, evaluator, share, gap <= limit, int(explained.sum()), ours.size)


def _near_samples(ours: Array, samples: Sequence[Array], u: float) -> Array:
    """Where a number is as near as the finite numbers among samples are to one another, or as one rounding brings it to
    the only one: as where a sum overflows in some of them."""
    if not samples:
        return np.asarray(False)
    drawn = np.stack(samples)
    held = np.isfinite(drawn)
    count = held.sum(axis=0)
    with np.errstate(all="ignore"):
        middle = np.where(held, drawn / count, 0.0).sum(axis=0)
        spread = np.sqrt(np.where(held, np.square(drawn - middle) / count, 0.0).sum(axis=0))
        near = np.abs(ours - middle) <= SAFETY * np.maximum(spread, u * np.abs(middle))
    return np.asarray(np.isfinite(ours) & (count > 0) & near)


def _allowed(exact: Array, center: Array, samples: Sequence[Array], u: float) -> Array:
    """By how much each element may differ from the exact one."""
    size = np.where(np.isfinite(exact), np.abs(exact), 0.0)
    squares = [np.square(_gaps(s, center)) for s in samples]
    spread = np.sqrt(np.mean(squares, axis=0)) if squares else np.zeros(exact.shape)
    usual = float(np.median(spread)) if spread.size else 0.0
    return np.asarray(u * size + SAFETY * np.maximum(spread, usual))


def _same(a: Array, b: Array) -> Array:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _any(masks: Any) -> Array:
    """Where one of some masks holds; nowhere if there is none."""
    found = list(masks)
    return np.logical_or.reduce(found) if found else np.asarray(False)


def _gaps(a: Array, b: Array) -> Array:
    """The absolute differences; zero where one of the two is infinite or NaN."""
    with np.errstate(all="ignore"):
        return np.asarray(np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), 0.0))


def _scale(exact: Array) -> Array:
    """What relative differences are relative to."""
    size = np.abs(exact[np.isfinite(exact)])
    return np.asarray(np.where(np.isfinite(exact), np.abs(exact), 0.0) + (float(size.mean()) if size.size else 0.0))


def _ratio(gaps: Array, limits: Array) -> Array:
    """Differences as parts of what they are held against: infinite where that is nothing."""
    return np.divide(gaps, limits, out=np.where(gaps > 0, math.inf, 0.0), where=limits > 0)
