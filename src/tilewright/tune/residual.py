"""What prices leave out, learned from the choices of one kernel that were measured.

    residual = Residual([(template, record of a choice), …], [log seconds, …])  all choices of the kernel, and what
                                                                                each should take
    belief = residual.belief([3, 17], [-0.1, 0.2])      of all, where the fourth and the eighteenth took so much
    belief.mean, belief.deviation                       of the logarithm of each choice's time
    belief.suppose(5)                                   as if the sixth had been measured, and took what is expected

A Gaussian process over what choices say. Its mean is the logarithm that is expected, times a slope that is learned, for
prices may be too steep or too flat. Two choices are the more alike the more fields have the same value in both: each
field that differs takes a part of what they share, whatever the others say (a sum over fields), or by a factor (a
product, where it matters what the others say). No order of values is assumed. Which of these it is, and how much
choices differ, is what makes the times that were measured likeliest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

NOISE = 0.02
"""The standard deviation of the logarithm of a time that is measured again."""

SLOPE = 0.3
"""The variance of the slope by which what is expected counts too much or too little."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How choices are alike: the standard deviation of what prices leave out, the part of it that two choices share
    by a factor for each field in which they differ, and the part that fields say each by itself."""

    deviation: float = 0.25
    factor: float = 0.6
    alone: float = 0.5

    def of(self, differing: Array, fields: float) -> Array:
        """The covariance of choices that differ in so many of all fields."""
        shared = (1 - self.alone) * self.factor**differing + self.alone * (1 - differing / fields)
        found: Array = self.deviation**2 * shared
        return found


SHAPES = tuple(Shape(*each) for each in product((0.1, 0.25), (0.3, 0.6, 0.8), (0.0, 0.5)))
"""Those that are tried."""

FEW = 4
"""Choices measured that say nothing yet about the shape."""


class Residual:
    """The choices of a kernel by what they say, with the logarithms of the seconds that they should take."""

    def __init__(self, choices: Sequence[tuple[str, Any]], expected: Sequence[float] | Array) -> None:
        said, self._fields = _said(choices)
        number = {word: n for n, word in enumerate(sorted(set().union(*said)))}
        self._said = np.zeros((len(said), len(number)), dtype=np.float32)
        for row, words in zip(self._said, said, strict=True):
            row[[number[word] for word in words]] = 1
        logs = np.asarray(expected, dtype=np.float64)
        # Times are told over the default's, which is near the cheapest one's.
        self._expected = logs - logs.min() if len(said) else logs
        self._sloped = logs - logs.mean() if len(said) else logs

    def belief(self, measured: Sequence[int], logs: Sequence[float] | Array) -> Belief:
        """What is believed of all choices, where those measured took so much. Before any is, what is expected."""
        rows, logs = list(measured), np.asarray(logs, dtype=np.float64)
        shape = self._likeliest(rows, logs) if len(rows) >= FEW else Shape()
        # Before any is measured, choices rank as expected: neither the level of times nor the slope is asked for.
        level, slope = (1.0, SLOPE) if rows else (0.0, 0.0)

        def covariance(choices: Sequence[int]) -> Array:
            sloped = slope * np.outer(self._sloped[list(choices)], self._sloped)
            found: Array = shape.of(self._differing(choices), self._fields) + sloped + level
            return found

        variance = shape.deviation**2 + slope * self._sloped**2 + level
        if not rows:
            return Belief(self._expected.copy(), variance, np.zeros((0, len(variance))), covariance)
        shared = covariance(rows)
        root = np.linalg.cholesky(shared[:, rows] + NOISE**2 * np.eye(len(rows)))
        known = np.linalg.solve(root, shared)
        mean = self._expected + known.T @ np.linalg.solve(root, logs - self._expected[rows])
        return Belief(mean, variance - (known**2).sum(0), known, covariance)

    def _likeliest(self, rows: list[int], logs: Array) -> Shape:
        """The shape under which what was measured is likeliest."""
        differing, sloped = self._differing(rows)[:, rows], self._sloped[rows]
        fixed = SLOPE * np.outer(sloped, sloped) + 1 + NOISE**2 * np.eye(len(rows))
        left = logs - self._expected[rows]

        def unlikely(shape: Shape) -> float:
            root = np.linalg.cholesky(shape.of(differing, self._fields) + fixed)
            return float(((np.linalg.solve(root, left)) ** 2).sum() / 2 + np.log(np.diag(root)).sum())

        return min(SHAPES, key=unlikely)

    def _differing(self, choices: Sequence[int]) -> Array:
        """In how many fields some choices differ from each of all."""
        found: Array = self._fields - (self._said[list(choices)] @ self._said.T).astype(np.float64)
        return found


class Belief:
    """What is believed of the logarithms of all choices' times: normal, of a `mean` and a `variance` each."""

    def __init__(
        self, mean: Array, variance: Array, known: Array, covariance: Callable[[Sequence[int]], Array]
    ) -> None:
        self.mean, self._variance, self._known, self._covariance = mean, variance, known, covariance

    @property
    def deviation(self) -> Array:
        """Standard deviations."""
        found: Array = np.sqrt(np.maximum(self._variance, 1e-10))
        return found

    def suppose(self, choice: int) -> None:
        """As if a choice had been measured, and took what is expected of it: means stay as they are, and variances
        fall, the more a choice is like it."""
        (shared,) = self._covariance([choice])
        row = (shared - self._known[:, choice] @ self._known) / np.sqrt(self._variance[choice] + NOISE**2)
        self._known = np.vstack([self._known, row])
        self._variance = self._variance - row**2


def _said(choices: Sequence[tuple[str, Any]]) -> tuple[list[set[str]], int]:
    """What each choice says beside what all choices of its template say, and how many words each of them has: those of
    fewer fields have words for their template, too, so that all differ from themselves in nothing."""
    said = [set(words_of(template, choice)) for template, choice in choices]
    common: dict[str, set[str]] = {}
    for (template, _), words in zip(choices, said, strict=True):
        common[template] = common.get(template, words) & words
    own = [words - common[template] for (template, _), words in zip(choices, said, strict=True)]
    count = 1 + max(map(len, own), default=0)
    filled = zip(choices, own, strict=True)
    return [words | {f"{name} {n}" for n in range(count - len(words))} for (name, _), words in filled], count


def words_of(template: str, choice: Any, place: str = "") -> Iterator[str]:
    """A word for the template, and for each field of a choice and its value."""
    if isinstance(choice, dict):
        for name, value in choice.items():
            yield from words_of(template, value, f"{place}.{name}")
    else:
        yield f"{template}{place}={choice}"
