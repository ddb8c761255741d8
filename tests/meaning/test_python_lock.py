"""Short calls keep Python's lock, long ones let other threads run: which it is follows the last call of these sizes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime import entering
from tilewright.runtime.entering import LONG, LOOK, SHORT

ROWS = """
graph main[n](x: f32[n, 4]) -> y:
  y: f32[n, 4] = exp(x)
"""


class Watched:
    """An executable whose native calls take `took` nanoseconds by the clocks; `calls` tells which kept the lock.
    One that gave it away `waits` so long for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exe = tw.compile(tw.parse(ROWS), threads=1)
        self.calls: list[str] = []
        self.took = SHORT * 2
        self.waits = 0
        self.time = self.own_time = 0
        native = self.exe._enter
        monkeypatch.setattr(entering, "perf_counter_ns", lambda: self.time)
        monkeypatch.setattr(entering, "thread_time_ns", lambda: self.own_time)
        for name in ("entry", "held"):
            monkeypatch.setattr(native, f"_{name}", self._watch(name, getattr(native, f"_{name}")))

    def _watch(self, name: str, enter: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: object) -> int:
            self.calls.append(name)
            self.own_time += self.took
            self.time += self.took + (self.waits if name == "entry" else 0)
            return enter(*arguments)

        return call

    def __call__(self, rows: int, took: int) -> None:
        self.took = took
        x = np.ones((rows, 4), np.float32)
        np.testing.assert_allclose(self.exe(x)[0], np.exp(x), rtol=1e-6)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_short_calls_keep_the_lock_until_one_is_long(watched: Watched) -> None:
    for took in (SHORT - 1, SHORT - 1, LONG - 1, LONG, SHORT - 1, SHORT - 1):
        watched(2, took)
    assert watched.calls == ["entry", "held", "held", "held", "entry", "held"]


def test_the_time_that_a_call_waits_for_the_lock_is_not_its_own(watched: Watched) -> None:
    """Other threads hold the lock for long after each call that gave it away; the thread's own time is short."""
    watched.waits = LONG
    for _ in range(LOOK + 1):
        watched(2, SHORT - 1)
    assert watched.calls == ["entry"] * LOOK + ["held"]


def test_a_short_call_that_was_interrupted_is_looked_at_again(watched: Watched) -> None:
    watched.waits = LONG
    for took in (*[SHORT - 1] * LOOK, LONG, SHORT - 1, SHORT - 1):
        watched(2, took)
    assert watched.calls == ["entry"] * LOOK + ["held", "entry", "held"]


def test_long_calls_release_it(watched: Watched) -> None:
    for _ in range(3):
        watched(2, SHORT)
    assert watched.calls == ["entry"] * 3


def test_other_sizes_are_other_calls(watched: Watched) -> None:
    watched(2, SHORT - 1)
    watched(3, SHORT - 1)
    watched(3, SHORT - 1)
    watched(2, SHORT - 1)
    assert watched.calls == ["entry", "entry", "held", "entry"]


def test_each_thread_finds_out_by_itself(watched: Watched) -> None:
    watched(2, SHORT - 1)
    thread = threading.Thread(target=watched, args=(2, SHORT - 1))
    thread.start()
    thread.join()
    watched(2, SHORT - 1)
    assert watched.calls == ["entry", "entry", "held"]


def test_a_call_that_asks_for_memory_is_not_the_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point returns at once when the arena is too small: what counts is the call that did the work."""
    watched = Watched(monkeypatch)
    enter, asked = watched.exe._enter._entry, []

    def ask_first(*arguments: object) -> int:
        if not asked:
            asked.append(True)
            watched.exe._threads.frame.fault[0] = 64
            return entering.ARENA_TOO_SMALL
        return enter(*arguments)

    monkeypatch.setattr(watched.exe._enter, "_entry", ask_first)
    watched(2, SHORT)
    watched(2, SHORT)
    assert watched.calls == ["entry"] * 2


def test_faults_of_calls_that_keep_the_lock_are_errors() -> None:
    source = 'graph main(i: i64[2]) -> y:\n  y: i64[2] = checked_indices(i, limit=8, what="rows")\n'
    exe = tw.compile(tw.parse(source), threads=1)
    for _ in range(100):
        exe(np.array([1, 2]))
    for _ in range(3):
        with pytest.raises(tw.RuntimeFault, match="rows"):
            exe(np.array([1, 9]))
    assert exe(np.array([1, 2]))[0].tolist() == [1, 2]
