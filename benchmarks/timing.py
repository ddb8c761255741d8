"""Samples of what several programs take, and the words for them.

`take_turns` interleaves programs of microseconds: each round gives every program a turn of many calls between two looks
at the clock, so that the clock costs nothing and a disturbance hits all alike. `race` does the same for programs of
many microseconds and more, which it calls one by one. `Samples` says best and median.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

PAUSE_SECONDS = 0.001
"""Before each turn of a race between programs of one thread."""
THREADS_PAUSE_SECONDS = 0.04
"""Before each turn of a race between programs of several threads: as long as any waits awake for more work, on a core
that the next program needs."""
HOPELESS = 8
"""A program this many times slower than the fastest, and of `LONG_SECONDS` or more a call, leaves a race."""
LONG_SECONDS = 0.1
"""Of a call of as many seconds, what comes first is too little to be seen: waking threads, filling caches."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds, one for each time that something was measured."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def scaled(self, factor: float) -> Samples:
        """The seconds of `factor` times as much work at the same rate."""
        return Samples(tuple(factor * seconds for seconds in self.seconds))

    def record(self) -> dict[str, float | int]:
        """The samples as JSON says them."""
        return {"best_seconds": self.best, "median_seconds": self.median, "samples": len(self.seconds)}


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times longer one program took than another: of the bests, and the median of the rounds' ratios."""

    best: float
    median: float


def compare(longer: Samples, shorter: Samples) -> Ratio:
    """The ratio of two programs of one race. One that left the race is compared by its one sample."""
    best = longer.best / shorter.best
    if len(longer.seconds) != len(shorter.seconds):
        return Ratio(best, longer.median / shorter.median)
    rounds = zip(longer.seconds, shorter.seconds, strict=True)
    return Ratio(best, statistics.median(a / b for a, b in rounds))


def race(
    programs: Mapping[str, Callable[[], object]],
    rounds: int,
    turn_seconds: float,
    pause_seconds: float = PAUSE_SECONDS,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, Samples]:
    """Samples of one call of each program, one a round: the best call of its turn.

    A turn is a pause, a call that does not count and brings the program's data back into the caches, then calls for
    about `turn_seconds`. A program that takes `LONG_SECONDS` goes without the call that does not count. The order
    turns with the rounds. A program without hope leaves the race after the warming round and keeps that sample. The
    `clock` gives nanoseconds: those of the processor on a machine that other programs keep busy.
    """
    counts: dict[str, int] = {}
    warming: dict[str, float] = {}
    for name, program in programs.items():
        warming[name] = _time(program, 1, clock)
        warming[name] = min(warming[name], _time(program, 1, clock)) if warming[name] < LONG_SECONDS else warming[name]
        counts[name] = max(1, int(turn_seconds / warming[name]))
    slow = max(HOPELESS * min(warming.values()), LONG_SECONDS)
    runners = [name for name in programs if warming[name] < slow]
    taken: dict[str, list[float]] = {name: [] if name in runners else [warming[name]] for name in programs}
    for n in range(rounds):
        for turn in range(len(runners)):
            name = runners[(turn + n) % len(runners)]
            warm = warming[name] < LONG_SECONDS
            taken[name].append(_take_turn(programs[name], counts[name], warm, pause_seconds, clock))
    return {name: Samples(tuple(seconds)) for name, seconds in taken.items()}


def _take_turn(
    program: Callable[[], object], calls: int, warm: bool, pause_seconds: float, clock: Callable[[], int]
) -> float:
    time.sleep(pause_seconds)
    if warm:
        program()
    return min(_time(program, 1, clock) for _ in range(calls))


def take_turns(programs: Sequence[Callable[[], object]], rounds: int, calls: int) -> list[Samples]:
    """Seconds of one call of each program: `rounds` samples, each the mean of `calls` calls in a row."""
    taken: list[list[float]] = [[] for _ in programs]
    for n in range(rounds + 1):
        for turn in range(len(programs)):
            which = (turn + n) % len(programs)
            seconds = _time(programs[which], calls)
            if n:  # the first round warms up
                taken[which].append(seconds)
    return [Samples(tuple(t)) for t in taken]


def _time(program: Callable[[], object], calls: int, clock: Callable[[], int] = time.perf_counter_ns) -> float:
    repeats = range(calls)
    start = clock()
    for _ in repeats:
        program()
    return (clock() - start) / 1e9 / calls
