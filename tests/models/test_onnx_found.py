"""What `make fuzz` found, each with the smallest model that shows it. Expected values are the reference evaluator's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from compiled_once import compiled

Array = np.ndarray[Any, Any]


def of_one(
    operator: str, arrays: Sequence[Array | str], constants: Sequence[int] = (), opset: int = 28, **attributes: Any
) -> tuple[ModelProto, list[Array]]:
    """A model of one node and what it is called with. An array may be the name of one before it."""
    names = [a if isinstance(a, str) else f"x{n}" for n, a in enumerate(arrays)]
    given = {f"x{n}": a for n, a in enumerate(arrays) if not isinstance(a, str)}
    held = {f"x{n}": given.pop(f"x{n}") for n in constants}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    node = helper.make_node(operator, names, ["y"], **attributes)
    results = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([node], "g", infos, results, [numpy_helper.from_array(a, n) for n, a in held.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return model, list(given.values())


def check(operator: str, arrays: Sequence[Array | str], digits: float = 0.0, **options: Any) -> None:
    """Compiled code gives what the reference evaluator does."""
    model, feeds = of_one(operator, arrays, **options)
    names = [i.name for i in model.graph.input]
    (wanted,) = ReferenceEvaluator(model).run(None, dict(zip(names, feeds, strict=True)))
    (found,) = compiled(model)(*feeds)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=digits)


def test_where_of_one_value_three_times() -> None:
    check("Where", [np.array([True, False]), "x0", "x0"])


@pytest.mark.parametrize("bounds", [(2**63 - 1, 0, 1), (1, -(2**63), -1), (0, 2**63 - 1, 2), (-(2**63), 3, 1)])
def test_a_slice_of_the_farthest_bounds_along_an_axis_from_data(bounds: tuple[int, int, int]) -> None:
    x = np.arange(15.0).reshape(3, 5)
    start, end, step = (np.array([n]) for n in bounds)
    check("Slice", [x, start, end, np.array([1]), step], constants=(1, 2, 4))


def test_a_float_that_is_left_out_has_the_precision_of_one_in_a_file() -> None:
    x = np.array([[[0.001, 0.002, 0.004]]])
    check("InstanceNormalization", [x, np.ones(1), np.zeros(1)], 1e-13)


@pytest.mark.parametrize("equation", ["jil,->jl", ",jil->j", "jil,,->jl"])
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_sums_times_a_number(equation: str, dtype: Any) -> None:
    numbers = [np.array(n, dtype) for n in (3, -2)]
    x = np.arange(18).reshape(2, 3, 3).astype(dtype)
    terms = equation.split("->")[0].split(",")
    check("Einsum", [x if term else numbers.pop() for term in terms], equation=equation)


@pytest.mark.parametrize("x", [-0.83394784, -1.15, 1.1, 0.95, 0.2])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_cubic_samples_near_the_border(x: float, align_corners: int) -> None:
    image = np.random.default_rng(0).normal(size=(1, 1, 3, 5)).astype(np.float32)
    grid = np.array([x, 0.5711014], np.float32).reshape(1, 1, 1, 2)
    modes = {"mode": "cubic", "padding_mode": "border", "align_corners": align_corners}
    check("GridSample", [image, grid], 1e-5, **modes)


@pytest.mark.parametrize(("bias", "lambd"), [(0.5, 0.5), (-1.0, 2.5), (2.0, 0.0)])
@pytest.mark.parametrize("dtype", [np.uint16, np.int8, np.int64])
def test_shrinking_integers_by_a_fraction(dtype: Any, bias: float, lambd: float) -> None:
    check("Shrink", [np.array([0, 1, 2, 3, 4, 120]).astype(dtype)], bias=bias, lambd=lambd)
    if np.iinfo(dtype).min < 0:
        check("Shrink", [np.array([-120, -3, -2, -1]).astype(dtype)], bias=bias, lambd=lambd)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 3)])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_no_element_is_the_greatest_of_none(shape: tuple[int, int], dynamic: bool, axis: int) -> None:
    x = np.full(shape, -np.inf, np.float32)
    x[1:, :1] = 2
    model, feeds = of_one("Hardmax", [x], axis=axis)
    if dynamic:
        for n, d in enumerate(model.graph.input[0].type.tensor_type.shape.dim):
            d.dim_param = f"n{n}"
    wanted = np.zeros(shape, np.float32)
    if x.size:
        np.put_along_axis(wanted, np.expand_dims(x.argmax(axis), axis), 1, axis)
    (found,) = tw.compile(model)(*feeds)
    np.testing.assert_array_equal(found, wanted, strict=True)
