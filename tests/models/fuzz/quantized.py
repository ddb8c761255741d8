"""Recipes of quantization, and of products of quantized tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from fuzz.drawing import NARROW, Array, Draw, numpy_type
from fuzz.elements import Style, elements
from fuzz.pointwise import finite
from fuzz.products import image, window
from fuzz.recipes import recipe

BYTES = ("int8", "uint8")


def scales(d: Draw, dtype: Any, shape: list[int]) -> str:
    """Scales above zero, many of them powers of two: quotients are exact, and halves are ties."""
    drawn = d.pick((np.array([0.25, 0.5, 1.0, 2.0]), np.array([0.1, 0.37, 1.3])))
    return d.give(np.asarray(d.numbers.choice(drawn, shape)).astype(dtype), 0.6, False)


def whole(d: Draw, dtype: Any, shape: list[int], low: int = -20, high: int = 20) -> Array:
    info = np.iinfo(dtype)
    return np.asarray(d.numbers.integers(max(low, info.min), min(high, info.max) + 1, shape)).astype(dtype)


def parameters(d: Draw, x: str) -> tuple[list[int], dict[str, Any]]:
    """The shape of scales, and the attributes that go with it: one, one for each place of an axis, or of each block."""
    shape = list(d.values[x].shape)
    if not shape or d.maybe(0.45):
        return [], {}
    axis = d.axis(len(shape))
    if d.opset >= 21 and d.maybe(0.35) and shape[axis]:
        block = d.pick([n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0])
        shape[axis] //= block
        return shape, {"axis": axis, "block_size": block}
    return [shape[axis]], {"axis": axis}


@recipe(2)
def quantize(d: Draw) -> None:
    x = d.take(("float32", "float32", "float32", "float16"), (0, 4), finite)
    shape, attributes = parameters(d, x)
    kinds = ["int8", "uint8"]
    if d.opset >= 19:
        kinds += [t for t in NARROW if t.startswith("float8")]
    if d.opset >= 21:
        kinds += ["int16", "uint16", "int4", "uint4"]
    kind = d.pick(kinds)
    to = numpy_type(kind)
    inputs = [x, scales(d, d.values[x].dtype, shape)]
    if kind.startswith("float8") or d.maybe(0.75):
        values = np.zeros(shape) if "float" in kind else d.numbers.integers(0, 4, shape)
        inputs.append(d.give(np.asarray(values).astype(to), 1.0))
    elif d.opset >= 21:
        attributes["output_dtype"] = int(helper.np_dtype_to_tensor_dtype(to))
    if kind.startswith("float8"):
        attributes |= d.some(saturate=d.pick((0, 1)))
    d.node("QuantizeLinear", inputs, attributes)


@recipe(2)
def dequantize(d: Draw) -> None:
    kinds = (*BYTES, "int32", *(NARROW if d.opset >= 21 else ()))
    known = [n for n, a in d.values.items() if a.dtype.name in kinds and a.ndim <= 4]
    x = d.pick(known) if known and d.maybe(0.8) else d.new(BYTES, rank=(0, 4))
    dtype = d.values[x].dtype
    shape, attributes = parameters(d, x)
    kind = d.pick(("float32", "float32", "float16")) if d.opset >= 19 else "float32"
    inputs = [x, scales(d, numpy_type(kind), shape)]
    if dtype.name in BYTES and d.maybe(0.6):
        inputs.append(d.give(whole(d, dtype, shape), 0.7, False))
    elif dtype.name not in (*BYTES, "int32") and d.maybe(0.4):
        inputs.append(d.give(np.zeros(shape).astype(dtype), 1.0))
    d.node("DequantizeLinear", inputs, attributes)


@recipe()
def dynamic_quantize(d: Draw) -> None:
    x = d.take(("float32",), (1, 4), lambda a: finite(a) and a.size > 0 and bool(np.ptp(a.astype(np.float64)) < 1e6))
    d.node("DynamicQuantizeLinear", [x], {}, 3)


@recipe(2)
def mat_mul_integer(d: Draw) -> None:
    m, n, k = (d.chance.choice((1, 2, 3, 5, 8, 13)) for _ in range(3))
    batch = d.shape(d.pick((0, 0, 1)))
    x, y = d.new(BYTES, [*batch, m, k], style=Style.EXTREME), d.new(BYTES, [k, n], style=Style.EXTREME)
    inputs = [x, y]
    if d.maybe(0.6):
        inputs.append(d.give(whole(d, d.values[x].dtype, []), 0.7, False))
        if d.maybe(0.7):
            inputs.append(d.give(whole(d, d.values[y].dtype, d.pick(([], [n]))), 0.7, False))
    d.node("MatMulInteger", inputs)


@recipe(2)
def quantized_mat_mul(d: Draw) -> None:
    m, n, k = (d.chance.choice((1, 2, 3, 5, 8, 13)) for _ in range(3))
    x, y = d.new(BYTES, [m, k], style=Style.NORMAL), d.new(BYTES, [k, n], style=Style.NORMAL)
    inputs: list[str] = []
    columns = [n] if d.maybe(0.3) else []
    for one, shape in ((x, []), (y, columns)):
        inputs += [one, scales(d, np.float32, shape), d.give(whole(d, d.values[one].dtype, shape), 0.7, False)]
    inputs += [scales(d, np.float32, []), d.give(whole(d, d.pick(BYTES), []), 0.7, False)]
    d.node("QLinearMatMul", inputs)


@recipe(2)
def quantized_conv(d: Draw) -> None:
    n = d.pick((1, 2, 2))
    kernel = [d.pick((1, 2, 3)) for _ in range(n)]
    groups = d.pick((1, 1, 2))
    per, out = d.pick((1, 2, 3)), groups * d.pick((1, 2))
    x = d.new(BYTES, image(d, n, groups * per), style=Style.NORMAL)
    kind = "uint8" if d.maybe() else "int8"
    weights = elements(d.numbers, np.dtype(kind), [out, per, *kernel], Style.NORMAL)
    w = d.give(weights, 0.7, False)
    attributes = window(d, kernel) | {"kernel_shape": kernel} | ({"group": groups} if groups > 1 else {})
    x_zero = d.give(whole(d, d.values[x].dtype, []), 0.7, False)
    if d.maybe(0.4):
        zeros = [x_zero] if d.maybe(0.5) else [x_zero, d.give(whole(d, kind, []), 0.7, False)]
        d.node("ConvInteger", [x, w, *(zeros if d.maybe(0.8) else [])], attributes)
        return
    along = d.pick(([], [out]))
    inputs = [x, scales(d, np.float32, []), x_zero, w, scales(d, np.float32, along)]
    inputs.append(d.give(np.zeros(along, kind) if kind == "int8" else whole(d, kind, along), 0.7, False))
    inputs += [scales(d, np.float32, []), d.give(whole(d, d.pick(BYTES), []), 0.7, False)]
    if d.maybe():
        inputs.append(d.give(whole(d, np.int32, [out], -300, 300), 0.7, False))
    d.node("QLinearConv", inputs, attributes)
