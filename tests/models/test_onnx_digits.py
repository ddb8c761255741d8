"""What random models found in the reading of operators: parity of exponents, padding beside maxima, ranks of data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tilewright as tw
from tilewright.report.errors import RuntimeFault

Array = np.ndarray[Any, Any]


def run(
    operator: str, feeds: dict[str, Array], outputs: int = 1, symbols: tuple[str, ...] = (), **attributes: Any
) -> Any:
    """The results of one node; `symbols` are the dimensions of its first input where they are not constant."""
    shapes = [symbols or list(a.shape) if n == 0 else list(a.shape) for n, a in enumerate(feeds.values())]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), shape)
        for (name, a), shape in zip(feeds.items(), shapes, strict=True)
    ]
    names = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(operator, list(feeds), names, **attributes)
    graph = helper.make_graph([node], "one", infos, [helper.make_empty_tensor_value_info(n) for n in names])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    found = tw.compile(model).run(feeds)
    return [found[n] for n in names]


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        (np.array([-0.5, 0.5, -2.0], np.float32), np.array(-25668041, np.int32)),
        (np.array([-1.001, 1.001, -1.0], np.float16), np.array([2049, 4097, 23019], np.uint16)),
        (np.array([-1.5, 1.5], np.float32), np.array([101, 16777217], np.int64)),
        (np.array([100000, -3], np.int32), np.array([1, 2], np.float16)),
        (np.array([3, -3, 2], np.int8), np.array([200, 201, 7], np.int32)),
        (np.array([-4450835082077976253], np.int64), np.array([1], np.uint64)),
    ],
)
def test_a_power_keeps_the_digits_of_base_and_exponent(base: Array, exponent: Array) -> None:
    """In f64, and of integers to integer powers modulo 2^bits."""
    if base.dtype.kind == "i" and exponent.dtype.kind in "iu":
        bits = base.dtype.itemsize * 8
        powers = [
            pow(int(b), int(e), 1 << bits) for b, e in zip(base, np.broadcast_to(exponent, base.shape), strict=True)
        ]
        wanted = np.array(powers, np.uint64).astype(f"u{bits // 8}").view(base.dtype)
    else:
        with np.errstate(over="ignore"):
            wanted = np.power(base.astype(np.float64), exponent.astype(np.float64)).astype(base.dtype)
    (found,) = run("Pow", {"x": base, "y": exponent})
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if base.dtype == np.float16 else 1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_index_of_a_maximum_is_that_of_an_element_where_padding_equals_it(dtype: type) -> None:
    least = 0 if dtype is np.uint8 else -np.inf
    x = np.full((1, 1, 3, 2), least, dtype)
    values, places = run("MaxPool", {"x": x}, 2, kernel_shape=[2, 1], pads=[1, 0, 1, 0])
    assert (values == least).all()
    assert places.reshape(-1).tolist() == [0, 1, 0, 1, 2, 3, 4, 5]


def test_squeeze_without_axes_refuses_a_dynamic_dimension_of_one() -> None:
    """ONNX leaves it out, and the rank of a result cannot depend on the call."""
    (found,) = run("Squeeze", {"x": np.ones((3, 1), np.float32)}, symbols=("n", 1))  # type: ignore[arg-type]
    assert found.shape == (3,)
    with pytest.raises(RuntimeFault, match="Squeeze without axes of dimension 0"):
        run("Squeeze", {"x": np.ones((1, 1), np.float32)}, symbols=("n", 1))  # type: ignore[arg-type]
