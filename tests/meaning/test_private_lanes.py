"""Loops that run in lanes although each iteration has a buffer for itself."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright.loops.evaluate import evaluate
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.lower.loops.vectorize import vectorize

TWICE = """
func twice[n](x: f32[n], y: f32[n]):
  for jo in 0..n//8:
    vectorize ji in 0..8:
      alloc t: f32[2] in register
      t[0] = exp(x[jo*8 + ji])
      t[1] = t[0] + 1.0
      y[jo*8 + ji] = t[0] / t[1] - t[1]
"""

CALLED = """
func called(x: f32[8], y: f32[8]):
  vectorize j in 0..8:
    alloc t: f32[64] in stack
    for k in 0..64:
      t[k] = x[j] * f32(k)
    y[j] = t[63] + t[1]
"""


def check(text: str, size: int) -> str:
    """The text after the pass, which computes the same."""
    function = parse(text)
    made = vectorize(function, registers=32)
    verify(made)
    x = np.linspace(-3, 3, size, dtype=np.float32)
    results = [np.zeros(size, np.float32) for _ in range(3)]
    evaluate(function, [x, results[0]])
    evaluate(made, [x, results[1]])
    tw.build(function)(x, results[2])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0], results[2], rtol=1e-5, atol=1e-6)
    return str(made)


def test_each_lane_has_a_place() -> None:
    text = check(TWICE, 24)
    assert "alloc t: f32[16] in register" in text
    assert "t[8:16] = t[0:8] + broadcast(1.0, 8)" in text
    assert "vectorize" not in text and "for ji" not in text


def test_large_buffers_keep_the_loop_serial() -> None:
    text = check(CALLED, 8)
    assert "alloc t: f32[64] in stack" in text
    assert "for j in 0..8" in text
