"""Quantized models in the form of QuantizeLinear and DequantizeLinear around float operators, as the tool of ONNX
Runtime makes them of a float model and of data."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


@dataclass
class Network:
    """A convolutional network while it is built, of random weights; each method returns the name of its result."""

    draw: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The result of another node."""
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [name], name, **attributes))
        return name

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        """A constant, normal with a deviation that keeps the size of what is multiplied."""
        fan = int(np.prod(shape[1:])) or 1
        array = self.draw.normal(0, scale * (2 / fan) ** 0.5, shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return str(self.weights[-1].name)

    def conv(self, x: str, channels: int, made: int, window: int = 3, stride: int = 1, group: int = 1) -> str:
        """A convolution with its bias, padded so that strides alone make the result smaller."""
        w, bias = self.weight(made, channels // group, window, window), self.weight(made, scale=0.1)
        sides = {"pads": [window // 2] * 4, "strides": [stride, stride], "group": group}
        return self.add("Conv", x, w, bias, kernel_shape=[window, window], **sides)

    def residual(self, x: str, channels: int, made: int, stride: int = 1) -> str:
        """Two convolutions, to which what comes in is added."""
        inner = self.add("Relu", self.conv(x, channels, made, 3, stride))
        y = self.conv(inner, made, made)
        short = x if channels == made and stride == 1 else self.conv(x, channels, made, 1, stride)
        return self.add("Relu", self.add("Add", y, short))

    def separable(self, x: str, channels: int, made: int) -> str:
        """A depthwise convolution, then one of single pixels."""
        inner = self.add("Relu", self.conv(x, channels, channels, group=channels))
        return self.add("Relu", self.conv(inner, channels, made, 1))

    def classify(self, x: str, channels: int, classes: int) -> str:
        """The mean of each channel, then a layer of all of them."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        return self.add("Gemm", flat, self.weight(classes, channels), self.weight(classes), transB=1)

    def model(self, result: str, shape: tuple[int, ...]) -> ModelProto:
        """The model of one image."""
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def small_network() -> ModelProto:
    """Residual and separable blocks, a pool and branches that are joined."""
    net = Network(np.random.default_rng(0))
    x = net.add("Relu", net.conv("x", 3, 16, stride=2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = net.residual(net.residual(x, 16, 16), 16, 32, 2)
    x = net.separable(x, 32, 48)
    x = net.add("Concat", x, net.conv(x, 48, 16, 1), axis=1)
    return net.model(net.classify(x, 64, 10), (1, 3, 33, 33))


class _Samples:
    """Inputs for calibration, one after another."""

    def __init__(self, arrays: Iterable[Mapping[str, Array]]) -> None:
        self._rest = iter(arrays)

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._rest, None)


def quantized(model: ModelProto, *, signed: bool, per_channel: bool) -> ModelProto:
    """The model with weights of signed bytes, and activations of signed or unsigned ones."""
    from onnxruntime import quantization  # a peer of the tests, which they skip without

    info = model.graph.input[0]
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    draw = np.random.default_rng(1)
    samples = [{info.name: draw.normal(size=shape).astype(np.float32)} for _ in range(4)]
    bytes_of = quantization.QuantType
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quantized.onnx"
        quantization.quantize_static(
            model,
            path,
            _Samples(samples),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=bytes_of.QInt8 if signed else bytes_of.QUInt8,
            weight_type=bytes_of.QInt8,
        )
        return onnx.load(path)
