"""Fair timing of several programs in one process: they take turns, so that a disturbance of the machine hits all alike.

In every round each program gets one turn: a short pause, in which the threads of the one before go to sleep; one call
that does not count, which brings its own data back into the caches; then calls that are timed one by one. The order
turns with the rounds. The median says what to expect, the best what the machine can do when nothing disturbs it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.report.progress import progress

LEAST_ROUNDS = 3
PAUSE_SECONDS = 0.002
TURN_SECONDS = 0.02
WARM_SECONDS = 0.1
MOST_CALLS = 2000
"""How many calls one turn times at most."""

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a call: the median and the best of `calls` calls."""

    median: float
    best: float
    calls: int


def take_turns(programs: Sequence[Call], rounds: int | None, seconds: float) -> tuple[list[Timing], int]:
    """The timing of each program, and the number of rounds.

    That is `rounds` when given, else as many as begin within `seconds`, and at least `LEAST_ROUNDS`.
    """
    counts = [_count_calls(program) for program in programs]
    samples: list[list[float]] = [[] for _ in programs]
    end = time.perf_counter() + seconds
    done = 0
    with progress("timing", rounds) as step:
        while done < rounds if rounds is not None else done < LEAST_ROUNDS or time.perf_counter() < end:
            for turn in range(len(programs)):
                n = (turn + done) % len(programs)
                _take_turn(programs[n], counts[n], samples[n])
            done += 1
            step()
    return [Timing(statistics.median(taken), min(taken), len(taken)) for taken in samples], done


def _count_calls(program: Call) -> int:
    """How many calls fill a turn; asking warms the program up."""
    start = now = time.perf_counter()
    times = []
    while now - start < WARM_SECONDS:
        before = now
        program()
        now = time.perf_counter()
        times.append(now - before)
    return max(1, min(MOST_CALLS, int(TURN_SECONDS / max(statistics.median(times), 1e-9))))


def _take_turn(program: Call, calls: int, samples: list[float]) -> None:
    time.sleep(PAUSE_SECONDS)
    program()
    for _ in range(calls):
        start = time.perf_counter_ns()
        program()
        samples.append((time.perf_counter_ns() - start) / 1e9)
