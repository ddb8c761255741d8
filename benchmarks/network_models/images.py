"""Networks for images, as inference exports of them are: normalisations folded into the convolutions before them.

ConvNeXt-T: Liu et al., "A ConvNet for the 2020s", 2022. The others' layers are those of `benchmarks.layers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.layers import CLASSES, EFFICIENTNET_B0, IMAGE, MOBILENET_V3_LARGE, RESNET50, round_to_eight
from benchmarks.network_models.builder import GATE, GELU, RELU, SWISH, Graph, Value

BRANCH = 0.06
"""What a residual branch's last weights are scaled by, so that the sums over the blocks stay of order 1."""
CONVNEXT_T = ((96, 3), (192, 3), (384, 9), (768, 3))
"""Width and blocks of each stage."""
HARD_SWISH_ROWS = 6
"""The rows of MobileNetV3-L before those that have HardSwish."""

Activation = Callable[[Value], Value]


def resnet50(
    stages: Sequence[tuple[int, int, int]] = RESNET50, stem: int = 64, size: int = IMAGE, classes: int = CLASSES
) -> Graph:
    """Bottlenecks with ReLU."""
    g = Graph("ResNet-50")
    x = g.relu(g.conv(g.image(3, size), stem, 7, 2))
    half = (x.shape[2] + 1) // 2
    x = g.node("MaxPool", [x], [1, stem, half, half], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for width, blocks, stride in stages:
        for block in range(blocks):
            step = 1 if block else stride
            y = g.relu(g.conv(x, width, 1, scale=RELU))
            y = g.relu(g.conv(y, width, 3, step, scale=RELU))
            y = g.conv(y, 4 * width, 1, scale=RELU * BRANCH)
            x = g.relu(g.apply("Add", y, x if block else g.conv(x, 4 * width, 1, step, scale=RELU)))
    return g.end(logits=g.gemm(g.flatten(g.mean_of_image(x)), classes))


@dataclass(frozen=True, slots=True)
class _Inverted:
    """An inverted bottleneck: a 1×1 convolution to `expanded` channels, a depthwise one, a gate, a 1×1 convolution.

    `activate` follows the first two, `excite` and `gate` the two convolutions that compute the gate. `scale` is that
    of weights after `activate`.
    """

    activate: Activation
    excite: Activation
    gate: Activation
    scale: float

    def append(self, g: Graph, x: Value, kernel: int, expanded: int, outputs: int, stride: int, squeezed: int) -> Value:
        channels, y = x.shape[1], x
        if expanded != channels:
            y = self.activate(g.conv(y, expanded, 1))
        y = self.activate(g.conv(y, expanded, kernel, stride, groups=expanded, scale=self.scale))
        if squeezed:
            gate = self.excite(g.conv(g.mean_of_image(y), squeezed, 1, scale=self.scale))
            y = g.apply("Mul", y, self.gate(g.conv(gate, expanded, 1, scale=RELU)))
        is_residual = stride == 1 and outputs == channels
        scale = self.scale * (GATE if squeezed else 1.0) * (BRANCH if is_residual else 1.0)
        y = g.conv(y, outputs, 1, scale=scale)
        return g.apply("Add", y, x) if is_residual else y


def mobilenet_v3_large(
    rows: Sequence[tuple[int, int, int, bool, int]] = MOBILENET_V3_LARGE,
    stem: int = 16,
    widths: tuple[int, int] = (960, 1280),
    size: int = IMAGE,
    classes: int = CLASSES,
) -> Graph:
    """Inverted bottlenecks, the first with ReLU, the others with HardSwish; `widths` are those of the last layers."""
    g = Graph("MobileNetV3-L")

    def gate(v: Value) -> Value:
        return g.apply("HardSigmoid", v, alpha=1 / 6, beta=0.5)

    x = g.hard_swish(g.conv(g.image(3, size), stem, 3, 2))
    for n, (kernel, expanded, outputs, excite, stride) in enumerate(rows):
        activate, scale = (g.relu, RELU) if n < HARD_SWISH_ROWS else (g.hard_swish, SWISH)
        squeezed = round_to_eight(expanded / 4) if excite else 0
        x = _Inverted(activate, g.relu, gate, scale).append(g, x, kernel, expanded, outputs, stride, squeezed)
    x = g.hard_swish(g.conv(x, widths[0], 1))
    x = g.hard_swish(g.gemm(g.flatten(g.mean_of_image(x)), widths[1], SWISH))
    return g.end(logits=g.gemm(x, classes, SWISH))


def efficientnet_b0(
    rows: Sequence[tuple[int, int, int, int, int]] = EFFICIENTNET_B0,
    stem: int = 32,
    last: int = 1280,
    size: int = IMAGE,
    classes: int = CLASSES,
) -> Graph:
    """Inverted bottlenecks with x · sigmoid(x)."""
    g = Graph("EfficientNet-B0")

    def gate(v: Value) -> Value:
        return g.apply("Sigmoid", v)

    block = _Inverted(g.swish, g.swish, gate, SWISH)
    x = g.swish(g.conv(g.image(3, size), stem, 3, 2))
    for expansion, kernel, stride, outputs, blocks in rows:
        for n in range(blocks):
            channels = x.shape[1]
            x = block.append(g, x, kernel, expansion * channels, outputs, 1 if n else stride, channels // 4)
    x = g.swish(g.conv(x, last, 1))
    return g.end(logits=g.gemm(g.flatten(g.mean_of_image(x)), classes, SWISH))


def convnext_t(
    stages: Sequence[tuple[int, int]] = CONVNEXT_T, kernel: int = 7, size: int = IMAGE, classes: int = CLASSES
) -> Graph:
    """Blocks of a depthwise convolution, a normalisation over the channels and two dense layers with GELU."""
    g = Graph("ConvNeXt-T")
    x = g.image(3, size)
    for n, (width, blocks) in enumerate(stages):
        if n == 0:
            x = _normalise_channels(g, g.conv(x, width, 4, 4, padding=0))
        else:
            x = g.conv(_normalise_channels(g, x), width, 2, 2, padding=0)
        for _ in range(blocks):
            y = g.conv(x, width, kernel, groups=width)
            y = g.normalise(g.transpose(y, 0, 2, 3, 1), 1e-6)
            y = g.dense(g.gelu(g.dense(y, 4 * width)), width, GELU)
            y = g.apply("Mul", g.weight(width, square=BRANCH), y)
            x = g.apply("Add", x, g.transpose(y, 0, 3, 1, 2))
    x = _normalise_channels(g, g.mean_of_image(x))
    return g.end(logits=g.gemm(g.flatten(x), classes))


def _normalise_channels(g: Graph, x: Value) -> Value:
    return g.transpose(g.normalise(g.transpose(x, 0, 2, 3, 1), 1e-6), 0, 3, 1, 2)
