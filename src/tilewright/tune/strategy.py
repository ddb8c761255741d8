"""Which choices of a kernel are measured next, by what is known of them: nothing runs here.

    strategy = Strategy(space, seed, model=model)
    batch = strategy.draw()                     choices that are not measured
    strategy.learn({choice.name: ratio, …})     their times over the default's
    strategy.drop(choice.name)                  one that cannot be measured

A batch holds the choices that look fastest, by their price times what was learned of other kernels (`model.py`) and
of this one (`residual.py`), neighbours of the best ones, which differ from them in one field, and one drawn at random,
since prices may be wrong where nothing was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.tune.model import Group, Model, factors_of
from tilewright.tune.residual import Residual
from tilewright.tune.space import Choice

BATCH = 8
"""Choices that are made and timed together."""

ALIKE = 3
"""Choices of a batch that share a tile of registers, at most."""

HALVED = 16
"""Choices measured of a kernel after which logarithms of the model's factors count half: what was measured of it says
more by then."""

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
        self._factors = factors_of(model, [c.features for c in self.space])
        self._residual = Residual([(c.template, c.record) for c in self.space])

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
        free = [choice for choice in self.space if self._is_open(choice)]
        seconds = self._expected()
        ranked = sorted(free, key=lambda c: seconds[c.name])
        by_time = sorted((c for c in self.space if c.name in self.measured), key=lambda c: self.measured[c.name])
        near = [] if not by_time else [c for c in ranked if _differs_in_one(c, by_time[0])]
        drawn = near[: count // 2]
        tiles = Counter(choice.tile for choice in drawn)
        for choice in ranked:
            if len(drawn) >= count - 1:
                break
            if choice not in drawn and tiles[choice.tile] < ALIKE:
                drawn.append(choice)
                tiles[choice.tile] += 1
        rest = [choice for choice in free if choice not in drawn]
        if rest:
            drawn.append(rest[int(self._rng.integers(len(rest)))])
        return drawn

    def _expected(self) -> dict[str, float]:
        """The times that choices should take, by their prices, the model, and those that were measured."""
        prices = np.array([c.price for c in self.space]) * self._factors**2 ** (-len(self.measured) / HALVED)
        known = [n for n, c in enumerate(self.space) if c.name in self.measured and c.price > 0]
        ratios = [self.measured[self.space[n].name] / prices[n] for n in known]
        factors = self._residual.factors(known, ratios)
        return {c.name: float(p) for c, p in zip(self.space, prices * factors, strict=True)}

    def group(self, kernel: str) -> Group:
        """What was measured, as the model learns from it, of a kernel with this key."""
        known = [c for c in self.space if c.name in self.measured and c.price > 0]
        ratios = [self.measured[c.name] for c in known]
        return Group(kernel, [c.features for c in known], [c.price for c in known], ratios)


def _differs_in_one(one: Choice, other: Choice) -> bool:
    """Whether two choices of a template differ in one field, those of records inside counted by themselves."""
    return one.template == other.template and _differences(one.record, other.record) == 1


def _differences(one: Any, other: Any) -> int:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return sum(_differences(one[name], other[name]) for name in one)
    return int(one != other)
