"""Points that are moved across: transposes in strips of whole cache lines, and rows that lie turned."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw

SHAPES = [(1, 1), (3, 5), (16, 16), (17, 40), (40, 17), (49, 96), (196, 33), (7, 1000), (1000, 7)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8"])
def test_a_transpose_with_a_map_after_it(shape: tuple[int, int], dtype: str) -> None:
    n, m = shape
    text = f"""
graph main(x: {dtype}[2, {n}, {m}], r: {dtype}[2, {m}, {n}]) -> y:
  t: {dtype}[2, {m}, {n}] = transpose(x, perm=(0, 2, 1))
  y: {dtype}[2, {m}, {n}] = add(t, r)
"""
    rng = np.random.default_rng(n)
    x, r = (
        rng.integers(-50, 50, s).astype({"f32": "f4", "f64": "f8", "i8": "i1"}[dtype]) for s in ((2, n, m), (2, m, n))
    )
    (got,) = tw.compile(tw.parse(text), threads=2)(x, r)
    np.testing.assert_array_equal(got, x.transpose(0, 2, 1) + r)


@pytest.mark.parametrize("n", [1, 7, 16, 33, 200])
def test_a_transpose_of_sizes_that_only_a_call_knows(n: int) -> None:
    exe = tw.compile(tw.parse("graph main[n, m](x: f32[n, m]) -> t:\n  t: f32[m, n] = transpose(x, perm=(1, 0))\n"))
    x = np.arange(n * 37, dtype=np.float32).reshape(n, 37)
    np.testing.assert_array_equal(exe(x)[0], x.T)


def test_lanes_that_stride_run_in_strips_around_the_contiguous_loop() -> None:
    text = "graph main(x: f32[48, 64]) -> t:\n  t: f32[64, 48] = transpose(x, perm=(1, 0))\n"
    program = tw.compile(tw.parse(text), target="x86-64-v3").show(after="schedule")
    strip, across, vectors = (program.index(s) for s in ("in 0..3", "in 0..64", "vectorize"))
    assert strip < across < vectors and "unroll" in program


@pytest.mark.parametrize("side", [7, 14, 16, 20])
def test_rows_that_lie_turned(side: int) -> None:
    """Softmax over channels of an image that is stored channel by channel: a row is turned once where it is narrow."""
    of, one = f"f32[2, {side}, {side}, 24]", f"f32[2, {side}, {side}, 1]"
    text = f"""
graph main(x: f32[2, 24, {side}, {side}]) -> y:
  t: {of} = transpose(x, perm=(0, 2, 3, 1))
  m: {one} = reduce(t, kind=max, axes=(3,), keepdims=true)
  d: {of} = sub(t, m)
  e: {of} = exp(d)
  s: {one} = reduce(e, kind=sum, axes=(3,), keepdims=true)
  y: {of} = div(e, s)
"""
    x = np.random.default_rng(side).standard_normal((2, 24, side, side)).astype(np.float32)
    exe = tw.compile(tw.parse(text), target="x86-64-v3", threads=2)
    e = np.exp(x - x.max(1, keepdims=True)).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(exe(x)[0], e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)
    assert ("alloc t" in exe.show(after="schedule")) == (side < 16)
