"""Products of dequantized factors on their bytes: what becomes of a graph, that it computes the same, what stays."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tilewright.expr import dtypes
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module, Value
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.multiply_integers import multiply_integers
from tilewright.lower.graph.multiply_whole import multiply_whole
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.pad import PadMode
from tilewright.target import Target
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]

TARGET = Target.parse("x86-64-v4 +avx512vnni")
PRODUCT = "ik,kj->ij"
CONVOLUTION = "n c i+a j+b, o c a b -> n o i j"


def draw(dtype: dtypes.DType, *shape: int) -> Array:
    return np.random.default_rng(shape).integers(dtype.min, dtype.max, shape, dtype.numpy, endpoint=True)


def dequantize(g: GraphBuilder, x: Value, zero: int, scale: Value) -> Value:
    wide = g.op("cast", x, dtype=dtypes.i32)
    centred = g.op("sub", wide, g.scalar(zero, dtypes.i32)) if zero else wide
    return g.op("mul", g.op("cast", centred, dtype=dtypes.f32), scale)


def product(
    shape: tuple[int, ...],
    weights: Array,
    *,
    spec: str = PRODUCT,
    dtype: dtypes.DType = dtypes.u8,
    zero: int = 0,
    scales: Array | None = None,
    pad: int = 0,
    fill: float = 0.0,
    sizes: tuple[tuple[str, int], ...] = (),
) -> Module:
    """A contraction of a dequantized parameter x with dequantized weights."""
    g = GraphBuilder("main")
    x = g.param("x", TensorType.of(dtype, shape))
    factor = dequantize(g, x, zero, g.scalar(0.1, dtypes.f32))
    if pad:
        around = (0, 0, pad, pad)
        factor = g.op("pad", factor, g.scalar(fill, dtypes.f32), low=around, high=around, mode=PadMode.CONSTANT)
    scale = g.scalar(0.05, dtypes.f32) if scales is None else g.constant("t", scales)
    other = dequantize(g, g.constant("w", weights), 0, scale)
    return simplify_graph(g.module({"y": g.op("contract", factor, other, spec=spec, sizes=sizes, dtype=None)}))


def on_bytes(module: Module, target: Target = TARGET) -> Module:
    return eliminate_dead(multiply_integers(module, target))


def check(module: Module, x: Array) -> Module:
    """The module after the pass, whose only contraction is of unsigned by signed bytes and which computes the same."""
    after = on_bytes(module)
    verify(after)
    (node,) = [n for n in after.graph.nodes if isinstance(n.attrs, ContractAttributes)]
    assert [v.type.dtype for v in node.inputs] == [dtypes.u8, dtypes.i8]
    (found,), (want,) = (list(evaluate(m, {"x": x}).values()) for m in (after, module))
    assert found.dtype == want.dtype
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(want).max()))
    return after


@pytest.mark.parametrize(("dtype", "zero"), [(dtypes.u8, 0), (dtypes.u8, 131), (dtypes.i8, 0), (dtypes.i8, -7)])
@pytest.mark.parametrize("each", [False, True])
def test_products(dtype: dtypes.DType, zero: int, each: bool) -> None:
    scales = np.linspace(0.01, 0.1, 5, dtype=np.float32) if each else None
    module = product((3, 8), draw(dtypes.i8, 8, 5), dtype=dtype, zero=zero, scales=scales)
    check(module, draw(dtype, 3, 8))


@pytest.mark.parametrize(("dtype", "zero"), [(dtypes.u8, 100), (dtypes.i8, 3)])
def test_padding_is_of_the_zero_point(dtype: dtypes.DType, zero: int) -> None:
    sizes, scales = (("i", 6), ("j", 5)), np.linspace(0.01, 0.1, 7, dtype=np.float32).reshape(7, 1, 1, 1)
    weights = draw(dtypes.i8, 7, 4, 3, 3)
    options: dict[str, Any] = {"spec": CONVOLUTION, "dtype": dtype, "zero": zero, "sizes": sizes, "pad": 1}
    after = check(product((2, 4, 6, 5), weights, scales=scales, **options), draw(dtype, 2, 4, 6, 5))
    assert [n.inputs[0].type.dtype for n in after.graph.nodes if n.op.name == "pad"] == [dtypes.u8]


@pytest.mark.parametrize(("dtype", "zero"), [(dtypes.u8, 100), (dtypes.i8, 3)])
@pytest.mark.parametrize("pad", [0, 1])
def test_channels_that_an_instruction_lacks_are_zeros(dtype: dtypes.DType, zero: int, pad: int) -> None:
    """Three channels, or two, become four, before the image is padded."""
    for channels in (2, 3):
        options: dict[str, Any] = {"sizes": (("i", 4 + 2 * pad), ("j", 3 + 2 * pad)), "pad": pad}
        module = product(
            (2, channels, 6, 5), draw(dtypes.i8, 7, channels, 3, 3), spec=CONVOLUTION, dtype=dtype, zero=zero, **options
        )
        after = check(module, draw(dtype, 2, channels, 6, 5))
        (node,) = [n for n in after.graph.nodes if isinstance(n.attrs, ContractAttributes)]
        assert [v.type.static_shape() for v in node.inputs] == [(2, 4, 6 + 2 * pad, 5 + 2 * pad), (7, 4, 3, 3)]


@pytest.mark.parametrize("zero", [0, 77])
@pytest.mark.parametrize("exact", [True, False])
def test_a_bias_of_integers_and_a_quotient_are_part_of_constants(zero: int, exact: bool) -> None:
    """(x @ w + b) / 0.3 is one sum of integers and one product, where b is integers times the product's scales."""
    scales = np.linspace(0.01, 0.1, 5, dtype=np.float32)
    step = scales * np.float32(0.1)
    numbers = np.asarray([3, -200, 0, 100000, 7])
    bias = numbers.astype(np.float32) * step if exact else (numbers + np.float32(0.5)) * step
    g = GraphBuilder("main")
    x = g.param("x", TensorType.of(dtypes.u8, (3, 8)))
    w = dequantize(g, g.constant("w", draw(dtypes.i8, 8, 5)), 0, g.constant("t", scales))
    y = g.op("contract", dequantize(g, x, zero, g.scalar(0.1, dtypes.f32)), w, spec=PRODUCT, dtype=None)
    y = g.op("add", g.constant("b", bias.astype(np.float32)[None]), y)
    module = simplify_graph(g.module({"y": g.op("div", y, g.scalar(0.3, dtypes.f32))}))
    after = check(module, draw(dtypes.u8, 3, 8))
    made = [n.op.name for n in after.graph.nodes if n.op.name not in ("constant", "full")]
    if exact:
        assert made == ["contract", "sub", "cast", "mul"]
    else:
        assert made == ["contract", *["sub"] * (zero > 0), "cast", "mul", "add", "div"]


