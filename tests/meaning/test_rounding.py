"""Random rounding errors are those that the types allow: as large as an evaluation in f32 makes, and none where results
are exact."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.ops as _ops  # noqa: F401  (registers the operators)
from tilewright.analysis.rounding import Rounding, in_double
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module

Array = np.ndarray[Any, Any]
F32 = np.float32
U = 2.0**-24


def module(text: str, **constants: Array) -> Module:
    found = tw.parse(dedent(text).strip())
    functions = {found.name: found} if isinstance(found, GraphFunction) else found.functions
    return Module(functions, constants)


def spread(m: Module, feeds: dict[str, Array], count: int = 8, **options: Any) -> Array:
    """The root of the mean square of the errors of y."""
    exact = in_double(m)(feeds)["y"]
    gaps = [in_double(m, Rounding(seed, **options))(feeds)["y"] - exact for seed in range(count)]
    return np.sqrt(np.mean(np.square(gaps), axis=0))


def spread_of_scaled(m: Module, feeds: dict[str, Array], size: float) -> Array:
    """The same where results are so many times as large, as a part of that."""
    exact = in_double(m)(feeds)["y"]
    gaps = [(in_double(m, Rounding(seed))(feeds)["y"] - exact) / size for seed in range(8)]
    return np.sqrt(np.mean(np.square(gaps), axis=0))


PRODUCT = """
graph main(x: f32[64, 500], w: f32[500, 40]) -> y:
  y: f32[64, 40] = contract(x, w, spec="ik,kj->ij")
"""
TOTAL = """
graph main(x: f32[64, 500]) -> y:
  y: f32[64] = reduce(x, kind=sum, axes=(1,))
"""
CHAIN = """
graph main(x: f32[64, 500]) -> y:
  a: f32[64, 500] = exp(x)
  b: f32[64, 500] = mul(a, x)
  c: f32[64, 500] = sub(b, a)
  y: f32[64, 500] = tanh(c)
"""


@pytest.mark.parametrize("text", [PRODUCT, TOTAL, CHAIN], ids=["product", "total", "chain"])
@pytest.mark.parametrize("positive", [False, True], ids=["signs", "positive"])
def test_errors_are_as_large_as_those_of_f32(text: str, positive: bool) -> None:
    m = module(text)
    random = np.random.default_rng(0)
    feeds = {p.name: random.standard_normal([int(d.value) for d in p.type.shape]).astype(F32) for p in m.graph.params}
    feeds = {name: np.abs(x) if positive else x for name, x in feeds.items()}
    made = np.sqrt(np.mean(np.square(evaluate(m, feeds)["y"] - in_double(m)(feeds)["y"])))
    expected = np.sqrt(np.mean(np.square(spread(m, feeds))))
    assert 0.02 * expected < made < 2 * expected


def test_sums_in_any_order_stay_within_few_spreads() -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((64, 500)).astype(F32)
    m = module(TOTAL)
    bound = spread(m, {"x": x})
    exact = in_double(m)({"x": x})["y"]
    for _ in range(10):
        total = np.cumsum(x[:, random.permutation(500)], axis=1, dtype=F32)[:, -1]
        assert (np.abs(total - exact) < 10 * np.maximum(bound, np.median(bound))).all()


def test_whole_numbers_make_no_errors() -> None:
    feeds = {"x": np.arange(64 * 500, dtype=F32).reshape(64, 500) % 7, "w": np.ones((500, 40), F32)}
    assert not spread(module(PRODUCT), feeds).any()
    text = "graph main(x: f32[64, 500]) -> y:\n  y: f32[64, 500] = add(x, x)"
    assert not spread(module(text), {"x": feeds["x"]}).any()


def test_numbers_stay_in_the_range_of_their_type() -> None:
    text = "graph main(x: f32[4]) -> y:\n  y: f32[4] = exp(x)"
    y = in_double(module(text))({"x": np.array([100, 88, -200, -100], F32)})["y"]
    assert y[0] == np.inf and np.isfinite(y[1]) and y[2] == 0 and 0 < y[3] < np.finfo(F32).tiny


@pytest.mark.parametrize("text", [PRODUCT, TOTAL], ids=["product", "total"])
@pytest.mark.parametrize("size", [2.0**1000, 2.0**-600], ids=["large", "small"])
def test_errors_grow_with_numbers_whose_squares_are_beyond_their_type(text: str, size: float) -> None:
    m = module(text.replace("f32", "f64"))
    random = np.random.default_rng(2)
    feeds = {p.name: random.standard_normal([int(d.value) for d in p.type.shape]) for p in m.graph.params}
    usual = spread(m, feeds)
    assert usual.all()
    found = spread_of_scaled(m, {**feeds, "x": feeds["x"] * size}, size)
    np.testing.assert_allclose(found, usual, rtol=1e-3)


SHIFTED = """
graph main(x: f32[3], a: f32[], b: f32[]) -> y, s, t:
  u: f32[3] = mul(x, a)
  s: f32[] = reduce(u, kind=sum, axes=(0,))
  t: f32[] = reduce(u, kind=max, axes=(0,))
  y: f32[3] = mul(u, b)
