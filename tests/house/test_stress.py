"""Many threads call several executables at once: right results, no memory that grows, no call that hangs.

Short calls, which keep Python's lock, and small networks, whose calls run at the same time. Two seconds here; `make
stress` takes a minute for each and prints how many calls there were, and how many one thread makes.
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
from tilewright.graph.parse import parse_module

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
PERCEPTRON = """
graph main(x: f32[32, 256]) -> y:
  a: f32[256, 512] = constant(name=@a)
  b: f32[512, 512] = constant(name=@b)
  c: f32[512, 64] = constant(name=@c)
  d: f32[32, 512] = contract(x, a, spec="ik,kj->ij")
  e: f32[32, 512] = relu(d)
  f: f32[32, 512] = contract(e, b, spec="ik,kj->ij")
  g: f32[32, 512] = relu(f)
  y: f32[32, 64] = contract(g, c, spec="ik,kj->ij")
"""
RECURRENT = """
graph main(h: f32[8, 128], c: f32[8, 128], xs: f32[16, 8, 64]) -> l, m:
  l: f32[8, 128], m: f32[8, 128] = scan(h, c, xs, body="step", steps=16, states=2, scanned=(forward,), stacked=())

graph step(h: f32[8, 128], c: f32[8, 128], x: f32[8, 64]) -> k, s:
  w: f32[64, 512] = constant(name=@w)
  r: f32[128, 512] = constant(name=@r)
  p: f32[8, 512] = contract(x, w, spec="ik,kj->ij")
  q: f32[8, 512] = contract(h, r, spec="ik,kj->ij")
  g: f32[8, 512] = add(p, q)
  t: f32[8, 512] = tanh(g)
  i: f32[8, 128] = slice(t, starts=(0, 0), sizes=(8, 128), steps=(1, 1))
  o: f32[8, 128] = slice(t, starts=(0, 128), sizes=(8, 128), steps=(1, 1))
  f: f32[8, 128] = slice(t, starts=(0, 256), sizes=(8, 128), steps=(1, 1))
  n: f32[8, 128] = slice(t, starts=(0, 384), sizes=(8, 128), steps=(1, 1))
  old: f32[8, 128] = mul(f, c)
  fresh: f32[8, 128] = mul(i, n)
  s: f32[8, 128] = add(old, fresh)
  u: f32[8, 128] = tanh(s)
  k: f32[8, 128] = mul(o, u)
"""
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
CALLERS = 16
GROWTH = 24 << 20
"""Bytes that the process may grow by once every thread has called everything: what the system's allocator keeps."""

Check = Callable[[], None]


def short_calls() -> list[Check]:
    """Calls of a few microseconds."""
    return [
        check_of(compile_text(PRODUCT, threads=2, w=(128, 256)), (96, 128)),
        check_of(compile_text(ROWS, threads=2), (300, 64)),
        check_of(compile_text(ROWS, threads=1), (7, 64)),
        check_of(compile_text(LOOP, threads=2), (32,), (20, 32)),
    ]


def networks() -> list[Check]:
    """Calls of about a tenth of a millisecond on one core: a perceptron, a convolutional and a recurrent network."""
    return [
        check_of(compile_text(PERCEPTRON, threads=2, a=(256, 512), b=(512, 512), c=(512, 64)), (32, 256)),
        check_of(tw.compile(DIGITS, threads=2), (16, 1, 8, 8)),
        check_of(compile_text(RECURRENT, threads=2, w=(64, 512), r=(128, 512)), (8, 128), (8, 128), (16, 8, 64)),
    ]


def compile_text(text: str, threads: int, **weights: tuple[int, ...]) -> tw.Executable:
    rng = np.random.default_rng(0)
    drawn = {name: (rng.normal(size=shape) / 20).astype(np.float32) for name, shape in weights.items()}
    return tw.compile(parse_module(text, drawn), threads=threads)


def check_of(exe: tw.Executable, *shapes: tuple[int, ...]) -> Check:
    """A call on arrays of its own, and a comparison with what a first call gave."""
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    expected = [result.tobytes() for result in exe(*arrays)]

    def check() -> None:
        for got, want in zip(exe(*arrays), expected, strict=True):
            assert got.tobytes() == want  # unlike a comparison by NumPy, it does not pass on Python's lock

    return check


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
@pytest.mark.parametrize("make", [short_calls, networks])
def test_threads_that_call_at_once(request: pytest.FixtureRequest, make: Callable[[], list[Check]]) -> None:
    seconds = float(request.config.getoption("stress_seconds"))
    calls = make()
    before = call_until(time.monotonic() + seconds / 10, calls, 0)
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
    alone = (before + call_until(time.monotonic() + seconds / 10, calls, 0)) / (seconds / 5)
    together = sum(done for done, _ in results) / (seconds * 4 / 5)
    rates = f"{CALLERS} threads: {together:.0f} calls/s, one: {alone:.0f} calls/s, ratio {together / alone:.2f}"
    print(f"\n{make.__name__}: {rates}")
