"""The cost model: what prices leave out, learned from choices of many kernels, so that it is known of kernels that were
never measured.

    model = train([Group(…), …])                    None without LightGBM
    model.factors([choice.features, …])             measured over predicted seconds, as they are expected of choices
    rank_quality(model, groups)                     rank correlation with what was measured, the mean over kernels

Boosted trees of log(seconds / price) over the features of a choice (`features.py`). Each kernel's logarithms are taken
from their median: what all choices of a kernel share does not say which of them is fast. Trees are small, since
thousands of rows come from a few hundred kernels. LightGBM is an extra (`pip install tilewright[tune]`); without it,
and without a model, all factors are 1, and choices rank by price.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

TREES, FOLDS = 100, 5
"""Trees of a model, and parts that kernels are divided into to judge one: each part by a model of the others."""

PARAMETERS: Mapping[str, Any] = {
    "objective": "regression",
    "learning_rate": 0.1,
    "max_depth": 3,
    "num_leaves": 8,
    "min_data_in_leaf": 5,
    "lambda_l2": 1.0,
    "feature_fraction": 0.7,
    "seed": 26,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}
"""What LightGBM is told."""

MOST_LOG = 1.5
"""Logarithms beyond count as this: how much slower a choice is that spills counts for nothing."""

LEAST = 8
"""Choices of a kernel that say how well a model ranks them."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Choices of one kernel that were measured: its key, what the model sees of each choice, its price in seconds, and
    its time over the default's."""

    kernel: str
    features: Sequence[Mapping[str, float]]
    prices: Sequence[float]
    ratios: Sequence[float]

    def __len__(self) -> int:
        return len(self.ratios)

    @property
    def logs(self) -> Array:
        """log(seconds / price) of each choice, from their median."""
        found = np.log(np.asarray(self.ratios) / np.asarray(self.prices))
        clipped: Array = np.clip(found - np.median(found), -MOST_LOG, MOST_LOG)
        return clipped


class Model:
    """Trees that were learned."""

    def __init__(self, booster: Any) -> None:
        self._booster = booster
        self._names: list[str] = booster.feature_name()

    @property
    def text(self) -> str:
        """The model as LightGBM's text."""
        return str(self._booster.model_to_string())

    def factors(self, features: Sequence[Mapping[str, float]]) -> Array:
        """Measured over predicted seconds, as they are expected of choices, but for a factor that all share."""
        if not features:
            return np.ones(0)
        found: Array = np.exp(self._booster.predict(_matrix(features, self._names), num_threads=1))
        return found


def train(groups: Sequence[Group]) -> Model | None:
    """A model of what was measured; None without LightGBM, or without anything to learn."""
    lightgbm, groups = _library(), [group for group in groups if len(group) > 1]
    if lightgbm is None or sum(map(len, groups)) < LEAST * FOLDS:
        return None
    names = sorted({name for group in groups for row in group.features for name in row})
    rows = _matrix([row for group in groups for row in group.features], names)
    wanted = np.concatenate([group.logs for group in groups])
    # A kernel counts by the root of its choices, so that no kernel with a large space decides alone.
    weights = np.concatenate([np.full(len(group), 1 / math.sqrt(len(group))) for group in groups])
    data = lightgbm.Dataset(rows, wanted, weight=weights / weights.mean(), feature_name=names, free_raw_data=True)
    return Model(lightgbm.train(dict(PARAMETERS), data, TREES))


def read_model(text: str) -> Model | None:
    """The model of a text; None without LightGBM, or where it is none."""
    lightgbm = _library()
    if lightgbm is None:
        return None
    try:
        return Model(lightgbm.Booster(model_str=text))
    except lightgbm.basic.LightGBMError:
        return None


@cache
def shipped() -> Model | None:
    """The model of the package, which `make train-model` made."""
    file = resources.files("tilewright.tune") / "shipped.txt"
    return read_model(file.read_text(encoding="utf-8")) if file.is_file() else None


def factors_of(model: Model | None, features: Sequence[Mapping[str, float]]) -> Array:
    """The factors of choices by a model; 1 for all without one."""
    return np.ones(len(features)) if model is None else model.factors(features)


def rank_quality(model: Model | None, groups: Sequence[Group]) -> float:
    """How well prices, corrected by a model, rank the choices of kernels: the rank correlation with their times, from
    -1 to 1, the mean over kernels."""
    found = [rank_correlation(_expected(model, group), group.ratios) for group in groups if len(group) >= LEAST]
    return statistics.fmean(found) if found else 0.0


def held_out_quality(groups: Sequence[Group]) -> float:
    """The same of models that have not seen the kernels that they rank. Kernels that were measured one after another,
    those of a network say, which may be alike, are ranked by one model."""
    found = []
    folds = [n * FOLDS // len(groups) for n in range(len(groups))]
    for fold in range(FOLDS):
        model = train([group for group, of in zip(groups, folds, strict=True) if of != fold])
        part = [group for group, of in zip(groups, folds, strict=True) if of == fold and len(group) >= LEAST]
        found += [rank_quality(model, [group]) for group in part]
    return statistics.fmean(found) if found else 0.0


def rank_correlation(one: Sequence[float] | Array, other: Sequence[float] | Array) -> float:
    """Spearman's rank correlation; 0 where all of one are equal."""
    a, b = (_ranks(np.asarray(each, dtype=np.float64)) for each in (one, other))
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else 0.0


def _ranks(values: Array) -> Array:
    """Places in order, equal ones sharing the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    found: Array = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return found


def _expected(model: Model | None, group: Group) -> Array:
    found: Array = np.asarray(group.prices) * factors_of(model, group.features)
    return found


def _matrix(features: Sequence[Mapping[str, float]], names: Sequence[str]) -> Array:
    """A row for each choice; what is not said of one is not a number."""
    return np.array([[row.get(name, math.nan) for name in names] for row in features], dtype=np.float64)


@cache
def _library() -> Any:
    """LightGBM, where it is installed."""
    try:
        import lightgbm
    except ImportError:
        return None
    return lightgbm