"""


def test_a_product_in_a_fused_sum_may_be_beyond_the_range() -> None:
    """An evaluation says both what rounding each product gives and what rounding the sum alone does; nothing but the
    sum reads a product otherwise."""
    m = module(SHIFTED)
    feeds = {"x": np.array([1, -np.inf, np.finfo(F32).max], F32), "a": F32(1.5), "b": F32(0.5)}
    apart, fused = (in_double(m, Rounding(seed))(feeds) for seed in (0, 1))
    assert np.isnan(in_double(m)(feeds)["s"]) and np.isnan(apart["s"])
    assert fused["s"] == -np.inf
    for found in (apart, fused):
        assert found["t"] == np.inf and found["y"][2] == np.inf
    within = {**feeds, "x": np.array([1, -np.inf, np.inf], F32)}
    assert all(np.isnan(in_double(m, Rounding(seed))(within)["s"]) for seed in range(4))


def test_subnormal_numbers_may_be_zero_where_they_are_flushed() -> None:
    text = "graph main(x: f32[2]) -> y:\n  h: f32[2] = full(value=f32(0.3), shape=(2,))\n  y: f32[2] = mul(x, h)"
    feeds = {"x": np.array([1e-38, 1.0], F32)}
    kept, flushed = (spread(module(text), feeds, flushes=flushes) for flushes in (False, True))
    assert kept[0] < 1e-44 and flushed[0] > 1e-39
    assert kept[1] == pytest.approx(flushed[1], rel=0.5)


def test_errors_of_casts_are_those_of_the_narrow_type() -> None:
    text = """
    graph main(x: f32[1000]) -> y:
      h: bf16[1000] = cast(x, dtype=bf16)
      y: f32[1000] = cast(h, dtype=f32)
    """
    x = np.random.default_rng(0).uniform(1, 2, 1000).astype(F32)
    found = spread(module(text), {"x": x}) / x
    assert found.mean() == pytest.approx(2**-8 / np.sqrt(3), rel=0.1)


def test_constants_have_errors_only_where_the_compiler_made_them_and_the_same_each_step() -> None:
    text = """
    graph step(h: f32[3]) -> h2, y:
      w: f32[3] = constant(name=@w)
      h2: f32[3] = max(h, w)
      y: f32[3] = max(w, w)

    graph main(h: f32[3]) -> last, y:
      last: f32[3], y: f32[5, 3] = scan(h, body="step", steps=5, states=1, scanned=(), stacked=(forward,),
                                        types=(f32[3], f32[5, 3]))
    """
    m = module(text, w=np.array([1, 2, 3], F32))
    feeds = {"h": np.zeros(3, F32)}
    assert not spread(m, feeds).any()
    y = in_double(m, Rounding(0, {"w"}))(feeds)["y"]
    assert (y == y[0]).all() and 0 < np.abs(y[0] - [1, 2, 3]).max() <= 3 * U


BITS = """
graph main(x: f32[6], n: u32[6]) -> y, z, b:
  a: f32[6] = mul(x, x)
  b: u32[6] = bitcast(a, dtype=u32)
  e: u32[6] = shr(b, n)
  y: f32[6] = bitcast(e, dtype=f32)
  z: f32[6] = add(y, a)
"""


def test_bits_are_those_of_the_types_of_the_graph() -> None:
    m = module(BITS)
    feeds = {"x": np.array([0, 0.5, 1, 1.5, -2, 8], F32), "n": np.array([0, 1, 0, 2, 0, 3], np.uint32)}
    wanted, exact = evaluate(m, feeds), in_double(m)(feeds)
    assert exact["b"].dtype == np.uint32 and exact["y"].dtype == np.float64
    for name, array in wanted.items():
        np.testing.assert_array_equal(exact[name], array)
    rounded = in_double(m, Rounding(0))({"x": np.full(6, 1.1, F32), "n": np.zeros(6, np.uint32)})
    assert np.abs(rounded["y"] - F32(1.1) ** 2).max() <= 2 * U


def test_results_in_double_precision_have_errors_too() -> None:
    m = module("graph main(x: f64[64], w: f64[64]) -> y:\n  y: f64[64] = mul(x, w)")
    feeds = {"x": np.linspace(0.1, 4, 64), "w": np.full(64, 1.1)}
    errors = spread(m, feeds) / (feeds["x"] * 1.1)
    assert 2.0**-55 < np.median(errors) < 2.0**-52
    assert not spread(m, {"x": np.arange(64.0), "w": np.full(64, 3.0)}).any()
