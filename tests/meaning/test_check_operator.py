"""`tw.check_operator`: operators that are what their meanings say pass, and each way not to be is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from added_operators import BandedProduct, FactorAttributes, ScaledSum, registered
from tilewright.expr.build import maximum
from tilewright.expr.nodes import Expr, as_expr
from tilewright.graph.op import REGISTRY
from tilewright.loops.build import load
from tilewright.types.tensor import TensorType

pytestmark = pytest.mark.usefixtures("nothing_stays")


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def refused(op: tw.Operator, *examples: Any, **attributes: Any) -> str:
    tw.register(op)
    with pytest.raises(tw.UserError) as caught:
        tw.check_operator(op, *examples, **attributes)
    return re.sub(r"\S*(?=test_check_operator\.py|added_operators\.py)|(?<=line )\d+", "", str(caught.value))


def test_operators_that_agree() -> None:
    with registered():
        assert str(tw.check_operator(REGISTRY["scaled_sum"], numbers(4, 6), factor=3.0)) == (
            "scaled_sum agrees for 13 sets of sizes, in 41 comparisons"
        )
        tw.check_operator(REGISTRY["snake"], numbers(4, 6), 1 + abs(numbers(6)))
        tw.check_operator(REGISTRY["snake"], numbers(4, 6).astype(np.float64), np.float64(0.5))
        banded = tw.check_operator(REGISTRY["banded_product"], numbers(6, 6), numbers(6), width=1)
        assert banded.sizes == 7 and banded.refused == 0


@pytest.mark.parametrize("name", ["add", "exp", "floor", "relu"])
def test_operators_of_the_package_agree(name: str) -> None:
    tw.check_operator(REGISTRY[name], *[numbers(3, 8)] * (2 if name == "add" else 1))


def test_sizes_that_the_type_rule_refuses_are_left_out() -> None:
    class Even(ScaledSum):
        def infer(self, context, inputs, attrs):  # type: ignore[no-untyped-def]
            context.require_equal(inputs[0].shape[-1] % 2, as_expr(0), "the last axis is even")
            return super().infer(context, inputs, attrs)

    op = Even()
    tw.register(op)
    found = tw.check_operator(op, numbers(4, 6))
    assert found.refused > 5 and found.sizes >= 3


def test_a_definition_of_something_else() -> None:
    class Wrong(ScaledSum):
        def define(self, build, inputs, outputs, attrs):  # type: ignore[no-untyped-def]
            (x,), (y,) = inputs, outputs
            build.accumulate("wrong", y, [x.shape[-1]], init=1, update=lambda total, *at: total + load(x, *at))

    assert refused(Wrong(), np.ones((2, 3), np.float32)) == (
        """\
