"""Times worth believing, on a machine that others use, too.

What disturbs a run only makes it slower: another process that gets the core, caches that are cold after that, a clock
that has not risen yet. So each run has many short turns, spread over the time there is, and the best of them counts. A
turn in which the thread did not have its core all the time counts for nothing: more wall time passed than the thread's
own processor time. A time is settled where several turns agree with the best; what is not settled in the time there is
is None, for the best of a few disturbed turns is no property of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

TURN: Final = 30e-6
"""Seconds of a turn: far more than a call from Python takes, far less than a scheduler's time slice."""

LEAST: Final = 20
"""Turns that each run has where there is time."""

_AGREEING: Final = 3
_WITHIN: Final = 1.1
"""A time is settled where so many turns, the best among them, are within this ratio of it."""

_RISING: Final = 3
"""The first turns only find out how many rounds make a turn."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds that passed, and seconds that this thread had a core. Where the second stands still it cannot tell."""

    wall: Callable[[], float] = time.perf_counter
    thread: Callable[[], float] = time.thread_time

    def time(self, run: Callable[[], object]) -> float | None:
        """The seconds of a run; None where another thread had the core in between."""
        before = self.thread()  # outside of the wall time: undisturbed, a thread's time is the longer one
        start = self.wall()
        run()
        took = self.wall() - start
        had = self.thread() - before
        return took if had >= took or had == 0 else None


@dataclass(slots=True)
class Run:
    """What is timed: `run(turn, rounds)`. `prepare(turn)` comes before each turn and is not timed. A turn has as many
    rounds as take `TURN` seconds, to begin with `rounds`; where these are `fixed`, always so many."""

    run: Callable[[int, int], object]
    rounds: int = 1
    prepare: Callable[[int], object] = lambda turn: None
    fixed: bool = False
    times: list[float] = field(default_factory=list)

    def take(self, turn: int, clock: Clock) -> None:
        """One turn: its seconds a round are kept, unless it was disturbed."""
        self.prepare(turn)
        rounds = self.rounds
        seconds = clock.time(lambda: self.run(turn, rounds))
        if seconds is None:
            return
        self.times.append(seconds / rounds)
        if len(self.times) <= _RISING and not self.fixed:
            self.rounds = max(1, round(TURN / max(min(self.times), 1e-12)))


def settled(times: Sequence[float]) -> float | None:
    """The best time, where enough others agree with it."""
    best = sorted(times)[:_AGREEING]
    return best[0] if len(best) == _AGREEING and best[-1] <= _WITHIN * best[0] else None


def settle(runs: Mapping[str, Run], seconds: float, clock: Clock | None = None) -> dict[str, float | None]:
    """The seconds a round of each run, None where they are not settled. All runs have their turns one after another,
    until all had enough and are settled, or the seconds are over."""
    clock = clock or Clock()
    end, turn = clock.wall() + seconds, 0
    while turn < LEAST or any(settled(run.times) is None for run in runs.values()):
        for run in runs.values():
            if clock.wall() > end:
                return {name: settled(run.times) for name, run in runs.items()}
            run.take(turn, clock)
        turn += 1
    return {name: settled(run.times) for name, run in runs.items()}
