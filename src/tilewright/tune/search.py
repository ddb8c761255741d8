"""The search of one kernel: choices are made and measured a few at a time, and the best is confirmed.

    search = Search(task, target, makers, flush, known)
    with search:
        while search.goes_on: search.step()
        record = search.confirm()

Arm 0 is the default, the cheapest choice by price, as it is without tuning. A batch holds those that look fastest, by
their price times what was learned of this kernel (`residual.py`), neighbours of the best, which differ from it in one
field, and one drawn at random, since prices may be wrong where nothing was measured. All are timed in turns with the
default; the best third again, longer. What is found is kept only if it wins `WINS` of `PAIRS` fresh pairs of calls
against the default, and by `GAIN` in the median (a sign test: such a score has a chance of 0.4 % between equals).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import numpy as np

from tilewright.plan.decision import record_of
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Candidate, candidates
from tilewright.report.errors import UserError
from tilewright.report.logs import debug
from tilewright.target import Target
from tilewright.tune.measure import Failed, Makers, Trials
from tilewright.tune.records import Record, name_of
from tilewright.tune.residual import Residual, fit
from tilewright.tune.task import Task

BATCH = 8
"""Choices that are made and timed together."""

ROUNDS, LONGER = 3, 9
"""Turns of each choice of a batch, and of the best third."""

PAIRS, WINS, GAIN = 15, 13, 0.02
"""What the best has to show against the default."""

WITHIN = 3.0
"""Choices are drawn that take up to so many times as long as the cheapest, by price."""

ALIKE = 3
"""Choices of a batch that share a tile of registers, at most."""

IDLE = 3
"""After so many batches without a gain the search of a kernel is over."""

DEFAULT, BEST = 0, 1
"""The numbers of the default and of the best choice among the programs that are loaded."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A choice that could be measured: its name among records, itself, and the seconds it should take."""

    name: str
    template: str
    record: Any
    price: float

    @property
    def asked(self) -> Mapping[str, Any]:
        """What a compilation is asked for."""
        return {"template": self.template, "choice": self.record}

    @property
    def tile(self) -> str:
        """Its tile of registers, as text."""
        return str(self.record.get("tile") if isinstance(self.record, dict) else self.record)


@dataclass(slots=True)
class _Best:
    """The best choice so far, its program, and its time over the default's."""

    choice: Choice
    program: bytes
    ratio: float


