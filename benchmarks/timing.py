"""Samples of what several programs take, and the words for them.

`take_turns` interleaves programs of microseconds: each round gives every program a turn of many calls between two looks
at the clock, so that the clock costs nothing and a disturbance hits all alike. `Samples` says best and median.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


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

    def record(self) -> dict[str, float | int]:
        """The samples as JSON says them."""
        return {"best_seconds": self.best, "median_seconds": self.median, "samples": len(self.seconds)}


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


def _time(program: Callable[[], object], calls: int) -> float:
    repeats = range(calls)
    start = time.perf_counter_ns()
    for _ in repeats:
        program()
    return (time.perf_counter_ns() - start) / 1e9 / calls
