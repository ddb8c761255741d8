"""Loops on threads that are lent: by whoever has them, in the place of the pool's workers."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from lender import Lender
from tilewright.codegen.pool import PATIENCE

SCALE = """
func scale[n, m](x: f32[n, m], y: f32[n, m]):
  parallel i in 0..n%s:
    for j in 0..m:
      y[i, j] = x[i, j] * 0.5 + f32(i)
"""
X = np.arange(12 * 64, dtype=np.float32).reshape(12, 64)
WANTED = X * 0.5 + np.arange(12, dtype=np.float32)[:, None]


@pytest.fixture(autouse=True)
def calm() -> None:
    """Nobody is waited for whom an earlier test refused the pool's workers: after so many grains of work that is
    over (`PATIENCE`)."""
    kernel = tw.build(tw.parse(SCALE % ""), threads=3)
    for _ in range(PATIENCE // len(X) + 1):
        scaled(kernel)


def scaled(kernel: tw.Kernel, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = X) -> object:
    """What the kernel makes of these numbers."""
    y = np.zeros_like(x)
    kernel(x, y)
    return y


@pytest.mark.parametrize(("brings", "came"), [(lambda n: n, [0, 1, 2]), (lambda n: 1, [0])], ids=["all", "one"])
def test_each_iteration_runs_once(brings: Callable[[int], int], came: list[int]) -> None:
    lender, kernel = Lender(brings), tw.build(tw.parse(SCALE % ""), threads=3)
    kernel.borrow(ctypes.addressof(lender.record))
    for _ in range(20):
        np.testing.assert_array_equal(scaled(kernel), WANTED)
    assert lender.asked == [3] * 20
    assert sorted(lender.numbers) == sorted(came * 20)


def test_what_lends_nothing_leaves_loops_to_the_pool() -> None:
    lender, kernel = Lender(lambda n: n), tw.build(tw.parse(SCALE % ""), threads=3)
    kernel.borrow(ctypes.addressof(lender.record))
    lender.record[1] = None
    np.testing.assert_array_equal(scaled(kernel), WANTED)
    assert not lender.asked


def test_little_work_does_not_wake_them() -> None:
    """Unless they have just run another loop."""
    lender = Lender(lambda n: n)
    small, large = (tw.build(tw.parse(SCALE % grain), threads=2) for grain in (" grain 3", ""))
    for kernel in (small, large):
        kernel.borrow(ctypes.addressof(lender.record))
    time.sleep(0.01)
    np.testing.assert_array_equal(scaled(small), WANTED)
    assert not lender.asked
    for _ in range(100):  # a hundred times, so that once at least the system does not take the core between both
        scaled(large)
        np.testing.assert_array_equal(scaled(small), WANTED)
    assert len(lender.asked) > 100


def test_they_have_the_callers_state_and_keep_their_own() -> None:
    """Subnormal numbers are flushed in threads that keep them otherwise."""
    text = "graph main(x: f32[512, 4096], f: f32[512, 4096]) -> y:\n  y: f32[512, 4096] = mul(x, f)"
    kept: list[bool] = []

    def also(number: int) -> None:
        if number:  # the caller's own thread is in the call
            kept.append(bool(np.float32(1e-40) * np.float32(0.5)))

    lender, flush = Lender(lambda n: n, also), tw.compile(tw.parse(text), threads=2, denormals="flush")
    flush.borrow(ctypes.addressof(lender.record))
    x, f = np.full((512, 4096), 1e-39, np.float32), np.full((512, 4096), 0.1, np.float32)
    for _ in range(3):
        assert not flush(x, f)[0].any()
    assert kept and all(kept)
