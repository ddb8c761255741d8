"""What prices leave out, learned from the choices of one kernel that were measured.

    model = fit(rows)                   of (template, record of a choice, measured over predicted seconds)
    model.factor(template, record)      the same ratio, as it is expected of a choice

Ridge regression of log(seconds / price) over what a choice says: an indicator for each value that a field has, so that
no order of values is assumed. With few rows the penalty keeps factors near the mean of those that were measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PENALTY = 1.0
"""Of the squares of weights, in the units of the squared logarithm: as much as one choice measured counts."""


@dataclass(frozen=True, slots=True)
class Residual:
    """The mean of the logarithms, and a weight for each value of a field."""

    mean: float
    weights: dict[str, float]

    def factor(self, template: str, choice: Any) -> float:
        """Measured over predicted seconds, as they are expected of a choice."""
        return math.exp(self.mean + sum(self.weights.get(word, 0.0) for word in words_of(template, choice)))


def fit(rows: Sequence[tuple[str, Any, float]]) -> Residual:
    """The model of choices that were measured: their templates, records, and measured over predicted seconds."""
    if not rows:
        return Residual(0.0, {})
    said = [set(words_of(template, choice)) for template, choice, _ in rows]
    logs = np.log([ratio for *_, ratio in rows])
    mean = float(logs.mean())
    words = sorted(set().union(*said))
    seen = np.array([[word in row for word in words] for row in said], dtype=np.float64)
    # As many unknowns as rows: the weights are a sum of the rows.
    inner = seen @ seen.T + PENALTY * np.eye(len(rows))
    weights = seen.T @ np.linalg.solve(inner, logs - mean)
    return Residual(mean, dict(zip(words, map(float, weights), strict=True)))


def words_of(template: str, choice: Any, place: str = "") -> Iterator[str]:
    """A word for the template, and for each field of a choice and its value."""
    if isinstance(choice, dict):
        for name, value in choice.items():
            yield from words_of(template, value, f"{place}.{name}")
    else:
        yield f"{template}{place}={choice}"
