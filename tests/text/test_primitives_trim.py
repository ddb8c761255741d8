"""trim_sum, and parameters that are finite: programs before and after with the steps and why they are legal; that both
compute the same, in the evaluator and in machine code; and what each says where it may not be."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from primitive_checks import Primitives, PrimitiveTests

import tilewright as tw
from tilewright.loops.evaluate import evaluate
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.report.errors import UserError

Array = np.ndarray[Any, Any]

ROW = """
func row(x: f32[9], w: f32[3] finite, y: f32[9]):
  alloc q: f32[11] in arena
  for p in 0..11:
    block q(vi = p):
      q[vi] = select(1 <= vi and vi < 10, x[min(max(vi, 1), 9) - 1], 0.0)
  for i in 0..9, a in 0..3:
    block sum(vi = i, reduce va = a):
      init: y[vi] = 0.0
      y[vi] += q[vi + va] * w[va]
"""
IMAGE = """
func image(x: f32[5, 6], w: f32[3, 5] finite, y: f32[3, 6]):
  alloc q: f32[7, 10] in arena
  for p in 0..7, r in 0..10:
    block q(v = p, u = r):
      q[v, u] = select(1 <= v and v < 6 and 2 <= u and u < 8, x[min(max(v, 1), 5) - 1, min(max(u, 2), 7) - 2], 0.0)
  for i in 0..3, j in 0..6, a in 0..3, b in 0..5:
    block sum(vi = i, vj = j, reduce va = a, reduce vb = b):
      init: y[vi, vj] = 0.0
      y[vi, vj] += q[vi*2 + va, vj + vb] * w[va, vb]
"""
BYTES = ROW.replace("x: f32", "x: i8").replace("w: f32[3] finite", "w: i8[3]").replace("y: f32", "y: i32")
BYTES = (
    BYTES.replace("q: f32", "q: i8").replace("0.0", "0").replace("q[vi + va] * w[va]", "i32(q[vi + va]) * i32(w[va])")
)
HALVES = ROW.replace("w: f32", "w: bf16").replace("w[va]", "f32(w[va])")

TRIM = Primitives("trim", sizes=(0, 1))
case, wrong = TRIM.case, TRIM.wrong


@case("trim-a-row", ROW)
def trim_a_row(s: tw.Schedule) -> None:
    s.trim_sum("sum", "a")


@case("trim-rows-of-an-image", IMAGE)
def trim_rows_of_an_image(s: tw.Schedule) -> None:
    """Columns stay: the condition is on rows alone."""
    s.trim_sum("sum", "a")


@case("trim-both", IMAGE)
def trim_both(s: tw.Schedule) -> None:
    s.trim_sum("sum", "a")
    s.trim_sum("sum", "b")


@case("trim-bytes", BYTES)
def trim_bytes(s: tw.Schedule) -> None:
    """Integers are finite."""
    s.trim_sum("sum", "a")


@case("trim-beside-a-copy", IMAGE)
def trim_beside_a_copy(s: tw.Schedule) -> None:
    """A copy of what is finite is, too; filled up with zeros and laid in another order."""
    s.cache_read("sum", "w")
    s.transform_layout("w.cache", "a, b -> a, b // 4, b % 4", pad=0.0)
    s.trim_sum("sum", "a")


@case("trim-halves", HALVES)
def trim_halves(s: tw.Schedule) -> None:
    """Conversions to wider floats stay finite."""
    s.trim_sum("sum", "a")


@case("trim-then-write-out", IMAGE)
def trim_then_write_out(s: tw.Schedule) -> None:
    s.trim_sum("sum", "a")
    s.reorder("a", "b", "i", "j")
    s.vectorize("j")
    s.unroll("i")
    s.unroll("a")


@wrong(ROW)
def not_summed_over(s: tw.Schedule) -> object:
    return s.trim_sum("sum", "i")


@wrong(ROW.replace(" finite", ""))
def weights_that_may_be_infinite(s: tw.Schedule) -> object:
    return s.trim_sum("sum", "a")


@wrong(ROW.replace("0.0)", "0.5)"))
def other_padding(s: tw.Schedule) -> object:
    return s.trim_sum("sum", "a")


@wrong(ROW)
def trimmed_already(s: tw.Schedule) -> object:
    s.trim_sum("sum", "a")
    return s.trim_sum("sum", "a")


@wrong(ROW)
def no_init_any_more(s: tw.Schedule) -> object:
    s.decompose_reduction("sum", "i")
    return s.trim_sum("sum", "a")


@wrong(ROW.replace("init: y[vi] = 0.0", "init: y[vi] = -0.0"))
def a_negative_zero(s: tw.Schedule) -> object:
    return s.trim_sum("sum", "a")


@wrong(ROW.replace("y[vi] += q[vi + va] * w[va]", "y[vi] = max(y[vi], q[vi + va])"))
def no_sum_of_products(s: tw.Schedule) -> object:
    return s.trim_sum("sum", "a")


@wrong(ROW.replace("w: f32", "w: f64").replace("w[va]", "f32(w[va])"))
def a_conversion_that_may_overflow(s: tw.Schedule) -> object:
    return s.trim_sum("sum", "a")


class TestTrim(PrimitiveTests):
    primitives = TRIM

    def test_infinities_in_the_image(self) -> None:
        """They reach what they reached before, in the sums whose windows they lie in."""
        made = TRIM.scheduled("trim-then-write-out")
        x, w = np.ones((5, 6), np.float32), np.ones((3, 5), np.float32)
        x[0, 0], x[4, 5] = np.inf, np.nan
        results = []
        for run in (partial(evaluate, made.before), partial(evaluate, made.after), tw.build(made.after)):
            results.append(np.zeros((3, 6), np.float32))
            arrays = (x, w, results[-1])
            run(*arrays) if isinstance(run, tw.Kernel) else run(arrays)
        np.testing.assert_array_equal(results[1], results[0])
        np.testing.assert_array_equal(results[2], results[0])


class TestFinite:
    @pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
    def test_arrays_are_looked_at(self, value: float) -> None:
        """By the evaluator and by kernels: the error names the parameter, the number and its place."""
        function = parse(ROW)
        x, w, y = np.ones(9, np.float32), np.ones(3, np.float32), np.zeros(9, np.float32)
        tw.build(function)(x, w, y)
        w[2] = value
        for run in (lambda: evaluate(function, (x, w, y)), lambda: tw.build(function)(x, w, y)):
            with pytest.raises(UserError) as raised:
                run()
            assert str(raised.value) == (
                "parameter w is not finite\n"
                f"why:  {value} is at [2], and the function leaves out products that are zero of finite numbers\n"
                "fix:  pass numbers without infinities and NaN, or declare w without finite"
            )

    def test_programs_that_differ_in_it(self) -> None:
        assert not same(parse(ROW), parse(ROW.replace(" finite", "")))

    def test_the_text_reads_back(self) -> None:
        for text in (ROW, ROW.replace("f32[3] finite", "f32[3] in constant finite")):
            assert same(parse(str(parse(text))), parse(text))
