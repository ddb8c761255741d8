"""The search of one kernel: choices are made and measured a few at a time, and the best is confirmed.

    search = Search(task, target, makers, flush, known)
    with search:
        while search.goes_on: search.step()
        record = search.confirm()

Arm 0 is the default, the cheapest choice by price, as it is without tuning. The choices of a batch (`strategy.py`) are
timed in turns with it; the best third again, longer. Programs that are alike are timed once. Of the `FINALISTS`, the
first is kept that wins so many of fresh pairs of calls against the default as chance gives equals once in 250 times, 13
of 15, say, and gains `GAIN` in the median. Where a lot of pairs leaves it open, there are more.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

import numpy as np

from tilewright.report.logs import debug
from tilewright.target import Target
from tilewright.tune.candidates import Candidates
from tilewright.tune.measure import Failed, Makers, Trials
from tilewright.tune.model import Group, Model
from tilewright.tune.records import Record
from tilewright.tune.space import Choice, space_of
from tilewright.tune.strategy import Strategy
from tilewright.tune.task import Task

TURN_SECONDS, LEAST, MOST = 0.012, 3, 25
"""What the turns of a choice take in all, and how many there are at least and at most."""

LONGER = 3
"""The best third has so many times as many turns again."""

FLUSHED_RATE = 1e10
"""Bytes a second that are pushed through the caches, about."""

PAIRS, PARTS, LOTS, CHANCE, GAIN = 5, 3, 4, 0.004, 0.02
"""Pairs of calls of programs as they were loaded, how often they are loaded for a lot, and how many lots there are at
most; the chance between equals of what is believed; the least gain in the median."""

FINALISTS = 3
"""The best choices that are measured against the default at last: where times are noisy, the first of them is lucky."""

DEFAULT, AGAIN, OTHER = 0, 1, 2
"""The number of the default among the programs that are loaded, that of a second one of it, and the first of others."""


@dataclass(slots=True)
class Search:
    """The search of one kernel. `known` are ratios measured before, by the names of choices; a `model` ranks those that
    were not."""

    task: Task
    target: Target
    makers: Makers
    flush: int
    known: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    model: Model | None = None

    strategy: Strategy = field(init=False)
    default_seconds: float = field(init=False, default=0.0)
    failed: dict[str, str] = field(init=False, default_factory=dict)
    _ratios: dict[bytes, float] = field(init=False, default_factory=dict)
    _trials: Trials = field(init=False)
    _candidates: Candidates = field(init=False)
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.strategy = Strategy(space_of(self.task, self.target), self.seed, self.known, self.model)
        self._trials = Trials(self.task.sizes, self.flush, self.makers, self.task.shift)
        self._candidates = Candidates(self.makers, self._trials, self.task)
        self._rng = np.random.default_rng(self.seed)

    def __enter__(self) -> Search:
        """Loads the default. Failed where it cannot be measured."""
        try:
            default = self._candidates.load({DEFAULT: None})[DEFAULT]
            if default.why:
                raise Failed(default.why)
            (turns,) = self._trials.time([DEFAULT], LEAST)
        except Failed:
            self._trials.__exit__(None, None, None)
            raise
        self._ratios[default.digest] = 1.0
        self.default_seconds = statistics.median(turns)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._trials.__exit__(kind, error, trace)

    @property
    def space(self) -> list[Choice]:
        """The choices beside the default."""
        return self.strategy.space

    @property
    def measured(self) -> dict[str, float]:
        """The times of choices over the default's, by their names."""
        return self.strategy.measured

    @property
    def group(self) -> Group:
        """What was measured, as the cost model learns from it."""
        return self.strategy.group(self.task.key)

    @property
    def goes_on(self) -> bool:
        """Whether there is more to measure that may be worth it."""
        return self.strategy.goes_on

    @property
    def ratio(self) -> float:
        """The time of the best choice over the default's."""
        return min(1.0, *self.measured.values()) if self.measured else 1.0

    def step(self) -> int:
        """Makes and measures a batch; how many choices were measured."""
        batch = dict(enumerate(self.strategy.draw(), OTHER))
        made = self._candidates.load({number: choice.asked for number, choice in batch.items()})
        codes = {choice.name: made[number].digest for number, choice in batch.items() if not made[number].why}
        for number, choice in batch.items():
            if made[number].why:
                self.strategy.drop(choice.name)
                self.failed[choice.name] = made[number].why
                debug("%s: a choice is dropped: %s", self.task.function.name, made[number].why)
        loaded = [number for number in batch if made[number].is_loaded]
        found = self._times(loaded)
        self._trials.forget(loaded)
        self._ratios |= {made[number].digest: found.get(number, math.inf) for number in loaded}
        timed = {name: self._ratios[code] for name, code in codes.items() if math.isfinite(self._ratios[code])}
        for name in codes.keys() - timed.keys():
            self.strategy.drop(name)
        self.strategy.learn(timed)
        return len(batch)

    def _times(self, loaded: Sequence[int]) -> dict[int, float]:
        """The times of programs over the default's: all of them, and the best third longer."""
        found: dict[int, float] = {}
        if loaded:
            rounds = turns_of(self.default_seconds, self.flush)
            found |= self._raced(loaded, rounds)
            ahead = sorted(found, key=lambda number: found[number])[: max(1, len(found) // 3)]
            found |= self._raced(ahead, LONGER * rounds)
        return found

    def _raced(self, numbers: Sequence[int], rounds: int) -> dict[int, float]:
        try:
            first, *rows = self._trials.time([DEFAULT, *numbers], rounds, int(self._rng.integers(1 << 31)))
        except Failed as error:
            if len(numbers) == 1:
                debug("%s: %s", self.task.function.name, error)
                return {}
            return {n: ratio for number in numbers for n, ratio in self._raced([number], rounds).items()}
        scale = statistics.median(first)
        return {number: statistics.median(row) / scale for number, row in zip(numbers, rows, strict=True)}

    @property
    def so_far(self) -> Record:
        """The record of the kernel as it is, with what was measured; nothing is confirmed."""
        return Record(
            self.task.key,
            self.task.function.name,
            default_seconds=self.default_seconds,
            measured=self.measured,
            threads=self.makers.threads,
        )

    def confirm(self) -> Record:
        """The record of the kernel: the best choice if it beats the default in fresh pairs, else the default."""
        plain = self.so_far
        ranked = sorted(self.space, key=lambda c: self.measured.get(c.name, math.inf))[:FINALISTS]
        for choice in ranked:
            if self.measured.get(choice.name, math.inf) > 1 - GAIN:
                break
            found = self._confirmed(choice, plain)
            if found is not None:
                return found
        return plain

    def _confirmed(self, choice: Choice, plain: Record) -> Record | None:
        """The record of a choice, made and loaded again, where it beats the default."""
        default, program = self.makers.make(self.task, [None, choice.asked])
        try:
            if isinstance(program, str) or isinstance(default, str):
                raise Failed(str(program))
            first, other = self._pairs(default, program)
        except Failed as error:
            debug("%s: the best choice is dropped: %s", self.task.function.name, error)
            return None
        finally:
            self._trials.forget([AGAIN, OTHER])
        wins = sum(b < a for a, b in zip(first, other, strict=True))
        ratio = statistics.median(b / a for a, b in zip(first, other, strict=True))
        if chance_of(wins, len(first)) > CHANCE or ratio > 1 - GAIN:
            return None
        seconds = statistics.median(first)
        found = replace(plain, template=choice.template, choice=choice.record, default_seconds=seconds)
        return replace(found, seconds=seconds * ratio, wins=wins, pairs=len(first))

    def _pairs(self, default: bytes, program: bytes) -> tuple[list[float], list[float]]:
        """The seconds of pairs of calls of the default and another choice: lot after lot, until it is clear which one
        is faster. Both are loaded again and again, either of them first: where in memory a program and its weights lie
        may make more of a difference than the choice does."""
        first, other = list[float](), list[float]()
        both = [(AGAIN, default), (OTHER, program)]
        for _ in range(LOTS):
            for _ in range(PARTS):
                both.reverse()
                self._trials.forget([AGAIN, OTHER])
                for number, each in both:
                    self._trials.load(number, each)
                a, b = self._trials.time([AGAIN, OTHER], PAIRS, int(self._rng.integers(1 << 31)))
                first, other = first + a, other + b
            wins = sum(y < x for x, y in zip(first, other, strict=True))
            if 2 * wins <= len(first) or chance_of(wins, len(first)) <= CHANCE:
                break
        return first, other


def turns_of(seconds: float, flush: int) -> int:
    """The turns of a choice of a kernel that takes so many seconds, before whose calls so many bytes are flushed."""
    return min(max(round(TURN_SECONDS / (2 * seconds + flush / FLUSHED_RATE)), LEAST), MOST)


def chance_of(wins: int, pairs: int) -> float:
    """The chance that one of two equals wins so many pairs, or more."""
    return float(sum(math.comb(pairs, n) for n in range(wins, pairs + 1)) / 2**pairs)


def better_of(found: Record, before: Record | None) -> Record:
    """What was found, or what was known before where that gains as much; with all that was measured."""
    if before is None:
        return found
    measured = {**before.measured, **found.measured} if before.threads == found.threads else found.measured
    if before.is_better:
        gains = found.is_better and found.seconds / found.default_seconds < (
            before.seconds / before.default_seconds - GAIN / 2
        )
        return replace(found if gains else before, measured=measured)
    return replace(found, measured=measured)