def test_a_bias_that_sums_of_i32_have_no_room_for_stays() -> None:
    g = GraphBuilder("main")
    x = g.param("x", TensorType.of(dtypes.u8, (3, 8)))
    w = dequantize(g, g.constant("w", draw(dtypes.i8, 8, 5)), 0, g.scalar(0.5, dtypes.f32))
    y = g.op("contract", dequantize(g, x, 0, g.scalar(0.5, dtypes.f32)), w, spec=PRODUCT, dtype=None)
    bias = g.constant("b", np.full((1, 5), np.float32(2**31 - 128) / 4, np.float32))
    after = check(simplify_graph(g.module({"y": g.op("add", y, bias)})), draw(dtypes.u8, 3, 8))
    assert "add" in [n.op.name for n in after.graph.nodes]


def test_integers_less_their_zero_point() -> None:
    g = GraphBuilder("main")
    x = g.param("x", TensorType.of(dtypes.u8, (3, 8)))
    centred = g.op("sub", g.op("cast", x, dtype=dtypes.i16), g.scalar(9, dtypes.i16))
    w = g.constant("w", draw(dtypes.i8, 8, 5))
    module = g.module({"y": g.op("contract", centred, w, spec=PRODUCT, dtype=dtypes.i32)})
    check(module, draw(dtypes.u8, 3, 8))


def test_what_stays() -> None:
    """Scales along the sum, weights that i8 has not, sums that i32 has not, one channel, which with three of zeros
    takes as long as in floats, weights of each channel's own, padding that is no zero; machines without such an
    instruction."""
    w = draw(dtypes.i8, 8, 5)
    long = np.full((70000, 1), -128, np.int8)
    few: dict[str, Any] = {"spec": CONVOLUTION, "sizes": (("i", 4), ("j", 4))}
    own: dict[str, Any] = {"spec": "n c i+a j+b, c a b -> n c i j", "sizes": (("i", 4), ("j", 4))}
    for module in (
        product((3, 8), w, scales=np.linspace(0.01, 0.1, 8, dtype=np.float32).reshape(8, 1)),
        product((3, 8), w.astype(np.int32) * 2),
        product((3, 70000), long),
        product((1, 1, 6, 6), draw(dtypes.i8, 5, 1, 3, 3), **few),
        product((1, 8, 6, 6), draw(dtypes.i8, 8, 3, 3), **own),
        product((1, 8, 4, 4), draw(dtypes.i8, 5, 8, 3, 3), pad=1, fill=1.0, **few),
    ):
        assert multiply_integers(module, TARGET) is module
    for name in ("x86-64-v2", "x86-64-v3"):
        target = Target.parse(name)
        module = product((3, 8), w)
        assert multiply_integers(module, target) is module


