"""Models that `make fuzz` draws, and what its harness notices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fuzzers
import numpy as np
import pytest
from fuzz.drawing import GROUP, Model, put_together
from fuzz.judging import wrong_results
from fuzz.outcomes import drawn, outcome
from fuzz.reference import Undefined, compute
from fuzz.refusals import is_limit
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from drawn import LONG
from tilewright.report.errors import RuntimeFault, UserError

Array = np.ndarray[Any, Any]

COUNT = 300


def test_models_give_what_the_reference_does() -> None:
    kinds = fuzzers.counts(fuzzers.run("fuzz_models.py", "--count", str(COUNT), "--processes", "2"))
    assert sum(kinds.values()) == COUNT
    assert kinds["right"] >= 0.9 * COUNT, kinds


WITH_INTEGERS = [1, 8, 9, 15, *([3, 5] if LONG else [])]
"""Models with results that are integers. Of the last two, evaluations with rounding errors take seconds."""


@pytest.mark.parametrize("seed", WITH_INTEGERS)
def test_another_result_is_noticed(seed: int) -> None:
    """Also where what was compiled is what this package itself reads, and the reference gives another number."""
    model = drawn(seed)
    name = next(n for n, a in model.expected.items() if a.size and a.dtype.kind == "i")
    other = model.expected[name].copy()
    other.flat[0] ^= 1
    assert not wrong_results(model, model.expected)
    assert name in wrong_results(model, {**model.expected, name: other})
    assert name in wrong_results(replace(model, expected={**model.expected, name: other}), model.expected)


def of_one(operator: str, values: dict[str, Array], opset: int = 21, **attributes: Any) -> Model:
    """A model of one node with what it should give, as a drawn one has it."""
    node = helper.make_node(operator, list(values), ["y"], name="one", **attributes)
    (wanted,) = compute(node, values, opset)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in values.items()
    ]
    return Model(0, [node], infos, {}, values, {"y": wanted}, opset, {**values, "y": wanted})


def refuses(model: Model, at: tuple[int, ...], other: float) -> bool:
    """Whether the results of a model are right, and are not with another number at one place."""
    found = model.expected["y"].copy()
    found[at] = other
    return not wrong_results(model, model.expected) and "y" in wrong_results(model, {"y": found})


def test_integers_that_the_reference_cannot_shrink_are_not_drawn() -> None:
    """It has them in f64; others are compared as they are."""
    node = helper.make_node("Shrink", ["x"], ["y"])
    for x in (np.array([2**63 - 1, 1]), np.array([2**53 + 1, 1], np.uint64), np.array([-(2**63), 1])):
        with pytest.raises(Undefined, match="in f64"):
            compute(node, {"x": x}, 21)
    for x in (np.array([2**53, 1]), np.array([-(2**53), 1]), np.array([255, 1], np.uint8)):
        model = of_one("Shrink", {"x": x})
        assert model.expected["y"].tolist() == x.tolist()
        assert refuses(model, (1,), 2)
    assert refuses(of_one("Shrink", {"x": np.array([1e18, 0.1], np.float32)}), (1,), 1)


def test_the_variance_of_a_normalization_is_in_the_range_of_f32() -> None:
    """Squares beyond it make elements zero, as ONNX's formula says; of a row beside, they are not."""
    x = np.array([[1, -2, 1e20], [1, -2, 1e18]], np.float32)
    model = of_one("LayerNormalization", {"x": x, "scale": np.ones(3, np.float32)})
    assert (model.expected["y"][0] == 0).all()
    assert np.allclose(model.expected["y"][1], [-0.7071, -0.7071, 1.4142], 1e-4)
    assert outcome([model]) == ("right", "")
    for at, other in (((0, 0), 0.5), ((0, 2), 1.4142), ((1, 0), 0.0), ((1, 2), 1.41)):
        assert refuses(model, at, other)
    for row in ([1e19, -1e19, 1e19, -1e19], [3e38, 3e38, 0, 0]):  # sums overflow, and no square or no element does
        values = {"x": np.array([row], np.float32), "scale": np.ones(4, np.float32)}
        with pytest.raises(Undefined, match="overflow"):
            compute(helper.make_node("LayerNormalization", list(values), ["y"]), values, 21)


@pytest.mark.parametrize("other", [3e38, -np.inf, np.nan])
def test_an_infinity_is_no_other_number(other: float) -> None:
    assert refuses(of_one("Exp", {"x": np.array([100, 1], np.float32)}), (0,), other)


