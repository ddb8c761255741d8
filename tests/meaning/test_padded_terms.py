"""Convolutions leave out terms that read padding alone, where weights are finite, and results stay what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.loops.nodes import Function
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.shape import recognise

Array = np.ndarray[Any, Any]


def convolution(n: int, size: int, c: int, o: int, d: int, finite: str = "finite") -> Function:
    """A 3x3 convolution of images channels last, dilated by d, as large as the images are."""
    padded = size + 2 * d
    function = tw.parse(f"""
func f(x: f32[{n}, {size}, {size}, {c}], w: f32[3, 3, {c}, {o}] in constant {finite}, y: f32[{n}, {size}, {size}, {o}]):
  alloc p: f32[{n}, {padded}, {padded}, {c}] in arena
  for i in 0..{n}, j in 0..{padded}, l in 0..{padded}, c in 0..{c}:
    block zero(vi = i, vj = j, vl = l, vc = c):
      p[vi, vj, vl, vc] = 0.0
  for i in 0..{n}, j in 0..{size}, l in 0..{size}, c in 0..{c}:
    block copy(vi = i, vj = j, vl = l, vc = c):
      p[vi, vj + {d}, vl + {d}, vc] = x[vi, vj, vl, vc]
  for i in 0..{n}, j in 0..{size}, l in 0..{size}, o in 0..{o}, a in 0..3, b in 0..3, c in 0..{c}:
    block sum(vi = i, vj = j, vl = l, vo = o, reduce va = a, reduce vb = b, reduce vc = c):
      init: y[vi, vj, vl, vo] = 0.0
      y[vi, vj, vl, vo] += p[vi, vj + va*{d}, vl + vb*{d}, vc]*w[va, vb, vc, vo]
""")
    assert isinstance(function, Function)
    return function


def expected(x: Array, w: Array, d: int) -> Array:
    size = x.shape[1]
    p = np.pad(x.astype(np.float64), ((0, 0), (d, d), (d, d), (0, 0)))
    windows = [(a, b, p[:, a * d : a * d + size, b * d : b * d + size]) for a in range(3) for b in range(3)]
    return np.asarray(sum(part @ w[a, b] for a, b, part in windows))


def drawn(n: int, size: int, c: int, o: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, size, size, c)).astype(np.float32), rng.normal(size=(3, 3, c, o)).astype(np.float32)


@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
@pytest.mark.parametrize(("n", "size", "c", "o", "d"), [(1, 7, 16, 32, 1), (16, 5, 8, 24, 2), (2, 9, 8, 16, 5)])
def test_terms_of_padding_are_left_out(n: int, size: int, c: int, o: int, d: int, target: str) -> None:
    function = convolution(n, size, c, o, d)
    s = tw.autoschedule(function, target)
    assert "s.trim_sum(" in str(s.trace)
    x, w = drawn(n, size, c, o)
    y = np.empty((n, size, size, o), np.float32)
    tw.build(s.func, target=target)(x, w, y)
    np.testing.assert_allclose(y, expected(x, w, d), rtol=1e-4, atol=1e-4)


def test_of_weights_that_may_be_infinite_all_terms_are_computed() -> None:
    s = tw.autoschedule(convolution(1, 7, 16, 32, 1, finite=""), "native")
    assert "trim_sum" not in str(s.trace)
    x, w = drawn(1, 7, 16, 32)
    w[0, 0, 3, 5] = np.inf
    y = np.empty((1, 7, 7, 32), np.float32)
    tw.build(s.func)(x, w, y)
    assert np.isnan(y[0, 0, 0, 5]), "zero times infinity"
    assert np.isfinite(y[..., :5]).all()


def test_share_of_terms_is_counted_tile_by_tile() -> None:
    product = recognise(Facts(convolution(1, 12, 8, 16, 8)))
    assert product is not None
    rows, columns = product.size.edges
    # Of 12 rows, 4 see the one before the middle, 4 the one behind; of two tiles of 6 columns, one does.
    assert (rows.of_rows, columns.of_rows) == (False, True)
    assert rows.share(6) == (4 + 12 + 4) / 36
    assert columns.share(6) == (1 + 2 + 1) / 6
    assert columns.share(1) == rows.share(1)


def test_of_large_images_nothing_is_left_out() -> None:
    product = recognise(Facts(convolution(1, 80, 4, 16, 1)))
    assert product is not None
    assert product.size.edges == ()


def test_images_without_a_row_have_no_terms_to_leave_out() -> None:
    assert all(f is None or f.size.edges == () for f in [recognise(Facts(convolution(1, 0, 4, 16, 1)))])
    assert tw.autoschedule(convolution(0, 7, 4, 16, 1), "x86-64-v3")


@pytest.mark.parametrize("size", [1365, 1 << 20])
def test_images_so_large_that_their_edge_counts_for_nothing_are_not_looked_at(size: int) -> None:
    """What it takes to find terms of padding does not grow with an image: it is dilated by half its size."""
    small, large = (recognise(Facts(convolution(1, n, 4, 16, n // 2))) for n in (64, size + 1))
    assert small is not None
    assert large is not None
    assert len(small.size.edges) == 2
    assert large.size.edges == ()


OTHERS = {
    "a store of no block": "  p[2] = x[0]\n",
    "a call": "  call other(p)\n",
    "a view": "  view q: f32[10] = p\n  for i in 0..8:\n    block more(vi = i):\n      q[vi + 2] = x[vi]\n",
    "a second copy": "  for i in 0..8:\n    block more(vi = i):\n      p[vi + 2] = x[vi]\n",
}


@pytest.mark.parametrize("other", ["", *OTHERS])
def test_zeros_are_known_where_nothing_else_is_stored(other: str) -> None:
    program = tw.parse(f"""
func f(x: f32[8], w: f32[3] in constant finite, y: f32[8]):
  alloc p: f32[10] in arena
  for i in 0..10:
    block zero(vi = i):
      p[vi] = 0.0
  for i in 0..8:
    block copy(vi = i):
      p[vi + 1] = x[vi]
{OTHERS.get(other, "")}  for i in 0..8, a in 0..3:
    block sum(vi = i, reduce va = a):
      init: y[vi] = 0.0
      y[vi] += p[vi + va]*w[va]
""")
    s = tw.Schedule(program)
    _, a = s.get_loops("sum")
    if other:
        with pytest.raises(tw.UserError, match="cannot leave out terms"):
            s.trim_sum("sum", a)
    else:
        s.trim_sum("sum", a)
