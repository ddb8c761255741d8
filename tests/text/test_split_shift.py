"""split(…, tail="shift"): the last inner loop ends where the whole ends; refused where twice is not once. And
tail="mask" of a block whose condition reads memory."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.loops.evaluate import evaluate
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.report.errors import UserError

DOUBLE = """
func double(x: f32[2, 10], y: f32[2, 10]):
  for i in 0..2, j in 0..10:
    block double(vi = i, vj = j):
      y[vi, vj] = x[vi, vj] * 2.0
"""
SHIFTED = """\
func double(x: f32[2, 10], y: f32[2, 10]):
  for i in 0..2, jo in 0..3, ji in 0..4:
    block double(vi = i, vj = min(jo*4, 6) + ji):
      y[vi, vj] = x[vi, vj] * 2.0"""
TOTAL = """
func total(x: f32[10], y: f32[10]):
  for j in 0..10:
    block total(vj = j):
      y[vj] = y[vj] + x[vj]
"""
OPEN = """
func copy[n](x: f32[n], y: f32[n]):
  for j in 0..n:
    block copy(vj = j):
      y[vj] = x[vj]
"""


def test_text_and_meaning() -> None:
    before = parse(DOUBLE)
    s = tw.Schedule(before)
    _, inner = s.split("j", 4, tail="shift")
    s.vectorize(inner)
    verify(s.func)
    x, results = np.random.default_rng(0).standard_normal((2, 10)).astype(np.float32), []
    for function in (before, s.func):
        y = np.zeros((2, 10), np.float32)
        evaluate(function, {"x": x, "y": y})
        results.append(y)
    y = np.zeros((2, 10), np.float32)
    tw.build(s.func)(x, y)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], y)


def test_shown() -> None:
    s = tw.Schedule(parse(DOUBLE))
    s.split("j", 4, tail="shift")
    assert str(s.func).strip() == SHIFTED


def test_a_condition_that_reads_memory_is_not_read_beyond_the_end() -> None:
    text = OPEN.replace("block copy(vj = j):", "block copy(vj = j) where 1.0 < x[vj]:")
    s = tw.Schedule(parse(text))
    s.split("j", 4, tail="mask")
    assert "if jo*4 + ji < n:" in str(s.func)
    x, y = np.float32([0, 1, 2, 3, 4]), np.zeros(5, np.float32)
    evaluate(s.func, {"x": x, "y": y})
    np.testing.assert_array_equal(y, [0, 0, 2, 3, 4])


def test_what_divides_stays_plain() -> None:
    shifted, exact = tw.Schedule(parse(DOUBLE)), tw.Schedule(parse(DOUBLE))
    shifted.split("j", 5, tail="shift")
    exact.split("j", 5)
    assert str(shifted.func) == str(exact.func)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            TOTAL,
            "",
            'why:  an iteration that runs twice must not read what the loop stores\nfix:  split(j, 4, tail="peel")',
        ),
        (
            OPEN,
            "",
            'why:  the inner loop of 4 iterations cannot be moved back into n\nfix:  split(j, 4, tail="mask")',
        ),
        (
            DOUBLE,
            "parallel",
            "why:  iterations of a parallel loop may run at the same time, and some would run twice\n"
            "fix:  split it while it is serial",
        ),
    ],
)
def test_refused(text: str, kind: str, message: str) -> None:
    s = tw.Schedule(parse(text))
    if kind:
        s.parallel("j")
    with pytest.raises(UserError) as error:
        s.split("j", 4, tail="shift")
    assert str(error.value).endswith(message)
    assert str(error.value).startswith("cannot split loop j by 4\n")
