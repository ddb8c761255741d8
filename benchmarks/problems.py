"""Contractions as problems that every engine can solve: an ONNX model, arrays to feed it, and the right result.

The right result is computed by NumPy in f64 from the same numbers, exactly for integers. A result of f32 may differ
from it by `ROUNDING` times the number of products summed: numbers are between -1 and 1, and the factor leaves room for
sums in any order and for the transforms of Winograd's convolutions, but a single product that is missing or wrong
shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.layers import Layer

Array = np.ndarray[Any, Any]

ROUNDING = 16 * 2.0**-24
BF16_ROUNDING = 2.0**-7


class WrongResult(Exception):
    """An engine computed something else than NumPy."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What all engines get. `operands` are the two matrices of a matrix product, for engines that take no ONNX."""

    name: str
    model: bytes
    feeds: dict[str, Array]
    expected: Array
    tolerance: Array | float
    flops: float
    operands: tuple[Array, Array] | None = None

    def check(self, engine: str, result: Array) -> None:
        """Raises WrongResult unless `result` is right."""
        if result.shape != self.expected.shape:
            raise WrongResult(f"{engine}, {self.name}: shape {result.shape} instead of {self.expected.shape}")
        distance = np.abs(result.astype(np.float64) - self.expected)
        wrong = ~(distance <= self.tolerance)
        if wrong.any():
            at = tuple(int(i) for i in np.unravel_index(np.argmax(wrong), wrong.shape))
            raise WrongResult(
                f"{engine}, {self.name}: {int(wrong.sum())} of {wrong.size} elements are wrong, "
                f"at {at} {result[at]} instead of {self.expected[at]}"
            )


def matmul(name: str, m: int, n: int, k: int, dtype: str = "f32", constant: bool = True) -> Problem:
    """An M×K matrix times a K×N matrix, the second one constant or an input. `dtype` is f32, bf16 or i8 (to i32)."""
    rng = np.random.default_rng(0)
    a, b = (_draw(rng, shape, dtype) for shape in ((m, k), (k, n)))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    tolerance: Array | float = 0.0
    if dtype != "i8":
        tolerance = ROUNDING * k
    if dtype == "bf16":
        tolerance = tolerance + BF16_ROUNDING * np.abs(expected)
    operation, result = ("MatMulInteger", np.dtype(np.int32)) if dtype == "i8" else ("MatMul", a.dtype)
    feeds = {"a": a} if constant else {"a": a, "b": b}
    weights = {"b": b} if constant else {}
    model = make_model(operation, ("a", "b"), feeds, weights, expected.shape, result)
    return Problem(name, model, feeds, expected, tolerance, 2.0 * m * n * k, (a, b))


def convolution(name: str, layer: Layer) -> Problem:
    """A layer over one image, f32, with constant weights and bias."""
    rng = np.random.default_rng(0)
    x = _draw(rng, (1, layer.inputs, layer.size, layer.size), "f32")
    w = _draw(rng, (layer.outputs, layer.inputs // layer.groups, layer.kernel, layer.kernel), "f32")
    bias = _draw(rng, (layer.outputs,), "f32")
    expected = convolve(x[0], w, bias, layer)[None]
    attributes = {
        "kernel_shape": [layer.kernel] * 2,
        "strides": [layer.stride] * 2,
        "pads": [layer.padding] * 4,
        "group": layer.groups,
    }
    model = make_model(
        "Conv", ("x", "w", "bias"), {"x": x}, {"w": w, "bias": bias}, expected.shape, x.dtype, attributes
    )
    summed = layer.weights // layer.outputs + 1
    return Problem(name, model, {"x": x}, expected, ROUNDING * summed, 2.0 * layer.multiply_adds)


def convolve(x: Array, w: Array, bias: Array, layer: Layer) -> Array:
    """The convolution of channels × height × width by its definition, in f64: a sum over the kernel's places."""
    pad, stride, size = layer.padding, layer.stride, layer.result_size
    padded = np.pad(x.astype(np.float64), ((0, 0), (pad, pad), (pad, pad)))
    kernels = w.astype(np.float64).reshape(layer.groups, -1, *w.shape[1:])
    total = np.zeros((layer.groups, kernels.shape[1], size * size))
    end = (size - 1) * stride + 1
    for i in range(layer.kernel):
        for j in range(layer.kernel):
            seen = padded[:, i : i + end : stride, j : j + end : stride]
            total += kernels[..., i, j] @ seen.reshape(layer.groups, -1, size * size)
    return total.reshape(layer.outputs, size, size) + bias.astype(np.float64)[:, None, None]


def make_model(
    operation: str,
    operands: tuple[str, ...],
    feeds: dict[str, Array],
    weights: dict[str, Array],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    attributes: dict[str, Any] | None = None,
) -> bytes:
    """An ONNX model of one operator: its operands are inputs where they are fed, else constants."""
    from onnx import helper, numpy_helper

    def port(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)

    graph = helper.make_graph(
        [helper.make_node(operation, operands, ["y"], **(attributes or {}))],
        "contraction",
        [port(name, array.dtype, array.shape) for name, array in feeds.items()],
        [port("y", dtype, shape)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype == "i8":
        return rng.integers(-128, 128, shape, dtype=np.int8)
    drawn = rng.uniform(-1, 1, shape).astype(np.float32)
    return drawn.astype(ml_dtypes.bfloat16) if dtype == "bf16" else drawn
