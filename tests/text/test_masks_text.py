"""Programs with branches on the variable of a vectorized loop, before and after vectorization."""

from __future__ import annotations

import pytest
from golden_files import check, check_folder

from tilewright.loops.parse import parse
from tilewright.lower.loops.lower_blocks import lower_blocks
from tilewright.lower.loops.simplify_indices import simplify_indices
from tilewright.lower.loops.unroll import unroll
from tilewright.lower.loops.vectorize import vectorize

PROGRAMS = {
    "edge": """
func edge[n](x: f64[n], y: f64[n]):
  for jo in 0..(n + 3) // 4:
    vectorize j in 0..4:
      block edge(v = jo*4 + j) where jo*4 + j < n:
        y[v] = x[v] * 2.0
""",
    "two_sides": """
func two_sides[n](x: f32[n], y: f32[n]):
  for jo in 0..n // 8:
    vectorize j in 0..8:
      if 2 <= jo*8 + j: y[jo*8 + j] = x[jo*8 + j - 2]
      else: y[jo*8 + j] = 0.0
""",
    "rows_and_columns": """
func rows_and_columns[n, m](s: f32[n], x: f32[n, m], y: f32[n, m]):
  for i in 0..n + 1, jo in 0..(m + 7) // 8:
    vectorize j in 0..8:
      if i < n and jo*8 + j < m:
        if x[i, jo*8 + j] > 0.0: y[i, jo*8 + j] = x[i, jo*8 + j] * s[i]
""",
    "tile": """
func tile(a: f32[2, 64], b: f32[64, 20], c: f32[2, 20]):
  for jo in 0..3:
    alloc t: f32[2, 8] in register
    vectorize j in 0..8:
      t[0, j] = 0.0
      t[1, j] = 0.0
    for k in 0..64:
      unroll i in 0..2:
        vectorize j in 0..8:
          block dot(vi = i, vj = jo*8 + j, reduce vk = k) where jo*8 + j < 20:
            t[vi, vj - jo*8] += a[vi, vk] * b[vk, vj]
    unroll i in 0..2:
      vectorize j in 0..8:
        if jo*8 + j < 20: c[i, jo*8 + j] = t[i, j]
""",
    "decided": """
func decided(x: f32[32], y: f32[32]):
  for jo in 0..4:
    vectorize j in 0..8:
      if j < 8: y[jo*8 + j] = x[jo*8 + j]
      if j < 5: y[jo*8 + j] = 1.0
      if j > 7: y[jo*8 + j] = 2.0
""",
    "serial": """
func serial[n](x: f32[n], y: f32[n]):
  vectorize j in 0..8:
    if j < n: y[0] = x[j]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_masks(request: pytest.FixtureRequest, name: str) -> None:
    before = parse(PROGRAMS[name])
    after = unroll(vectorize(simplify_indices(lower_blocks(before)), registers=32))
    check(request, f"masks/{name}.loops", f"{before}\n\n{after}")


def test_every_program_has_its_file_and_no_other(request: pytest.FixtureRequest) -> None:
    check_folder(request, "masks", [f"{name}.loops" for name in PROGRAMS])
