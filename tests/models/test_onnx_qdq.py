"""Models with QuantizeLinear and DequantizeLinear around float operators: products of bytes, ONNX Runtime's results."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from benchmarks.network_models.images import MOBILENET_V3_LARGE, mobilenet_v3_large
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx_runtime import session_of
from qdq_models import Network, quantized, small_network

import tilewright as tw
from drawn import LONG, in_turn
from tilewright.expr import dtypes
from tilewright.frontends.onnx import read
from tilewright.lower.graph.multiply_integers import multiply_integers
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.ops.contract import ContractAttributes
from tilewright.target import Target

pytestmark = pytest.mark.filterwarnings("ignore::tilewright.ModelWarning")
QUADS = Target.parse("x86-64-v4 +avx512vnni")


def steps(model: ModelProto) -> float:
    """The scale that the model's result is quantized by."""
    names = {t.name: t for t in model.graph.initializer}
    made_by = {n.output[0]: n for n in model.graph.node}
    node = made_by[model.graph.output[0].name]
    while node.op_type == "Identity":
        node = made_by[node.input[0]]
    return float(numpy_helper.to_array(names[node.input[1]]))


def contractions(model: ModelProto) -> list[set[str]]:
    """The element types that each contraction multiplies, where the machine adds up products of bytes."""
    after = multiply_integers(simplify_graph(read(model)), QUADS)
    return [{v.type.dtype.name for v in n.inputs} for n in after.graph.nodes if isinstance(n.attrs, ContractAttributes)]


def compare(model: ModelProto, x: np.ndarray, by: ModelProto | None = None) -> None:
    """All but a thousandth of the elements are ONNX Runtime's, and these are off by one step: those that it computes of
    this model, or `by` another one of the same numbers."""
    name = model.graph.input[0].name
    (found,), (want,) = tw.compile(model)(**{name: x}), session_of(by or model).run(None, {name: x})
    off = np.rint(np.abs(found - want) / steps(model))
    assert found.shape == want.shape and np.isfinite(found).all()
    assert off.max() <= 1 and (off > 0).mean() <= 0.001


@pytest.mark.parametrize(("per_channel", "signed"), in_turn([False, True], [False, True]))
def test_networks(signed: bool, per_channel: bool) -> None:
    pytest.importorskip("onnxruntime.quantization")
    model = quantized(small_network(), signed=signed, per_channel=per_channel)
    found = contractions(model)
    bytes_of, floats = {dtypes.u8.name, dtypes.i8.name}, {dtypes.f32.name}
    # one convolution has weights for each channel alone
    assert found.count(bytes_of) == len(found) - 1 and found.count(floats) == 1
    compare(model, np.random.default_rng(3).normal(size=(1, 3, 33, 33)).astype(np.float32))


@pytest.mark.parametrize("signed", [False, True])
def test_images(signed: bool) -> None:
    pytest.importorskip("onnxruntime.quantization")
    net = Network(np.random.default_rng(0))
    x = net.add("Relu", net.conv(net.residual("x", 8, 8), 8, 24, 3, 2))
    x = net.add("Relu", net.conv(x, 24, 32, 3, group=4))
    model = quantized(net.model(x, (2, 8, 19, 23)), signed=signed, per_channel=True)
    assert contractions(model) == [{"u8", "i8"}] * 4
    compare(model, np.random.default_rng(5).normal(size=(2, 8, 19, 23)).astype(np.float32))


DEEP = list(product([False, True], [False, True])) if LONG else [(True, True)]
"""Scales for each channel, and signed activations: every run takes these, which smaller networks take in turn."""


@pytest.mark.parametrize(("per_channel", "signed"), DEEP)
def test_a_deep_network(per_channel: bool, signed: bool) -> None:
    """A MobileNetV3 of random weights, which makes several steps of one that is rounded otherwise. Of signed
    activations ONNX Runtime computes depthwise convolutions in floats, whose sums are not exact: 16.5 for 2535 times
    0.0065088756, less than 16.4999998, is rounded to 17. The unsigned model has the same scales, zero points 128 apart
    and thus the same results, and of that one it adds up integers. So signed ones are compared with that."""
    pytest.importorskip("onnxruntime.quantization")
    net = mobilenet_v3_large(MOBILENET_V3_LARGE[:6], widths=(64, 96), size=48, classes=20)
    unsigned = quantized(net.model(), signed=False, per_channel=per_channel)
    taken = quantized(net.model(), signed=True, per_channel=per_channel) if signed else unsigned
    assert steps(taken) == steps(unsigned)
    compare(taken, np.random.default_rng(3).normal(size=(1, 3, 48, 48)).astype(np.float32), by=unsigned)


def test_layers() -> None:
    pytest.importorskip("onnxruntime.quantization")
    net = Network(np.random.default_rng(0))
    x = "x"
    for one, other in pairwise((40, 64, 24)):
        x = net.add("Relu", net.add("Add", net.add("MatMul", x, net.weight(one, other)), net.weight(other)))
    model = quantized(net.model(x, (3, 7, 40)), signed=False, per_channel=True)
    assert contractions(model) == [{"u8", "i8"}] * 2
    compare(model, np.random.default_rng(5).normal(size=(3, 7, 40)).astype(np.float32))


def test_quantized_convolutions_are_of_bytes() -> None:
    draw = np.random.default_rng(0)
    held = {
        "xs": np.float32(0.02), "xz": np.uint8(120), "w": draw.integers(-128, 128, (8, 4, 3, 3)).astype(np.int8),
        "ws": np.float32(0.01), "wz": np.int8(0), "s": np.float32(0.3), "z": np.uint8(100),
    }  # fmt: skip
    made = helper.make_node("QLinearConv", ["x", *held], ["y"], pads=[1] * 4)
    x, y = (helper.make_tensor_value_info(n, TensorProto.UINT8, (1, c, 9, 9)) for n, c in (("x", 4), ("y", 8)))
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()]
    graph = helper.make_graph([made], "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert contractions(model) == [{"u8", "i8"}]
    image = draw.integers(0, 256, (1, 4, 9, 9)).astype(np.uint8)
    (found,), (want,) = tw.compile(model)(image), session_of(model).run(None, {"x": image})
    assert np.abs(found.astype(int) - want.astype(int)).max() <= 1 and (found != want).mean() <= 0.001
