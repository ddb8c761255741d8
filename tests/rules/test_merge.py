"""merge: neighbouring loops become one only where each iteration keeps to itself."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import For
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.schedule.find import nests
from tilewright.schedule.loops.merge import merged_nests

PROGRAM = """
func f(x: f32[4, 6], a: f32[4, 6], b: f32[4, 6]):
  for i in 0..4, j in 0..6:
    block a(vi = i, vj = j):
      a[vi, vj] = x[vi, vj] * 2.0
  for i in 0..4, j in 0..6:
    block b(vi = i, vj = j):
      b[vi, vj] = SECOND
"""


@pytest.mark.parametrize(
    ("second", "merges"),
    [
        ("a[vi, vj] + 1.0", True),
        ("a[vi, 5 - vj] + 1.0", True),
        ("a[3 - vi, vj] + 1.0", False),
        ("a[vj % 4, vj] + 1.0", False),
        ("x[3 - vi, vj] + 1.0", True),
    ],
)
def test_merges_where_iterations_keep_to_themselves(second: str, merges: bool) -> None:
    function = parse(PROGRAM.replace("SECOND", second))
    made = function.replace(body=type(function.body)(tuple(merged_nests(nests(function)))))
    verify(made)
    assert sum(isinstance(s, For) for s in nests(made)) == (1 if merges else 2)
    x = np.random.default_rng(0).standard_normal((4, 6), np.float32)
    results = []
    for f in (function, made):
        arrays = {"x": x, "a": np.zeros_like(x), "b": np.zeros_like(x)}
        evaluate(f, arrays)
        results.append((arrays["a"], arrays["b"]))
    np.testing.assert_array_equal(results[0], results[1])


def test_loops_over_other_iterations_stay() -> None:
    text = PROGRAM.replace("SECOND", "x[vi, vj]").replace(
        "for i in 0..4, j in 0..6:\n    block b", "for i in 0..3, j in 0..6:\n    block b"
    )
    function = parse(text)
    assert len(merged_nests(nests(function))) == 2
