"""Sums whose terms are loaded lane by lane run in fewer vectors than those of contiguous ones, and are right."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.plan.choose import schedule
from tilewright.target import Target

COLUMNS = """
func sums(x: f32[{n}, 512], d: f32[512], y: f32[512]):
  for i in 0..512, k in 0..{n}:
    block sum(vi = i, reduce vk = k):
      init: y[vi] = 0.0
      y[vi] += x[vk, vi] - d[vi]
"""
ROWS = COLUMNS.replace("x: f32[{n}, 512]", "x: f32[512, {n}]").replace("x[vk, vi]", "x[vi, vk]")


def vectors(function: Function) -> int:
    """How many vectors of sums a tile has."""
    taken = schedule(function, Target.parse("x86-64-v4"))[1].taken
    assert taken is not None
    ((nest,),) = taken.choice["nests"]  # type: ignore[index,call-overload]
    return max(strip["vectors"] for strip in nest["tile"]["strips"])


def test_vectors_of_contiguous_sums_hide_additions_and_those_of_others_need_not() -> None:
    assert vectors(parse(COLUMNS.format(n=4))) > 1
    assert vectors(parse(ROWS.format(n=4))) == 1


@pytest.mark.parametrize("text", [COLUMNS, ROWS])
@pytest.mark.parametrize("n", [1, 3, 4, 7])
def test_they_are_right(text: str, n: int) -> None:
    made, _ = schedule(parse(text.format(n=n)), Target.parse("native"))
    rng = np.random.default_rng(0)
    x, d = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, 512), (512,)))
    y = np.zeros(512, np.float32)
    tw.build(made.func)(x if text is COLUMNS else np.ascontiguousarray(x.T), d, y)
    np.testing.assert_allclose(y, (x - d).sum(0), rtol=1e-5, atol=1e-5)
