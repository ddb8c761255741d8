"""Where innermost loops begin in machine code: at a line of the cache, whatever lies before them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.module import LOOP_ALIGNMENT
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse

NESTED = """
func nested(x: f32[{n}, {n}, 8], y: f32[{n}, {n}, 8]):
  for i in 0..{n}:
    y[i, 0, 0] = x[i, 0, 0]
    for j in 0..{n}:
      vectorize k in 0..8:
        y[i, j, k] = x[i, j, k] * 2.0 + x[j, i, k]
"""


@pytest.mark.parametrize("n", [3, 37])
def test_innermost_loops_begin_at_a_line(n: int) -> None:
    """And loops around them do not: nothing is gained there."""
    function = parse(NESTED.format(n=n))
    assert isinstance(function, Function)
    kernel = tw.build(function)
    power = LOOP_ALIGNMENT.bit_length() - 1
    aligned = re.findall(rf"^\s*\.p2align\s+{power}\b", kernel.show("assembly"), re.MULTILINE)
    assert len(aligned) == 1
    x = np.random.default_rng(0).standard_normal((n, n, 8)).astype(np.float32)
    y = np.zeros_like(x)
    kernel(x, y)
    np.testing.assert_allclose(y, x * 2 + x.swapaxes(0, 1), rtol=1e-6)
