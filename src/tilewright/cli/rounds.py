"""Fair timing of several programs in one process: they take turns, so that a disturbance of the machine hits all alike.

In every round each program gets one turn: a short pause, in which the threads of the one before go to sleep; one call
that does not count, which brings its own data back into the caches; then calls that are timed one by one. The order
turns with the rounds. The median says what to expect, the best what the machine can do when nothing disturbs it, the
percentiles how much calls differ.

Where several threads call a program at once (`count_together`), a turn is so many milliseconds in which each of them
makes one call after the other.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from tilewright.report.progress import progress

LEAST_ROUNDS = 3
PAUSE_SECONDS = 0.002
TURN_SECONDS = 0.02
TOGETHER_SECONDS = 0.1
"""How long a turn of several callers is."""
WARM_SECONDS = 0.1
MOST_CALLS = 2000
"""How many calls one turn times at most."""

PERCENTILES = (50, 90, 99)

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a call: the median, the best, and `PERCENTILES` of `calls` calls. Of several callers, `rate` is how
    many calls all of them make in a second, in the median of the turns, and `best_rate` in the best."""

    median: float
    best: float
    calls: int
    percentiles: tuple[float, ...]
    rate: float | None = None
    best_rate: float | None = None


def take_turns(
    programs: Sequence[Call], rounds: int | None, seconds: float, warmup: int | None = None
) -> tuple[list[Timing], int]:
    """The timing of each program, and the number of rounds.

    That is `rounds` when given, else as many as begin within `seconds`, and at least `LEAST_ROUNDS`. Before the first
    one, each program is called `warmup` times, at least once, or for a tenth of a second.
    """
    counts = [_count_calls(program, warmup) for program in programs]
    samples: list[list[float]] = [[] for _ in programs]
    done = _in_rounds(len(programs), rounds, seconds, lambda n: _take_turn(programs[n], counts[n], samples[n]))
    return [_timing(taken) for taken in samples], done


def count_together(
    programs: Sequence[Sequence[Call]], rounds: int | None, seconds: float, warmup: int | None = None
) -> tuple[list[Timing], int]:
    """The same of programs that several threads call at once: each has a call for every thread."""
    samples: list[list[float]] = [[] for _ in programs]
    rates: list[list[float]] = [[] for _ in programs]
    with ThreadPoolExecutor(len(programs[0])) as pool:

        def turn(n: int) -> None:
            time.sleep(PAUSE_SECONDS)
            calls, rate = _call_together(pool, programs[n])
            samples[n] += calls
            rates[n].append(rate)

        for calls in programs:
            for call in calls:
                _count_calls(call, warmup)
        done = _in_rounds(len(programs), rounds, seconds, turn)
    found = zip(samples, rates, strict=True)
    return [_timing(taken, statistics.median(made), max(made)) for taken, made in found], done


def _in_rounds(count: int, rounds: int | None, seconds: float, turn: Callable[[int], None]) -> int:
    """Gives each of so many programs its turn in each round, and returns the number of rounds."""
    end, done = time.perf_counter() + seconds, 0
    with progress("timing", rounds) as step:
        while done < rounds if rounds is not None else done < LEAST_ROUNDS or time.perf_counter() < end:
            for n in range(count):
                turn((n + done) % count)
            done += 1
            step()
    return done


def _timing(taken: Sequence[float], rate: float | None = None, best_rate: float | None = None) -> Timing:
    percentiles = tuple(float(p) for p in np.percentile(taken, PERCENTILES))
    return Timing(statistics.median(taken), min(taken), len(taken), percentiles, rate, best_rate)


def _count_calls(program: Call, warmup: int | None) -> int:
    """How many calls fill a turn; asking warms the program up."""
    start = now = time.perf_counter()
    times: list[float] = []
    while len(times) < max(warmup, 1) if warmup is not None else now - start < WARM_SECONDS:
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


def _call_together(pool: ThreadPoolExecutor, calls: Sequence[Call]) -> tuple[list[float], float]:
    """(the seconds of each call, how many there were in a second) while a thread for each of `calls` makes it again
    and again."""
    ready = threading.Barrier(len(calls))

    def work(call: Call) -> tuple[int, int, list[float]]:
        samples: list[float] = []
        call()
        ready.wait()
        begin = now = time.perf_counter_ns()
        while now - begin < TOGETHER_SECONDS * 1e9:
            before = now
            call()
            now = time.perf_counter_ns()
            samples.append((now - before) / 1e9)
        return begin, now, samples

    found = [future.result() for future in [pool.submit(work, call) for call in calls]]
    seconds = (max(end for _, end, _ in found) - min(begin for begin, _, _ in found)) / 1e9
    samples = [sample for *_, taken in found for sample in taken]
    return samples, len(samples) / seconds