the operator scaled_sum does not compute what its meaning says
at:   added_operators.py, line , meaning
why:  the definition for f32[2, 3]: 2 of 2 elements differ; y0[0] is 4.0, and the meaning gives 3.0
      the definition for f32[1, 1]: it differs; y0[0] is 2.0, and the meaning gives 1.0
      the definition for f32[7, 7]: 7 of 7 elements differ; y0[0] is 8.0, and the meaning gives 7.0
      the definition for f32[3, 3]: 3 of 3 elements differ; y0[0] is 4.0, and the meaning gives 3.0
      and 7 more"""
    )


@pytest.mark.parametrize("far", [lambda k: k + 1_000_000, lambda k: k * k * 500_000])
def test_an_access_outside_of_its_buffer_is_told_before_code_runs(far: Callable[[Expr], Expr]) -> None:
    class Wrong(ScaledSum):
        def define(self, build, inputs, outputs, attrs):  # type: ignore[no-untyped-def]
            (x,), (y,) = inputs, outputs
            build.accumulate("wrong", y, [x.shape[-1]], init=0, update=lambda total, i, k: total + load(x, i, far(k)))

    text = refused(Wrong(), np.ones((2, 3), np.float32))
    assert "the definition for f32[2, 3]: " in text and "000" in text


def test_only_a_size_that_is_wrong() -> None:
    class Wrong(ScaledSum):
        """Right but where the last axis is empty."""

        def define(self, build, inputs, outputs, attrs):  # type: ignore[no-untyped-def]
            (x,), (y,) = inputs, outputs
            build.accumulate("wrong", y, [maximum(x.shape[-1], 1)], init=0, update=self.term(x))

        def term(self, x):  # type: ignore[no-untyped-def]
            return lambda total, i, k: total + load(x, i, k)

    text = refused(Wrong(), np.ones((2, 3), np.float32))
    assert "the definition for f32[7, 0]" in text and "f32[2, 3]" not in text


def test_a_meaning_of_another_shape() -> None:
    class Wrong(ScaledSum):
        def meaning(self, inputs, attrs):  # type: ignore[no-untyped-def]
            return (inputs[0].sum(-1, keepdims=True),)

    text = refused(Wrong(), numbers(4, 6))
    first = "for f32[4, 6]: the meaning of the operator scaled_sum gave float32[4, 1]: its type is f32[4], here f32[4]"
    assert f"why:  {first}" in text


def test_a_difference_that_is_no_rounding() -> None:
    class Wrong(ScaledSum):
        def meaning(self, inputs, attrs):  # type: ignore[no-untyped-def]
            return (super().meaning(inputs, attrs)[0] * np.float32(1.0001),)

    assert "does not compute what its meaning says" in refused(Wrong(), numbers(4, 6))


def test_example_inputs_that_are_refused() -> None:
    assert "cannot type scaled_sum\nwhy:  scaled_sum takes floats, not i64[3]" in refused(ScaledSum(), np.arange(3))


def test_what_is_no_operator() -> None:
    with pytest.raises(tw.UserError, match="the operator banded_product is not registered"):
        tw.check_operator(BandedProduct(), numbers(2, 2))
    with pytest.raises(tw.UserError, match="an operator"):
        tw.check_operator("add", numbers(2))  # type: ignore[arg-type]
    assert FactorAttributes().factor == 1.0


class MaxAndSum(tw.Operator):
    """The greatest element above 0 and the sum of each row, by way of a copy: several results, blocks, and a buffer."""

    name = "max_and_sum"

    def infer(self, context, inputs, attrs):  # type: ignore[no-untyped-def]
        row = TensorType(inputs[0].dtype, inputs[0].shape[:-1])
        return (row, row)

    def meaning(self, inputs, attrs):  # type: ignore[no-untyped-def]
        (x,) = inputs
        return (x.max(-1, initial=0), x.sum(-1))

    def define(self, build, inputs, outputs, attrs):  # type: ignore[no-untyped-def]
        (x,), (top, total) = inputs, outputs
        copy = build.temporary("copy", x)
        build.compute("copied", copy, lambda *at: load(x, *at))
        build.accumulate("top", top, [x.shape[-1]], init=0, update=lambda acc, *at: maximum(acc, load(copy, *at)))
        build.accumulate("total", total, [x.shape[-1]], init=0, update=lambda acc, *at: acc + load(copy, *at))


class Outer(tw.Operator):
    """The differences of all pairs: a map whose points are others than those of its input."""

    name = "outer_difference"
    pattern = tw.Pattern.MAP

    def infer(self, context, inputs, attrs):  # type: ignore[no-untyped-def]
        return (TensorType(inputs[0].dtype, inputs[0].shape * 2),)

    def meaning(self, inputs, attrs):  # type: ignore[no-untyped-def]
        return (np.subtract.outer(inputs[0], inputs[0]),)

    def define(self, build, inputs, outputs, attrs):  # type: ignore[no-untyped-def]
        (x,), (y,) = inputs, outputs
        build.compute(self.name, y, lambda i, j: load(x, i) - load(x, j))


@pytest.mark.parametrize("pattern", [tw.Pattern.OPAQUE, tw.Pattern.REDUCE])
def test_several_results_and_blocks(pattern: tw.Pattern) -> None:
    op = MaxAndSum()
    op.pattern = pattern
    tw.register(op)
    assert tw.check_operator(op, numbers(4, 6)).sizes == 13


def test_a_map_of_other_points() -> None:
    op = Outer()
    tw.register(op)
    assert tw.check_operator(op, numbers(6)).sizes == 7


def test_a_scalar_has_one_set_of_sizes() -> None:
    text = str(tw.check_operator(REGISTRY["exp"], np.float32(0.5)))
    assert text == "exp agrees for 1 set of sizes, in 4 comparisons"
