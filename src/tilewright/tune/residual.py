"""What prices leave out, learned from the choices of one kernel that were measured.

    residual = Residual([(template, record of a choice), …])        all choices of the kernel
    residual.factors([3, 17], [0.9, 1.2])       measured over predicted seconds, as they are expected of all choices,
                                                from those of the fourth and the eighteenth one

Ridge regression of log(seconds / price) over what a choice says: an indicator for each value that a field has, so that
no order of values is assumed. With few rows the penalty keeps factors near the mean of those that were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

PENALTY = 0.3
"""Of the squares of weights, in the units of the squared logarithm: a third of what one choice measured counts."""


class Residual:
    """The choices of a kernel by what they say."""

    def __init__(self, choices: Sequence[tuple[str, Any]]) -> None:
        said = [set(words_of(template, choice)) for template, choice in choices]
        number = {word: n for n, word in enumerate(sorted(set().union(*said)))}
        self._seen = np.zeros((len(said), len(number)), dtype=np.float32)
        for row, words in zip(self._seen, said, strict=True):
            row[[number[word] for word in words]] = 1

    def factors(self, measured: Sequence[int], ratios: Sequence[float]) -> Array:
        """Measured over predicted seconds, as they are expected of each choice."""
        if not len(measured):
            return np.ones(len(self._seen))
        logs = np.log(np.asarray(ratios, dtype=np.float64))
        mean, alike = float(logs.mean()), (self._seen @ self._seen[list(measured)].T).astype(np.float64)
        # As many unknowns as rows: the weights are a sum of the rows.
        inner = alike[list(measured)] + PENALTY * np.eye(len(logs))
        found: Array = np.exp(mean + alike @ np.linalg.solve(inner, logs - mean))
        return found


def words_of(template: str, choice: Any, place: str = "") -> Iterator[str]:
    """A word for the template, and for each field of a choice and its value."""
    if isinstance(choice, dict):
        for name, value in choice.items():
            yield from words_of(template, value, f"{place}.{name}")
    else:
        yield f"{template}{place}={choice}"
