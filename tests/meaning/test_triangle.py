"""Products with a triangular operand: the same numbers from half the terms, chosen by price; no other kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.loops.edit import blocks, loops_around
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function
from tilewright.plan.choose import schedule
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import candidates, registered
from tilewright.target import Target

V3, V4 = Target.parse("x86-64-v3"), Target.parse("x86-64-v4")


def product(m: int, k: int, n: int, where: str = " where vk <= vj", dtype: str = "f32") -> Function:
    made = tw.parse(f"""
func product(x: {dtype}[{m}, {k}], w: {dtype}[{k}, {n}], y: {dtype}[{m}, {n}]):
  for i in 0..{m}, j in 0..{n}, k in 0..{k}:
    block dot(vi = i, vj = j, reduce vk = k){where}:
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
""")
    assert isinstance(made, Function)
    return made


def operands(m: int, k: int, n: int, dtype: str = "f32") -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(m * k + n)
    kind = np.float64 if dtype == "f64" else np.float32
    return [rng.normal(size=shape).astype(kind) for shape in ((m, k), (k, n))]


EDGES = {
    " where vk <= vj": lambda x, w: x @ np.triu(w),
    " where vk < vj": lambda x, w: x @ np.triu(w, 1),
    " where vk <= vi": lambda x, w: np.tril(x) @ w,
    " where vk < vi": lambda x, w: np.tril(x, -1) @ w,
}


@pytest.mark.parametrize("target", [V3, V4])
@pytest.mark.parametrize("where", EDGES)
@pytest.mark.parametrize(("m", "k", "n"), [(8, 32, 32), (16, 64, 32), (12, 16, 96), (64, 64, 64), (2, 1, 16)])
def test_the_sum_is_that_of_the_terms_before_the_edge(m: int, k: int, n: int, where: str, target: Target) -> None:
    made, decision = schedule(product(m, k, n, where), target)
    assert decision.template == "triangle"
    x, w = operands(m, k, n)
    y = np.full((m, n), 7, np.float32)
    evaluate(made.func, [x, w, y])
    np.testing.assert_allclose(y, EDGES[where](x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("where", EDGES)
def test_compiled_code_computes_the_same(where: str, dtype: str) -> None:
    made, decision = schedule(product(32, 128, 64, where, dtype), V3)
    assert decision.template == "triangle"
    x, w = operands(32, 128, 64, dtype)
    y = np.full((32, 64), 7, x.dtype)
    tw.build(made.func, target="x86-64-v3", threads=2)(x, w, y)
    np.testing.assert_allclose(y, EDGES[where](x, w), rtol=1e-4, atol=1e-4)


def test_every_choice_computes_the_same() -> None:
    function = product(24, 48, 96)
    x, w = operands(24, 48, 96)
    choices = list(candidates(Facts(function), V3))
    assert len(choices) > 5 and {c.template.name for c in choices} == {"triangle"}
    for candidate in choices:
        y = np.zeros((24, 96), np.float32)
        evaluate(candidate.schedule(Facts(function), V3).func, [x, w, y])
        np.testing.assert_allclose(y, x @ np.triu(w), rtol=1e-4, atol=1e-4)


def test_what_lies_behind_the_edge_is_not_read() -> None:
    made, _ = schedule(product(16, 64, 64), V4)
    x, w = operands(16, 64, 64)
    w[np.tril_indices(64, -1)] = np.nan
    y = np.zeros((16, 64), np.float32)
    tw.build(made.func, target="x86-64-v3", threads=1)(x, w, y)
    assert np.isfinite(y).all()


def test_a_tile_runs_the_terms_before_its_edge_without_a_condition() -> None:
    made, decision = schedule(product(64, 256, 256), V4)
    assert decision.taken is not None
    columns = decision.taken.choice["vectors"] * decision.taken.choice["lanes"]
    parts = {b.name: (b, loops_around(made.func.body, b)[2]) for b in blocks(made.func.body) if b.reduce}
    assert list(parts) == ["dot", "dot.tail"], "there is no part behind the edge"
    (plain, before), (masked, edge) = parts.values()
    assert plain.where is None and masked.where is not None
    assert str(before.end) == str(edge.begin) == f"jo*{columns} + 1" and str(edge.end) == f"jo*{columns} + {columns}"


def test_the_price_is_less_than_that_of_the_whole_product() -> None:
    (whole,) = [schedule(product(256, 512, 512, ""), V4)[1].taken]
    (half,) = [schedule(product(256, 512, 512), V4)[1].taken]
    assert whole is not None and half is not None and (whole.template, half.template) == ("contraction", "triangle")
    assert 0.4 < half.seconds / whole.seconds < 0.8


@pytest.mark.parametrize(
    "function",
    [
        product(8, 32, 32, ""),
        product(8, 32, 32, " where vj <= vk"),
        product(8, 32, 32, " where vk <= vj and vi < 7"),
        product(8, 32, 32, " where vk*2 <= vj"),
        product(8, 0, 32),
    ],
)
def test_other_kernels_are_not_taken(function: Function) -> None:
    assert registered()["triangle"].recognise(Facts(function)) is None


def test_sizes_that_no_tile_divides_have_no_choice() -> None:
    template, facts = registered()["triangle"], Facts(product(7, 32, 33))
    shape = template.recognise(facts)
    assert shape is not None and list(template.choices(shape, V3)) == []
    assert schedule(product(7, 32, 33), V3)[1].template == "nests"
