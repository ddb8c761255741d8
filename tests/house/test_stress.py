"""Many threads call several executables at once: right results, no memory that grows, no call that hangs.

Five seconds here; `make stress` takes a minute and prints how many calls there were, and how many one thread makes.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw

PRODUCT = """
graph main(x: f32[96, 128]) -> y:
  w: f32[128, 256] = constant(name=@w)
  h: f32[96, 256] = contract(x, w, spec="ik,kj->ij")
  y: f32[96, 256] = relu(h)
"""
ROWS = """
graph main[n](x: f32[n, 64]) -> y:
  m: f32[n, 1] = reduce(x, kind=max, axes=(1,), keepdims=true)
  d: f32[n, 64] = sub(x, m)
  e: f32[n, 64] = exp(d)
  s: f32[n, 1] = reduce(e, kind=sum, axes=(1,), keepdims=true)
  y: f32[n, 64] = div(e, s)
"""
LOOP = """
graph main(h: f32[32], xs: f32[20, 32]) -> last, ys:
  last: f32[32], ys: f32[20, 32] = scan(h, xs, body="step", steps=20, states=1, scanned=(forward,), stacked=(forward,))

graph step(h: f32[32], x: f32[32]) -> k, y:
  s: f32[32] = add(h, x)
  k: f32[32] = tanh(s)
  y: f32[32] = mul(k, k)
"""
CALLERS = 16
GROWTH = 24 << 20
"""Bytes that the process may grow by once every thread has called everything: what the system's allocator keeps."""

Check = Callable[[], None]


def checks() -> list[Check]:
    """A call of each executable on arrays of its own, and a comparison with what a first call gave."""
    rng = np.random.default_rng(0)
    product = tw.parse(PRODUCT)
    assert isinstance(product, tw.GraphFunction)
    weights = {"w": rng.normal(size=(128, 256)).astype(np.float32)}
    executables = [
        (tw.compile(tw.Module({"main": product}, weights, "main"), threads=2), [(96, 128)]),
        (tw.compile(tw.parse(ROWS), threads=2), [(300, 64)]),
        (tw.compile(tw.parse(ROWS), threads=1), [(7, 64)]),
        (tw.compile(tw.parse(LOOP), threads=2), [(32,), (20, 32)]),
    ]
    found: list[Check] = []
    for exe, shapes in executables:
        arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
        expected = tuple(result.tobytes() for result in exe(*arrays))

        def check(exe: tw.Executable = exe, arrays: list[np.ndarray] = arrays, expected: tuple = expected) -> None:
            for got, want in zip(exe(*arrays), expected, strict=True):
                assert got.tobytes() == want  # unlike a comparison by NumPy, it does not pass on Python's lock

        found.append(check)
    return found


def resident() -> int:
    """The bytes of the process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def call_until(end: float, calls: list[Check], first: int) -> int:
    done = 0
    while time.monotonic() < end:
        calls[(first + done) % len(calls)]()
        done += 1
    return done


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the process does not show its memory")
def test_threads_that_call_at_once(request: pytest.FixtureRequest) -> None:
    seconds = float(request.config.getoption("stress_seconds"))
    calls = checks()
    ready = threading.Barrier(CALLERS)

    def work(n: int) -> tuple[int, int]:
        warm = call_until(time.monotonic() + seconds / 5, calls, n)
        ready.wait(timeout=60)
        before = resident()
        done = call_until(time.monotonic() + seconds * 3 / 5, calls, n)
        return warm + done, resident() - before

    with ThreadPoolExecutor(CALLERS) as pool:
        futures = [pool.submit(work, n) for n in range(CALLERS)]
        finished, hanging = wait(futures, timeout=seconds + 60)
        assert not hanging
        results = [f.result() for f in finished]
    assert max(growth for _, growth in results) < GROWTH
    assert all(done > 0 for done, _ in results)
    alone = call_until(time.monotonic() + seconds / 5, calls, 0) / (seconds / 5)
    together = sum(done for done, _ in results) / (seconds * 4 / 5)
    print(f"\n{CALLERS} threads: {together:.0f} calls/s, one: {alone:.0f} calls/s, ratio {together / alone:.2f}")