def test_cubic_samples_are_of_weights_in_double_precision() -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 3)).astype(np.float32)
    values = {"x": x, "": np.zeros(0, np.float32), "scales": np.array([1, 1, 2], np.float32)}
    model = of_one("Resize", values, mode="cubic", coordinate_transformation_mode="align_corners")
    weights = np.array([-0.108, 0.72 - 0.072, 0.46])  # at 0.4: the first and the second of three samples, and the last
    wanted = x[0, :, 0].astype(np.float64) * (-0.108 + 0.72) + x[0, :, 1] * 0.46 + x[0, :, 2] * -0.072
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(model.expected["y"][0, :, 1], wanted, rtol=0, atol=2.0**-24 * float(np.abs(x).max()))


def test_an_infinity_is_that_of_a_fused_multiply_add_only_where_a_product_overflows() -> None:
    """The sum of 1.5*x is -inf where that rounds once, NaN where the product overflows before it is added."""
    x = np.array([1, -np.inf, np.finfo(np.float32).max], np.float32)
    model = sum_of_products(x)
    assert np.isnan(model.expected["y"])
    assert not wrong_results(model, {"y": np.array(-np.inf, np.float32)})
    for other in (np.inf, 1.0):
        assert wrong_results(model, {"y": np.array(other, np.float32)})
    assert wrong_results(sum_of_products(np.array([1, -np.inf, np.inf], np.float32)), {"y": np.array(-np.inf, "f4")})
    assert wrong_results(sum_of_products(np.array([1, 2, 3e38], np.float32)), {"y": np.array(3e38, "f4")})


def sum_of_products(x: Array) -> Model:
    nodes = [helper.make_node("Mul", ["x", "a"], ["u"]), helper.make_node("ReduceSum", ["u"], ["y"], keepdims=0)]
    values = {"x": x, "a": np.array(1.5, np.float32)}
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in values.items()]
    (u,) = compute(nodes[0], values, 21)
    (y,) = compute(nodes[1], {"u": u}, 21)
    return Model(0, nodes, infos, {}, values, {"y": y}, 21)


@pytest.mark.parametrize("seed", [2805, 2842, 7607, 16697])
def test_models_are_right_that_the_reference_was_not(seed: int) -> None:
    assert outcome([drawn(seed)]) == ("right", "")


def test_an_error_is_excused_where_it_names_a_limit_that_the_model_meets() -> None:
    node = helper.make_node("Expand", ["x", "sizes"], ["y"], name="Expand_m0_2")
    values = {"x": np.ones((1, 3)), "sizes": np.array([5, 3]), "y": np.ones((5, 3))}
    model = Model(0, [node], [], {}, values, {}, 21)
    what, where = "dimensions do not broadcast: 1 and 5", "Expand 'Expand_m0_2'"
    assert is_limit([model], RuntimeFault(what, where=where))
    for error in (
        RuntimeFault(what, where="Expand 'Expand_m0_3'"),
        RuntimeFault("dimensions do not broadcast: 1 and 3", where=where),
        RuntimeFault("dimensions do not broadcast: 3 and 5", where=where),
        RuntimeFault(f"the result is not {what}", where=None),
        UserError(what, where=where),
        UserError("Expand is not supported here", where=where),
    ):
        assert not is_limit([model], error), error


def test_a_model_is_the_same_each_time_and_its_results_are_those_of_the_whole() -> None:
    """Nodes are evaluated one by one when they are drawn."""
    one, two = drawn(12), drawn(12)
    assert put_together([one]) == put_together([two])
    found = ReferenceEvaluator(put_together([one])).run(None, one.feeds)
    assert one.expected
    for array, wanted in zip(found, one.expected.values(), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_models_have_most_operators() -> None:
    assert len({name for seed in range(600) for name in drawn(seed).operators}) > 130


def test_a_crash_is_a_defect_of_its_model() -> None:
    """A process that ends in a group: its models run one by one, and those of other groups still do. Where none ends
    its process by itself, the group is a defect."""
    ran = fuzzers.run(CRASHES)
    found = [line.split() for line in ran.stdout.splitlines()]
    assert sorted(int(seed) for seed, _ in found) == list(range(3 * GROUP)), ran.stderr
    assert [int(seed) for seed, kind in found if kind == "defect"] == [12, GROUP]


CRASHES = """
import os, fuzz_models
def came(seeds):
    if 12 in seeds or len(seeds) > 1 and 33 in seeds: os.abort()
    return [fuzz_models.Outcome(s, "right", "") for s in seeds]
fuzz_models.drawn = lambda seed: seed
fuzz_models.of_models = came
for o in fuzz_models.run(range(3), 2):
    print(o.seed, o.kind)
"""
