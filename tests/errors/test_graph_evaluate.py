"""Calls of the graph evaluator that cannot go on: wrong inputs, and checks of the program that fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.ops
from tilewright.expr import dtypes
from tilewright.expr.build import equal
from tilewright.expr.nodes import Expr, const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.op import REGISTRY, Arrays, Op, TypeContext
from tilewright.graph.parse import parse_module
from tilewright.report.errors import InternalError, RuntimeFault, UserError
from tilewright.types.tensor import TensorType


def pair() -> Module:
    g = GraphBuilder("pair")
    n = g.symbol("n")
    x = g.param("x", TensorType.of(dtypes.f32, (n, n * 2)))
    y = g.param("y", TensorType.of(dtypes.i64, ()))
    return g.module({"x": x, "y": y})


F = np.zeros((3, 6), np.float32)
COUNT = np.zeros((), np.int64)

WRONG: list[tuple[Any, str]] = [
    ([F], "pair takes 2 inputs, not 1\nwhy:  its inputs are x, y"),
    ({"x": F, "z": COUNT}, "cannot call pair\nwhy:  y is missing; there is no input z\nfix:  give x, y"),
    ([F.astype(np.float64), COUNT], "the input x does not fit\nwhy:  it is float64[3, 6], and f32[n, n*2] is expected"),
    ([F[0], COUNT], "the input x does not fit\nwhy:  it is float32[6], and f32[n, n*2] is expected"),
    ([F[:, :5], COUNT], "the input x does not fit\nwhy:  it is float32[3, 5], and f32[n, n*2] is expected with n = 3"),
]


@pytest.mark.parametrize(("inputs", "message"), WRONG)
def test_inputs_that_do_not_fit(inputs: Any, message: str) -> None:
    with pytest.raises(UserError) as raised:
        evaluate(pair(), inputs)
    assert str(raised.value) == message


def test_inputs_by_name_and_in_order() -> None:
    by_name = evaluate(pair(), {"y": COUNT, "x": F})
    in_order = evaluate(pair(), [F, COUNT])
    assert list(by_name) == list(in_order) == ["x", "y"]
    assert by_name["x"].shape == (3, 6)


def test_a_symbol_below_its_least_value() -> None:
    module = parse_module("graph main[n >= 2](x: f32[n]) -> x:\n  pass")
    assert evaluate(module, [np.zeros(2, np.float32)])["x"].shape == (2,)
    with pytest.raises(UserError) as raised:
        evaluate(module, [np.zeros(1, np.float32)])
    assert str(raised.value) == "the size n is 1\nwhy:  main takes at least 2"


def test_a_requirement_names_both_sides() -> None:
    g = GraphBuilder()
    n, m = g.symbol("n"), g.symbol("m")
    x, y = (g.param(name, TensorType.of(dtypes.f32, (s,))) for name, s in (("x", n), ("y", m)))
    with g.at("Add 'sum'"):
        g.require(equal(n, m), "the lengths differ: {0} and {1}")
    module = g.module({"y": g.op("add", x, y)})
    ones = np.ones(3, np.float32)
    assert evaluate(module, [ones, ones])["y"].tolist() == [2, 2, 2]
    with pytest.raises(RuntimeFault) as raised:
        evaluate(module, [ones, ones[:2]])
    assert str(raised.value) == "the lengths differ: 3 and 2\nat:   Add 'sum'"


def counted(low: int) -> Module:
    g = GraphBuilder()
    n = g.symbol("n")
    x = g.param("x", TensorType.of(dtypes.i64, (n,)))
    with g.at("NonZero 'nz'"):
        k: Expr = g.size(g.op("reduce", x, kind="sum", axes=(0,)), "k", low, n, "ones")
    return g.module({"y": g.op("full", value=const(1, dtypes.u8), shape=(k,))})


@pytest.mark.parametrize("values", [[1, 0, 1], [0], [], [1]])
def test_a_size_gives_the_shape(values: list[int]) -> None:
    assert evaluate(counted(0), [np.array(values, np.int64)])["y"].shape == (sum(values),)


@pytest.mark.parametrize("values", [[2], [-1]])
def test_a_size_outside_its_bounds(values: list[int]) -> None:
    with pytest.raises(RuntimeFault) as raised:
        evaluate(counted(0), [np.array(values, np.int64)])
    assert str(raised.value) == f"the number of ones is {values[0]}, outside 0..1\nat:   NonZero 'nz'"


class Lying(Op):
    """An operator whose meaning does not keep what its type rule says."""

    name = "test_lying"

    def infer(self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: Any) -> tuple[TensorType, ...]:
        return inputs

    def meaning(self, inputs: Arrays, attrs: Any) -> Arrays:
        return (inputs[0][:1],)


def test_an_operator_that_breaks_its_type_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "test_lying", Lying())
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtypes.f32, (3,)))
    with pytest.raises(InternalError) as raised:
        evaluate(g.module({"y": g.op("test_lying", x)}), [np.zeros(3, np.float32)])
    assert raised.value.what == "test_lying gave float32[1] for test_lying"
    assert raised.value.why == "its type is f32[3], here f32[3]"


def test_a_call_runs_the_loops_function() -> None:
    text = """
graph main[n](x: f32[n, 2]) -> y, x:
  y: f32[n] = call(x, callee="sums", symbols=(n,))

func sums[m](x: f32[m, 2], y: f32[m]):
  for i in 0..m, k in 0..2:
    block sums(vi = i, reduce vk = k):
      init: y[vi] = 0.0
      y[vi] += x[vi, vk]
"""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    results = evaluate(parse_module(text), [x])
    assert results["y"].tolist() == [1, 5, 9]
    assert results["x"].tolist() == x.tolist()


def test_an_empty_array_beyond_numpys_sizes_is_an_error_for_users() -> None:
    text = """
graph main[n](x: f32[1, 0, n]) -> r:
  big: f32[1, 0, 2147483648, n, 2] = reshape(x, shape=(1, 0, 2147483648, n, 2))
  r: f32[0] = reshape(big, shape=(0,))
"""
    module = parse_module(text)
    inputs = {"x": np.zeros((1, 0, 1 << 30), np.float32)}
    with pytest.raises(UserError, match="the evaluator cannot hold big") as raised:
        evaluate(module, inputs)
    assert "f32[1, 0, 2147483648, 1073741824, 2]" in str(raised.value)
    assert tw.compile(module).run(inputs)["r"].shape == (0,)
