"""A small builder of ONNX graphs with random weights, which makes the nodes that exporters of frameworks make.

A `Graph` knows the shape of each of its values, so it counts its parameters and the arithmetic of its contractions
while it is built. Weights are drawn when `model` is called, from the graph's seed; each is scaled by the number of
products that its contraction sums, and by the mean square that the activation before leaves of 1, so that values stay
of order 1 through any depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
OPSET = 17

LINEAR, RELU, SWISH, GELU = 1.0, 2.0, 2.4, 2.35
"""What a contraction's weights are scaled by, in squares, after no activation or these: one over E[f(x)²], x normal."""
GATE = 4.0
"""The same after a product with a gate of about a half."""
BLOCK = 32
"""Numbers of 4 bits that share a scale, as ONNX Runtime's tool has them where nothing else is asked for."""
MEAN_SQUARE = sum((code - 8) ** 2 for code in range(16)) / 16
"""Of random numbers of 4 bits, which are less by 8 than their codes."""
MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the graph."""

    name: str
    shape: tuple[int, ...]


class Graph:
    """Nodes appended one after another, with the feeds of the inputs; `end` names the results."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name, self.seed = name, seed
        self.flops = 0.0
        """Two for each multiply-add of a contraction."""
        self.parameters = 0
        self.weight_bytes = 0
        """Of all parameters as the file has them."""
        self.feeds: dict[str, Array] = {}
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        self._symbols: dict[str, Mapping[int, str]] = {}
        self._constants: dict[str, Callable[[np.random.Generator], Array]] = {}

    # Values

    def image(self, channels: int, size: int) -> Value:
        """An input of one image."""
        return self.numbers("image", 1, channels, size, size)

    def numbers(self, name: str, *shape: int) -> Value:
        """An input of f32 numbers of mean square 1."""
        return self._input(name, self._random.standard_normal(shape, dtype=np.float32))

    def tokens(self, name: str, count: int, bound: int) -> Value:
        """An input of int64 ids below `bound`, for a batch of one."""
        return self._input(name, self._random.integers(0, bound, (1, count)))

    def mask(self, name: str, count: int, kept: int) -> Value:
        """An input of int64 that marks the first `kept` of `count` tokens."""
        return self._input(name, np.reshape((np.arange(count) < kept).astype(np.int64), (1, count)))

    def _input(self, name: str, array: Array) -> Value:
        self.feeds[name] = array
        self._inputs.append(Value(name, array.shape))
        return self._inputs[-1]

    def name_dimensions(self, value: Value, names: Mapping[int, str]) -> None:
        """Declares dimensions of an input, or of a value that becomes a result, as symbols: the model takes any size,
        and the one that the value has is that of the feeds."""
        self._symbols[value.name] = names

    def weight(self, *shape: int, square: float = 1.0, mean: float = 0.0) -> Value:
        """A parameter: random numbers of this mean square around their mean."""
        bound = math.sqrt(3 * square)

        def draw(random: np.random.Generator) -> Array:
            numbers = random.random(shape, dtype=np.float32)
            numbers *= np.float32(2 * bound)
            numbers += np.float32(mean - bound)
            return numbers

        self.parameters += math.prod(shape)
        return self._held(draw, shape, 4)

    def _held(self, draw: Callable[[np.random.Generator], Array], shape: Sequence[int], each: int) -> Value:
        """Weights of so many bytes each, as they are drawn."""
        self.weight_bytes += each * math.prod(shape)
        name = f"weight_{len(self._constants)}"
        self._constants[name] = draw
        return Value(name, tuple(shape))

    def bias(self, count: int) -> Value:
        return self.weight(count, square=0.01)

    def constant(self, array: Array) -> Value:
        """A value that is no parameter: a shape, a scalar, a mask."""
        name = f"constant_{len(self._constants)}"
        self._constants[name] = lambda random: array
        return Value(name, array.shape)

    def scalar(self, number: float) -> Value:
        return self.constant(np.array(number, np.float32))

    def integers(self, numbers: int | Sequence[int]) -> Value:
        """A constant of int64."""
        return self.constant(np.array(numbers, np.int64))

    # Nodes

    def node(self, kind: str, inputs: Sequence[Value], shape: Sequence[int], **attributes: Any) -> Value:
        """A node with one result of this shape."""
        (result,) = self.split(kind, inputs, [shape], **attributes)
        return result

    def split(
        self, kind: str, inputs: Sequence[Value], shapes: Sequence[Sequence[int]], **attributes: Any
    ) -> list[Value]:
        """A node with a result for each of the shapes."""
        label = f"{kind}_{len(self._nodes)}"
        names = [label if n == 0 else f"{label}_{n}" for n in range(len(shapes))]
        self._nodes.append(helper.make_node(kind, [v.name for v in inputs], names, name=label, **attributes))
        return [Value(name, tuple(shape)) for name, shape in zip(names, shapes, strict=True)]

    def apply(self, kind: str, *inputs: Value, **attributes: Any) -> Value:
        """An elementwise node; shapes are broadcast."""
        return self.node(kind, inputs, np.broadcast_shapes(*(v.shape for v in inputs)), **attributes)

    def reshape(self, x: Value, *shape: int) -> Value:
        """The same numbers in another shape, of which 0 is what x has there, and -1 what is left over."""
        sizes = [size or x.shape[n] for n, size in enumerate(shape)]
        known = math.prod(size for size in sizes if size >= 0)
        sizes = [math.prod(x.shape) // known if size < 0 else size for size in sizes]
        return self.node("Reshape", [x, self.integers(shape)], sizes)

    def transpose(self, x: Value, *order: int) -> Value:
        return self.node("Transpose", [x], [x.shape[axis] for axis in order], perm=order)

    def flatten(self, x: Value) -> Value:
        return self.node("Flatten", [x], [x.shape[0], math.prod(x.shape[1:])], axis=1)

    def gather(self, table: Value, ids: Value, axis: int = 0) -> Value:
        shape = [*table.shape[:axis], *ids.shape, *table.shape[axis + 1 :]]
        return self.node("Gather", [table, ids], shape, axis=axis)

    def mean_of_image(self, x: Value) -> Value:
        return self.node("GlobalAveragePool", [x], [*x.shape[:2], 1, 1])

    def softmax(self, x: Value) -> Value:
        return self.node("Softmax", [x], x.shape, axis=-1)

    def normalise(self, x: Value, epsilon: float = 1e-5) -> Value:
        """LayerNormalization over the last axis, with scale and bias."""
        width = x.shape[-1]
        inputs = [x, self.weight(width, square=0.01, mean=1.0), self.bias(width)]
        return self.node("LayerNormalization", inputs, x.shape, axis=-1, epsilon=epsilon)

    # Contractions

    def matmul(self, a: Value, b: Value) -> Value:
        shape = [*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]]
        self.flops += 2.0 * math.prod(shape) * a.shape[-1]
        return self.node("MatMul", [a, b], shape)

    def packed(self, x: Value, outputs: int, scale: float = LINEAR) -> Value:
        """A linear layer whose weights are numbers of 4 bits, with a scale for each block of BLOCK: MatMulNBits."""
        width = x.shape[-1]
        blocks = -(-width // BLOCK)
        codes, scales = (outputs, blocks, BLOCK // 2), (outputs, blocks)
        each = math.sqrt(scale / width / MEAN_SQUARE)
        self.parameters += outputs * width
        inputs = [
            self._held(lambda random: random.integers(0, 256, codes, np.uint8), codes, 1),
            self._held(lambda random: np.full(scales, each, np.float32), scales, 4),
        ]
        shape = [*x.shape[:-1], outputs]
        self.flops += 2.0 * math.prod(shape) * width
        attributes = {"K": width, "N": outputs, "bits": 4, "block_size": BLOCK}
        return self.node("MatMulNBits", [x, *inputs], shape, domain=MICROSOFT, **attributes)

    def dense(self, x: Value, outputs: int, scale: float = LINEAR) -> Value:
        """A linear layer as exporters write one of more than two axes: MatMul, Add."""
        width = x.shape[-1]
        product = self.matmul(x, self.weight(width, outputs, square=scale / width))
        return self.apply("Add", self.bias(outputs), product)

    def gemm(self, x: Value, outputs: int, scale: float = LINEAR, transposed: bool = True) -> Value:
        """A linear layer of two axes: Gemm, with the weights as PyTorch's Linear keeps them, or as they are."""
        rows, width = x.shape
        shape = (outputs, width) if transposed else (width, outputs)
        self.flops += 2.0 * rows * width * outputs
        inputs = [x, self.weight(*shape, square=scale / width), self.bias(outputs)]
        return self.node("Gemm", inputs, [rows, outputs], transB=int(transposed))

    def conv(
        self,
        x: Value,
        outputs: int,
        kernel: int,
        stride: int = 1,
        *,
        groups: int = 1,
        padding: int | None = None,
        scale: float = LINEAR,
    ) -> Value:
        """A convolution with bias, padded by half the kernel if not said otherwise."""
        _, channels, height, width = x.shape
        padding = kernel // 2 if padding is None else padding
        sizes = [(size + 2 * padding - kernel) // stride + 1 for size in (height, width)]
        summed = channels // groups * kernel**2
        self.flops += 2.0 * outputs * summed * math.prod(sizes)
        weights = self.weight(outputs, channels // groups, kernel, kernel, square=scale / summed)
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [padding] * 4, "group": groups}
        attributes |= {"dilations": [1, 1]}
        return self.node("Conv", [x, weights, self.bias(outputs)], [1, outputs, *sizes], **attributes)

    # Activations

    def relu(self, x: Value) -> Value:
        return self.apply("Relu", x)

    def hard_swish(self, x: Value) -> Value:
        return self.apply("HardSwish", x)

    def swish(self, x: Value) -> Value:
        return self.apply("Mul", x, self.apply("Sigmoid", x))

    def gelu(self, x: Value) -> Value:
        """x · (1 + erf(x / √2)) / 2."""
        erf = self.apply("Erf", self.apply("Div", x, self.scalar(math.sqrt(2))))
        return self.apply("Mul", self.apply("Mul", x, self.apply("Add", erf, self.scalar(1))), self.scalar(0.5))

    def tanh_gelu(self, x: Value) -> Value:
        """x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
        cubic = self.apply("Mul", self.apply("Pow", x, self.scalar(3)), self.scalar(0.044715))
        inner = self.apply("Mul", self.apply("Add", x, cubic), self.scalar(math.sqrt(2 / math.pi)))
        outer = self.apply("Add", self.apply("Tanh", inner), self.scalar(1))
        return self.apply("Mul", self.apply("Mul", x, self.scalar(0.5)), outer)

    # The model

    def end(self, **results: Value) -> Graph:
        """The graph, with its results under these names."""
        for name, value in results.items():
            self._nodes.append(helper.make_node("Identity", [value.name], [name], name=name))
            self._outputs.append(Value(name, value.shape))
            self._symbols[name] = self._symbols.get(value.name, {})
        return self

    def model(self) -> onnx.ModelProto:
        """The model, with weights drawn from the seed."""
        random = np.random.default_rng(self.seed + 1)
        tensors = [numpy_helper.from_array(draw(random), name) for name, draw in self._constants.items()]
        inputs = [self._declare(v, helper.np_dtype_to_tensor_dtype(self.feeds[v.name].dtype)) for v in self._inputs]
        outputs = [self._declare(v, TensorProto.FLOAT) for v in self._outputs]
        graph = helper.make_graph(self._nodes, self.name, inputs, outputs, tensors)
        imports = [helper.make_opsetid("", OPSET)]
        imports += [helper.make_opsetid(MICROSOFT, 1)] if any(n.domain == MICROSOFT for n in self._nodes) else []
        return helper.make_model(graph, opset_imports=imports, ir_version=9, producer_name="benchmarks")

    def _declare(self, value: Value, kind: int) -> onnx.ValueInfoProto:
        names = self._symbols.get(value.name, {})
        return helper.make_tensor_value_info(
            value.name, kind, [names.get(n, size) for n, size in enumerate(value.shape)]
        )
