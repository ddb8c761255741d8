"""What a fork and a join of the thread pool cost, and how much faster two threads run a loop that only computes.

    python -m benchmarks.fork_join [--quick] [--json]

A kernel runs an outer loop in order and in each turn a parallel loop of two iterations, each the same arithmetic;
beside it runs the same with one iteration. Their difference is one fork and one join, since the two iterations run at
the same time; the bar is 1 µs. `asleep` is the first call after a pause in which the workers went to sleep: what it
takes beyond a call on one thread is what waking costs the caller. The last row is a compute-bound loop at one thread
over the same at two.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import tilewright as tw
from benchmarks.report import Report, judge, main
from benchmarks.timing import take_turns

BAR = 1e-6
PAUSE = 0.005
TURNS = 50
"""Forks in one call: so many that the call itself does not count, in a time too short to be disturbed each round."""

SHARES = """
func shares[t, n](turns: f32[t], x: f32[n, 16]):
  for r in 0..t:
    parallel i in 0..n:
      for k in 0..1000:
        x[i, 0] = x[i, 0] * 0.5 + 1.0
"""

COMPUTE = """
func compute[n](x: f32[n, 8], y: f32[n, 8]):
  parallel i in 0..n grain 8:
    alloc a: f32[8] in register
    vectorize j in 0..8:
      a[j] = x[i, j]
    for k in 0..1000:
      vectorize j in 0..8:
        a[j] = a[j] * 0.5 + 1.0
    vectorize j in 0..8:
      y[i, j] = a[j]
"""


def measure(quick: bool = False) -> Report:
    """The report: fork and join awake and asleep, and the speedup."""
    report = Report("fork_join", "The thread pool at two threads", ("what", "best", "median", "bar"))
    rounds = 100 if quick else 1000
    _add_awake(report, rounds)
    _add_asleep(report, 20 if quick else 200)
    _add_speedup(report, rounds)
    report.note = "on a machine whose cores are busy with other work, the best says what the pool can do"
    return report


def _build(text: str, threads: int) -> tw.Kernel:
    function = tw.parse(text)
    assert isinstance(function, tw.Function)
    return tw.build(function, threads=threads)


def _add_awake(report: Report, rounds: int) -> None:
    both, turns = _build(SHARES, 2), np.empty(TURNS, np.float32)
    one, two = np.zeros((1, 16), np.float32), np.zeros((2, 16), np.float32)
    alone, forked = take_turns((lambda: both(turns, one), lambda: both(turns, two)), rounds, 1)
    best, median = ((b - a) / TURNS for a, b in ((alone.best, forked.best), (alone.median, forked.median)))
    cells = ("fork and join, awake", f"{1e6 * best:.2f} µs", f"{1e6 * median:.2f} µs", f"1 µs {judge(best, BAR)}")
    report.add(cells, {"what": "awake", "best_seconds": best, "median_seconds": median})


def _add_asleep(report: Report, rounds: int) -> None:
    """Calls after a pause, in turns on one thread and on two: the arrays are small, the work nothing."""
    turns, x = np.empty(1, np.float32), np.zeros((2, 16), np.float32)
    taken: dict[int, list[float]] = {1: [], 2: []}
    kernels = {threads: _build(SHARES.replace("0..1000", "0..1"), threads) for threads in taken}
    for _ in range(rounds):
        for threads, kernel in kernels.items():
            time.sleep(PAUSE)
            taken[threads].append(_time(lambda: kernel(turns, x)))  # noqa: B023  (called at once)
    one, two = (sorted(t) for t in taken.values())
    best, median = two[0] - one[0], two[rounds // 2] - one[rounds // 2]
    cells = ("fork and join, asleep", f"{1e6 * best:.1f} µs", f"{1e6 * median:.1f} µs", "")
    report.add(cells, {"what": "asleep", "best_seconds": best, "median_seconds": median})


def _add_speedup(report: Report, rounds: int) -> None:
    kernels = [_build(COMPUTE, threads) for threads in (1, 2)]
    x, y = np.ones((1000, 8), np.float32), np.empty((1000, 8), np.float32)
    one, two = take_turns([lambda k=k: k(x, y) for k in kernels], rounds // 10, 1)  # type: ignore[misc]
    best, median = one.best / two.best, one.median / two.median
    report.add(
        ("speedup, compute-bound", f"{best:.2f}×", f"{median:.2f}×", ""),
        {"what": "speedup", "best": best, "median": median},
    )


def _time(program: Callable[[], object]) -> float:
    start = time.perf_counter()
    program()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(measure, __doc__)
