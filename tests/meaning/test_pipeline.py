"""The evaluators and native code agree: graph = loops after every pass = machine, on random programs and on a few that
need memory of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from graph_strategies import Program, programs
from stages import check
from tilewright.graph.parse import parse_module

LONG = settings.get_current_profile_name() == "long"
some = settings(
    max_examples=2000 if LONG else 14, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)


@given(program=programs())
@some
def test_random_programs(program: Program) -> None:
    check(program.module, [program.inputs])


BRANCHES = """
graph main[n, m](x: f32[n, m]) -> y, b, flat:
  a: f32[n, n] = contract(x, x, spec="ik,jk->ij")
  b: f32[m, m] = contract(x, x, spec="ki,kj->ij")
  c: f32[n, m] = contract(x, b, spec="ik,kj->ij")
  d: f32[n, m] = contract(a, x, spec="ik,kj->ij")
  e: f32[n, n] = contract(c, d, spec="ik,jk->ij")
  f: f32[n, n] = contract(a, e, spec="ik,kj->ij")
  y: f32[n, n] = contract(f, a, spec="ik,kj->ij")
  g: f32[n, m] = contract(a, c, spec="ik,kj->ij")
  flat: f32[n*m] = reshape(g, shape=(n*m,))
"""
"""Many values that live at the same time; one result is a view."""

FOUND = """
graph main[n](x: f32[n, 3]) -> places, sum as total, rows, same:
  zero: f32[] = full(value=f32(0.0), shape=())
  mask: bool[n, 3] = lt(zero, x)
  ones: i64[n, 3] = cast(mask, dtype=i64)
  count: i64[] = reduce(ones, kind=sum, axes=(0, 1))
  k = size(count, low=0, high=n*3, what="positive elements")
  places: i64[k, 2] = compact(mask, size=k)
  sum: f32[] = reduce(x, kind=sum, axes=(0, 1))
  sums: f32[n] = reduce(x, kind=sum, axes=(1,))
  large: bool[n] = lt(zero, sums)
  larges: i64[n] = cast(large, dtype=i64)
  most: i64[] = reduce(larges, kind=sum, axes=(0,))
  r = size(most, low=0, high=n, what="rows")
  index: i64[r, 1] = compact(large, size=r)
  line: i64[r] = reshape(index, shape=(r,))
  rows: f32[r, 3] = take(x, line, axis=0)
  again: f32[r*3] = reshape(rows, shape=(r*3,))
  same: f32[r*3] = exp(again)
"""
"""Two sizes that only the call knows, results of known and of unknown size in turn."""


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (BRANCHES, [(0, 3), (1, 1), (3, 0), (3, 5), (9, 2)]),
        (FOUND, [(0, 3), (1, 3), (2, 3), (7, 3), (31, 3)]),
    ],
    ids=["many values at a time", "sizes only the call knows"],
)
def test_programs(text: str, shapes: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(1)
    check(parse_module(text), [[random.normal(0, 0.5, shape).astype(np.float32)] for shape in shapes])