def test_signed_bytes_stay_signed_where_these_are_multiplied() -> None:
    x = draw(dtypes.i8, 3, 8)
    module = product((3, 8), draw(dtypes.i8, 8, 5), dtype=dtypes.i8, zero=5)
    after = on_bytes(module, Target.parse("aarch64 +dotprod"))
    (node,) = [n for n in after.graph.nodes if isinstance(n.attrs, ContractAttributes)]
    assert [v.type.dtype for v in node.inputs] == [dtypes.i8, dtypes.i8]
    np.testing.assert_allclose(evaluate(after, {"x": x})["y"], evaluate(module, {"x": x})["y"], rtol=1e-5, atol=1e-3)


def test_factors_that_both_come_from_outside_stay() -> None:
    g = GraphBuilder("main")
    x, y = (g.param(name, TensorType.of(dtypes.u8, shape)) for name, shape in (("x", (3, 8)), ("y", (8, 5))))
    left, right = (dequantize(g, v, 3, g.scalar(0.1, dtypes.f32)) for v in (x, y))
    module = g.module({"z": g.op("contract", left, right, spec=PRODUCT, dtype=None)})
    assert multiply_integers(module, TARGET) is module


@pytest.mark.parametrize(("dtype", "zero"), [(dtypes.u8, 131), (dtypes.i8, -7)])
@pytest.mark.parametrize("own", [False, True])
def test_products_that_stay_floats_are_of_whole_numbers(dtype: dtypes.DType, zero: int, own: bool) -> None:
    """Sums are exact: they are those of integers, scaled once. `own` weights are of each channel alone."""
    weights = draw(dtypes.i8, *((8, 3, 3) if own else (7, 8, 3, 3)))
    spec = "n c i+a j+b, c a b -> n c i j" if own else CONVOLUTION
    scales = np.linspace(0.01, 0.1, len(weights), dtype=np.float32).reshape(-1, *[1] * (weights.ndim - 1))
    sizes = (("i", 6), ("j", 5))
    module = product((2, 8, 6, 5), weights, spec=spec, dtype=dtype, zero=zero, scales=scales, sizes=sizes, pad=1)
    after = multiply_whole(module)
    verify(after)
    x = draw(dtype, 2, 8, 6, 5)
    centred = np.pad(x.astype(np.int64) - zero, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(centred, (3, 3), (2, 3))
    sums = np.einsum("ncijab,cab->ncij" if own else "ncijab,ocab->noij", windows, weights.astype(np.int64))
    want = sums.astype(np.float32) * (scales.reshape(-1, 1, 1) * np.float32(0.1))
    assert np.array_equal(evaluate(after, {"x": x})["y"], want)
    assert not np.array_equal(evaluate(module, {"x": x})["y"], want)


def test_what_is_no_product_of_whole_numbers_stays() -> None:
    """Scales along the sum, weights that i8 has not, padding that is no zero."""
    few: dict[str, Any] = {"spec": CONVOLUTION, "sizes": (("i", 4), ("j", 4))}
    for module in (
        product((3, 8), draw(dtypes.i8, 8, 5), scales=np.linspace(0.01, 0.1, 8, dtype=np.float32).reshape(8, 1)),
        product((3, 8), draw(dtypes.i8, 8, 5).astype(np.int32) * 2),
        product((1, 8, 4, 4), draw(dtypes.i8, 5, 8, 3, 3), pad=1, fill=1.0, **few),
    ):
        assert multiply_whole(module) is module


def test_branches_that_nothing_uses_go_while_products_are_rewritten() -> None:
    """A function that an earlier one's change left out is not looked for."""
    unused = parse_module("""
graph main(b: bool[], z: f32[3]) -> t as y:
  t: f32[3] = if(b, z, then="double", otherwise="same")

graph double(z: f32[3]) -> s as y:
  s: f32[3] = add(z, z)

graph same(z: f32[3]) -> s as y:
  s: f32[3] = neg(z)
""")
    module = product((3, 8), draw(dtypes.i8, 8, 5))
    graph = module.graph.replace(
        params=(*module.graph.params, *unused.graph.params), nodes=(*unused.graph.nodes, *module.graph.nodes)
    )
    made = multiply_integers(dataclasses.replace(module, functions={**unused.functions, "main": graph}), TARGET)
    assert list(made.functions) == ["main"]