@dataclass(slots=True)
class Search:
    """The search of one kernel. `known` are ratios measured before, by the names of choices."""

    task: Task
    target: Target
    makers: Makers
    flush: int
    known: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    space: list[Choice] = field(init=False)
    measured: dict[str, float] = field(init=False)
    default_seconds: float = field(init=False, default=0.0)
    failed: dict[str, str] = field(init=False, default_factory=dict)
    idle: int = field(init=False, default=0)
    _best: _Best | None = field(init=False, default=None)
    _trials: Trials = field(init=False)
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.space = space_of(self.task, self.target)
        self.measured = {c.name: self.known[c.name] for c in self.space if c.name in self.known}
        self._trials = Trials(self.task.sizes, self.flush)
        self._rng = np.random.default_rng(self.seed)

    def __enter__(self) -> Search:
        """Loads the default. Failed where it cannot be measured."""
        (program,) = self.makers.make(self.task, [None])
        if isinstance(program, str):
            raise Failed(program)
        try:
            self._trials.load(DEFAULT, program)
            (turns,) = self._trials.time([DEFAULT], ROUNDS)
        except Failed:
            self._trials.__exit__(None, None, None)
            raise
        self.default_seconds = statistics.median(turns)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._trials.__exit__(kind, error, trace)

    @property
    def goes_on(self) -> bool:
        """Whether there is more to measure that may be worth it."""
        return self.idle < IDLE and any(self._is_open(c) for c in self.space)

    @property
    def ratio(self) -> float:
        """The time of the best choice over the default's."""
        return 1.0 if self._best is None else min(1.0, self._best.ratio)

    def _is_open(self, choice: Choice) -> bool:
        return choice.name not in self.measured and choice.name not in self.failed

    def step(self) -> int:
        """Makes and measures a batch; how many choices were measured."""
        batch = self._draw()
        made = self.makers.make(self.task, [choice.asked for choice in batch])
        loaded: dict[int, tuple[Choice, bytes]] = {}
        for number, (choice, program) in enumerate(zip(batch, made, strict=True), BEST + 1):
            try:
                if isinstance(program, str):
                    raise Failed(program)
                self._trials.load(number, program)
            except Failed as error:
                self.failed[choice.name] = str(error)
                debug("%s: a choice is dropped: %s", self.task.function.name, error)
            else:
                loaded[number] = choice, program
        found = self._times(loaded)
        self._trials.forget(list(loaded))
        before = self.ratio
        for number, ratio in found.items():
            choice, program = loaded[number]
            self.measured[choice.name] = ratio
            if self._best is None or ratio < self._best.ratio:
                self._best = _Best(choice, program, ratio)
        self.idle = 0 if self.ratio < before - GAIN / 2 else self.idle + 1
        return len(batch)

    def _times(self, loaded: Mapping[int, object]) -> dict[int, float]:
        """The times of programs over the default's: all of them, and the best third longer."""
        found: dict[int, float] = {}
        if loaded:
            found |= self._raced(list(loaded), ROUNDS)
            ahead = sorted(found, key=lambda number: found[number])[: max(1, len(found) // 3)]
            found |= self._raced(ahead, LONGER)
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

    def _draw(self) -> list[Choice]:
        """The next batch."""
        free = [choice for choice in self.space if self._is_open(choice)]
        model = self._residual()
        ranked = sorted(free, key=lambda c: c.price * model.factor(c.template, c.record))
        best = None if self._best is None else self._best.choice
        near = [] if best is None else [c for c in ranked if _differs_in_one(c, best)]
        drawn = near[: BATCH // 2]
        tiles = Counter(choice.tile for choice in drawn)
        for choice in ranked:
            if len(drawn) >= BATCH - 1:
                break
            if choice not in drawn and tiles[choice.tile] < ALIKE:
                drawn.append(choice)
                tiles[choice.tile] += 1
        rest = [choice for choice in free if choice not in drawn]
        if rest:
            drawn.append(rest[int(self._rng.integers(len(rest)))])
        return drawn

    def _residual(self) -> Residual:
        seconds = self.default_seconds
        rows = [
            (c.template, c.record, self.measured[c.name] * seconds / c.price)
            for c in self.space
            if c.name in self.measured and c.price > 0
        ]
        return fit(rows)

    def confirm(self) -> Record:
        """The record of the kernel: the best choice if it beats the default in fresh pairs, else the default."""
        plain = Record(
            self.task.key, self.task.function.name, default_seconds=self.default_seconds, measured=self.measured
        )
        best = self._best
        if best is None or best.ratio > 1 - GAIN:
            return plain
        try:
            self._trials.load(BEST, best.program)
            first, other = self._trials.time([DEFAULT, BEST], PAIRS, int(self._rng.integers(1 << 31)))
        except Failed as error:
            debug("%s: the best choice is dropped: %s", self.task.function.name, error)
            return plain
        finally:
            self._trials.forget([BEST])
        wins = sum(b < a for a, b in zip(first, other, strict=True))
        ratio = statistics.median(b / a for a, b in zip(first, other, strict=True))
        if wins < WINS or ratio > 1 - GAIN:
            return plain
        return Record(
            plain.key,
            plain.kernel,
            best.choice.template,
            best.choice.record,
            statistics.median(first),
            statistics.median(first) * ratio,
            wins,
            PAIRS,
            self.measured,
        )


def better_of(found: Record, before: Record | None) -> Record:
    """What was found, or what was known before where that gains as much; with all that was measured."""
    if before is None:
        return found
    measured = {**before.measured, **found.measured}
    if before.is_better:
        gains = found.is_better and found.seconds / found.default_seconds < (
            before.seconds / before.default_seconds - GAIN / 2
        )
        return replace(found if gains else before, measured=measured)
    return replace(found, measured=measured)


def space_of(task: Task, target: Target) -> list[Choice]:
    """The choices of a kernel, the cheapest by price first, but for the default and those much dearer than that."""
    facts = Facts(task.function)
    ranked = candidates(facts, target)
    if not ranked:
        return []
    first = _first_legal(ranked, facts, target)
    limit = WITHIN * ranked[0].seconds
    space = []
    for c in ranked:
        if c is not first and c.seconds <= limit:
            name, record = c.template.name, record_of(c.choice)
            space.append(Choice(name_of(name, record), name, record, c.seconds))
    return space


def _first_legal(ranked: Sequence[Candidate], facts: Facts, target: Target) -> Candidate | None:
    """The choice that is taken without tuning."""
    for candidate in ranked:
        try:
            candidate.schedule(facts, target)
        except UserError:
            continue
        return candidate
    return None


def _differs_in_one(one: Choice, other: Choice) -> bool:
    """Whether two choices of a template differ in one field, those of records inside counted by themselves."""
    return one.template == other.template and _differences(one.record, other.record) == 1


def _differences(one: Any, other: Any) -> int:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return sum(_differences(one[name], other[name]) for name in one)
    return int(one != other)
