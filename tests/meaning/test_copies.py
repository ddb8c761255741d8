"""The evaluator of copies against the evaluator of all loops functions; and what it leaves alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.loops.evaluate import evaluate
from tilewright.loops.evaluate_copies import evaluate_copies
from tilewright.loops.parse import parse

COPIES = {
    "panels": """
func f(x: f32[7, 12], y: f32[3, 7, 4]):
  for o in 0..3, k in 0..7:
    vectorize i in 0..4:
      block y(vo = o, vk = k, vi = i):
        y[vo, vk, vi] = x[vk, vo*4 + vi]
""",
    "over an edge": """
func f(x: bf16[7, 9], y: bf16[3, 7, 4]):
  parallel o in 0..3:
    for k in 0..7:
      unroll i in 0..4:
        block y(vo = o, vk = k, vi = i):
          y[vo, vk, vi] = select(vo*4 + vi < 9, x[vk, min(vo*4 + vi, 8)], 1.5)
""",
    "split store": """
func f(x: i8[8, 6], y: i8[2, 6, 4, 2]):
  for a in 0..2, b in 0..2, c in 0..2, d in 0..2, k in 0..6:
    block y(va = a, vk = k, vb = b*2 + c, vd = d):
      y[va, vk, vb, vd] = x[va*4 + vb, vk]
""",
    "two nests": """
func f(x: i64[5, 6], y: i64[6, 5]):
  alloc t: i64[6, 5] in arena
  for j in 0..6, i in 0..5:
    block t(vi = i, vj = j):
      t[vj, vi] = x[vi, vj]
  for j in 0..6, i in 0..5:
    block y(vi = i, vj = j):
      y[5 - vj, vi] = t[vj, 4 - vi]
""",
    "repeated": """
func f(x: bool[3], y: bool[2, 3, 4]):
  for i in 0..2, j in 0..3, k in 0..4:
    block y(vi = i, vj = j, vk = k):
      y[vi, vj, vk] = x[vj]
""",
    "one element": """
func f(x: f64[], y: f64[3]):
  for i in 0..3:
    block y(vi = i):
      y[vi] = x[]
""",
    "no elements": """
func f(x: f32[3], y: f32[0]):
  for i in 0..0:
    block y(vi = i):
      y[vi] = x[vi + 7]
""",
}

OTHERS = {
    "sum": ("for i in 0..3:", "block y(vi = i):", "y[vi] = x[vi, 0] + 1.0"),
    "term after term": ("for i in 0..3, k in 0..3:", "block y(vi = i, reduce vk = k):", "y[vi] = x[vi, vk]"),
    "written twice": ("for i in 0..3:", "block y(vi = i):", "y[min(vi, 1)] = x[vi, 0]"),
    "a last iteration that wins": ("for i in 0..3, j in 0..2:", "block y(vi = i, vj = j):", "y[vi] = x[vi, vj]"),
    "one loop, two indices": ("for i in 0..3:", "block y(vi = i):", "y[vi] = x[vi, vi]"),
    "reads what it writes": ("for i in 1..3:", "block y(vi = i):", "y[vi] = y[vi - 1]"),
    "some points": ("for i in 0..3:", "block y(vi = i) where vi < 2:", "y[vi] = x[vi, 0]"),
    "outside the buffer": ("for i in 0..3:", "block y(vi = i):", "y[vi] = select(vi < 2, x[vi + 1, 0], 0.0)"),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_what_the_evaluator_says(name: str) -> None:
    function = parse(COPIES[name])
    (x, y) = function.params
    shape = tuple(int(str(extent)) for extent in x.shape)
    array: Any = np.random.default_rng(3).integers(-100, 100, shape).astype(x.dtype.numpy)
    made = evaluate_copies(function, [array])
    assert made is not None
    expected = np.empty(tuple(int(str(extent)) for extent in y.shape), y.dtype.numpy)
    evaluate(function, [array, expected])
    assert made[0].dtype == expected.dtype
    np.testing.assert_array_equal(made[0], expected)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_copy_is_left_alone(name: str) -> None:
    loops, block, store = OTHERS[name]
    text = f"func f(x: f32[3, 3], y: f32[3]):\n  {loops}\n    {block}\n      {store}\n"
    assert evaluate_copies(parse(text), [np.zeros((3, 3), np.float32)]) is None


def test_sizes_of_a_call_are_left_alone() -> None:
    text = "func f[n](x: f32[n], y: f32[n]):\n  for i in 0..n:\n    block y(vi = i):\n      y[vi] = x[vi]\n"
    assert evaluate_copies(parse(text), [np.zeros(3, np.float32)]) is None


def test_what_two_nests_write_is_no_view_of_an_input() -> None:
    text = """
func f(x: f32[4], y: f32[4]):
  for i in 0..4:
    block a(vi = i):
      y[vi] = x[vi]
  for j in 0..2:
    block b(vj = j):
      y[vj] = x[vj + 2]
"""
    x = np.arange(4, dtype=np.float32)
    made = evaluate_copies(parse(text), [x])
    assert made is not None
    assert made[0].tolist() == [2, 3, 2, 3]
    assert x.tolist() == [0, 1, 2, 3]
