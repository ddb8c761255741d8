"""unroll: what the number of an iteration decides is decided, and nothing of the rest is left."""

from __future__ import annotations

import numpy as np

from tilewright.loops.edit import statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import If, Store
from tilewright.loops.parse import parse
from tilewright.lower.loops.unroll import unroll

PROGRAM = """
func corners(x: f32[4, 4], n: f32[1], y: f32[4, 4]):
  unroll i in 0..4, j in 0..4:
    if i < 2 and j + i < 3:
      y[i, j] = x[i, j] + 1
    else:
      if i < 3 or x[i, j] < n[0]:
        y[i, j] = x[i, j] - 1
      if 3 < j:
        y[i, j] = 7
"""


def test_decided_conditions_leave_no_branches() -> None:
    function = parse(PROGRAM)
    made = unroll(function)
    found = list(statements(made.body))
    assert sum(isinstance(s, If) for s in found) == 4  # of the last row, each of which asks n
    assert sum(isinstance(s, Store) for s in found) == 16
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    results = []
    for f in (function, made):
        y = np.zeros((4, 4), np.float32)
        evaluate(f, [x, np.float32([14.0]), y])
        results.append(y)
    np.testing.assert_array_equal(*results)
    assert results[0][0, 0] == 1 and results[0][0, 3] == 2 and results[0][3].tolist() == [11, 12, 0, 0]


def test_what_holds_for_all_iterations_is_asked_once() -> None:
    function = parse("""
func heads(x: f32[8, 4], y: f32[8, 4]):
  for i in 0..8:
    unroll j in 0..4:
      if i*4 + j < 12:
        y[i, j] = x[i, j] + 1
    unroll k in 0..4:
      if x[i, k] < 0:
        y[i, k] = 7
""")
    made = unroll(function)
    found = list(statements(made.body))
    assert sum(isinstance(s, If) for s in found) == 5 and sum(isinstance(s, Store) for s in found) == 8
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    results = []
    for f in (function, made):
        y = np.zeros((8, 4), np.float32)
        evaluate(f, [x, y])
        results.append(y)
    np.testing.assert_array_equal(*results)
