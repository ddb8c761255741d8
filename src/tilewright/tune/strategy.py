"""Which choices of a kernel are measured next, by what is known of them: nothing runs here.

    strategy = Strategy(space, seed, model=model)
    batch = strategy.draw()                     choices that are not measured
    strategy.learn({choice.name: ratio, …})     their times over the default's
    strategy.drop(choice.name)                  one that cannot be measured

A batch holds the choices that should improve most on the best one, by their price times what was learned of other
kernels (`model.py`) and of this one (`residual.py`): those that look fast, and those that may be, where little is
known. Each is drawn as if those before it had been measured, so that no batch holds nearly the same choice several
times. Half of them are neighbours of the best one, which differ from it in one field, and the last is drawn at random,
since prices may be wrong where nothing was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.tune.model import Group, Model, factors_of
from tilewright.tune.residual import Array, Belief, Residual
from tilewright.tune.space import Choice

BATCH = 8
"""Choices that are made and timed together."""

SLOWEST = math.log(2)
"""Choices that are slower than the best by more than this, as a logarithm, count as if they were slower by so much: how
slow one is that spills says nothing about the fast ones."""

LEAST = 1e-12
"""Seconds of a price of nothing."""

GAIN, IDLE = 0.01, 6
"""A batch without a gain is one that does not lower the best time by so much; after so many the search is over."""


class Strategy:
    """The choices of a kernel, and what was measured of them: ratios to the default's time, by their names. A `model`
    says what prices leave out before anything is measured."""

    def __init__(
        self,
        space: Sequence[Choice],
        seed: int = 0,
        known: Mapping[str, float] | None = None,
        model: Model | None = None,
    ) -> None:
        self.space = list(space)
        known = known or {}
        self.measured = {c.name: known[c.name] for c in self.space if c.name in known}
        self.dropped: set[str] = set()
        self.idle = 0
        self._rng = np.random.default_rng(seed)
        self._number = {c.name: n for n, c in enumerate(self.space)}
        expected = [max(c.price, LEAST) for c in self.space] * factors_of(model, [c.features for c in self.space])
        self._residual = Residual([(c.template, c.record) for c in self.space], np.log(expected))

    @property
    def goes_on(self) -> bool:
        """Whether there is more to measure that may be worth it."""
        return self.idle < IDLE and any(self._is_open(c) for c in self.space)

    def _is_open(self, choice: Choice) -> bool:
        return choice.name not in self.measured and choice.name not in self.dropped

    def drop(self, name: str) -> None:
        """A choice cannot be measured."""
        self.dropped.add(name)

    def learn(self, ratios: Mapping[str, float]) -> None:
        """What a batch took."""
        before = min(1.0, *self.measured.values()) if self.measured else 1.0
        self.measured.update(ratios)
        gains = bool(ratios) and min(ratios.values()) < before - GAIN
        self.idle = 0 if gains else self.idle + 1

    def draw(self, count: int = BATCH) -> list[Choice]:
        """The next batch."""
        free = [n for n, choice in enumerate(self.space) if self._is_open(choice)]
        best = self._number[min(self.measured, key=lambda name: self.measured[name])] if self.measured else None
        near = [n for n in free if best is not None and _differs_in_one(self.space[n], self.space[best])]
        belief, drawn = self.belief(), list[int]()
        least = (
            math.log(self.measured[self.space[best].name])
            if best is not None
            else float(belief.mean.min(initial=np.inf))
        )
        while free and len(drawn) < count - 1:
            among = near if near and len(drawn) < count // 2 else free
            gains = _gains(least, belief.mean[among], belief.deviation[among])
            drawn.append(among[int(np.argmax(gains))])
            belief.suppose(drawn[-1])
            least = min(least, float(belief.mean[drawn[-1]]))
            free, near = ([n for n in left if n != drawn[-1]] for left in (free, near))
        if free:
            drawn.append(free[int(self._rng.integers(len(free)))])
        return [self.space[n] for n in drawn]

    def belief(self) -> Belief:
        """What is believed of all choices, by their prices, the model, and those that were measured."""
        logs = np.log(list(self.measured.values()))
        known = [self._number[name] for name in self.measured]
        return self._residual.belief(known, np.minimum(logs, logs.min(initial=np.inf) + SLOWEST))

    def group(self, kernel: str) -> Group:
        """What was measured, as the model learns from it, of a kernel with this key."""
        known = [c for c in self.space if c.name in self.measured and c.price > 0]
        ratios = [self.measured[c.name] for c in known]
        return Group(kernel, [c.features for c in known], [c.price for c in known], ratios)


def _gains(least: float, mean: Array, deviation: Array) -> Array:
    """By how much normal numbers are expected to be below the least one that is known (Mockus, 1978)."""
    apart = (least - mean) / deviation
    below = (1 + np.array([math.erf(each) for each in apart / math.sqrt(2)])) / 2
    found: Array = (least - mean) * below + deviation * np.exp(-(apart**2) / 2) / math.sqrt(2 * math.pi)
    return found


def _differs_in_one(one: Choice, other: Choice) -> bool:
    """Whether two choices of a template differ in one field, those of records inside counted by themselves."""
    return one.template == other.template and _differences(one.record, other.record) == 1


def _differences(one: Any, other: Any) -> int:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return sum(_differences(one[name], other[name]) for name in one)
    return int(one != other)
