"""The convolutions of three networks for images, computed from the networks' definitions: 224×224, batch 1, groups of
one or of all channels.

A network is the list of its convolutions in order; `distinct` counts equal ones. Besides the convolutions a definition
says what else it has of parameters, so that a test can compare each network's sum with the published one.

ResNet-50: He, Zhang, Ren and Sun, "Deep residual learning for image recognition", 2015, with the stride on the 3×3
convolution, as all frameworks have it. MobileNet-V3-Large: Howard et al., "Searching for MobileNetV3", 2019, table 1.
EfficientNet-B0: Tan and Le, "EfficientNet", 2019, table 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

IMAGE = 224
CLASSES = 1000


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution with a square kernel over a square image, padded by half the kernel; `size` is of its input."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    size: int
    groups: int = 1

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def result_size(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.inputs == self.outputs

    @property
    def weights(self) -> int:
        """How many numbers the kernel holds, without the bias."""
        return self.outputs * self.inputs // self.groups * self.kernel**2

    @property
    def multiply_adds(self) -> int:
        """Products of one call, those with the padding among them."""
        return self.weights * self.result_size**2

    @property
    def bytes(self) -> int:
        """What an f32 call reads and writes, each number once."""
        moved = self.inputs * self.size**2 + self.outputs * self.result_size**2 + self.weights + self.outputs
        return 4 * moved

    @property
    def name(self) -> str:
        """`conv3x3/2 3-64 @224`: the kernel, the stride, the channels, the input's size; `dw` for a depthwise one."""
        stride = f"/{self.stride}" if self.stride > 1 else ""
        channels = str(self.inputs) if self.is_depthwise else f"{self.inputs}-{self.outputs}"
        return f"{'dw' if self.is_depthwise else 'conv'}{self.kernel}x{self.kernel}{stride} {channels} @{self.size}"


@dataclass(frozen=True, slots=True)
class Network:
    """A network's convolutions, how many of their channels are followed by a normalisation (two parameters each) or
    have a bias (one), and the parameters of its dense layers."""

    name: str
    layers: tuple[Layer, ...]
    normalised: int
    biases: int
    dense: int

    @property
    def parameters(self) -> int:
        return sum(layer.weights for layer in self.layers) + 2 * self.normalised + self.biases + self.dense


class _Chain:
    """Convolutions appended one after another; the image shrinks on the way."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.channels, self.size = 3, IMAGE
        self.normalised = self.biases = 0

    def conv(self, outputs: int, kernel: int, stride: int = 1, depthwise: bool = False) -> None:
        """A convolution and its normalisation."""
        groups = self.channels if depthwise else 1
        layer = Layer(self.channels, outputs, kernel, stride, self.size, groups)
        self.layers.append(layer)
        self.channels, self.size = outputs, layer.result_size
        self.normalised += outputs

    def squeeze(self, middle: int) -> None:
        """Squeeze and excite: two 1×1 convolutions with a bias on the mean of the image."""
        self.layers += [Layer(self.channels, middle, 1, 1, 1), Layer(middle, self.channels, 1, 1, 1)]
        self.biases += middle + self.channels

    def end(self, name: str, *dense: int) -> Network:
        """The network, closed by dense layers of these widths; the first is what they read."""
        parameters = sum(a * b + b for a, b in pairwise(dense))
        return Network(name, tuple(self.layers), self.normalised, self.biases, parameters)


# width, blocks, stride of the first
RESNET50 = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


def resnet50() -> Network:
    """Bottlenecks 1×1, 3×3, 1×1, and a 1×1 beside the first of each stage."""
    chain = _Chain()
    chain.conv(64, 7, 2)
    chain.size = 56  # the pool
    for width, blocks, stride in RESNET50:
        for block in range(blocks):
            before, size, step = chain.channels, chain.size, 1 if block else stride
            chain.conv(width, 1)
            chain.conv(width, 3, step)
            chain.conv(4 * width, 1)
            if block == 0:
                chain.layers.append(Layer(before, 4 * width, 1, step, size))
                chain.normalised += 4 * width
    return chain.end("ResNet-50", 2048, CLASSES)


# kernel, expanded channels, output channels, squeeze and excite, stride
MOBILENET_V3_LARGE = (
    (3, 16, 16, False, 1),
    (3, 64, 24, False, 2),
    (3, 72, 24, False, 1),
    (5, 72, 40, True, 2),
    (5, 120, 40, True, 1),
    (5, 120, 40, True, 1),
    (3, 240, 80, False, 2),
    (3, 200, 80, False, 1),
    (3, 184, 80, False, 1),
    (3, 184, 80, False, 1),
    (3, 480, 112, True, 1),
    (3, 672, 112, True, 1),
    (5, 672, 160, True, 2),
    (5, 960, 160, True, 1),
    (5, 960, 160, True, 1),
)


def mobilenet_v3_large() -> Network:
    """Inverted bottlenecks; a quarter of the expanded channels, rounded to eight, is squeezed to."""
    chain = _Chain()
    chain.conv(16, 3, 2)
    for kernel, expanded, outputs, excite, stride in MOBILENET_V3_LARGE:
        _bottleneck(chain, kernel, expanded, outputs, stride, round_to_eight(expanded / 4) if excite else 0)
    chain.conv(960, 1)
    return chain.end("MobileNet-V3-Large", 960, 1280, CLASSES)


# expansion, kernel, stride of the first, output channels, blocks
EFFICIENTNET_B0 = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def efficientnet_b0() -> Network:
    """Inverted bottlenecks; a quarter of a block's input channels is squeezed to."""
    chain = _Chain()
    chain.conv(32, 3, 2)
    for expansion, kernel, stride, outputs, blocks in EFFICIENTNET_B0:
        for block in range(blocks):
            before = chain.channels
            _bottleneck(chain, kernel, expansion * before, outputs, 1 if block else stride, before // 4)
    chain.conv(1280, 1)
    return chain.end("EfficientNet-B0", 1280, CLASSES)


def _bottleneck(chain: _Chain, kernel: int, expanded: int, outputs: int, stride: int, squeezed: int) -> None:
    if expanded != chain.channels:
        chain.conv(expanded, 1)
    chain.conv(expanded, kernel, stride, depthwise=True)
    if squeezed:
        chain.squeeze(squeezed)
    chain.conv(outputs, 1)


def round_to_eight(channels: float) -> int:
    """The nearest multiple of eight, at least eight, and not below nine tenths of `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


NETWORKS = (resnet50(), mobilenet_v3_large(), efficientnet_b0())


def distinct(networks: Iterable[Network] = NETWORKS) -> dict[Layer, dict[str, int]]:
    """Each different layer, in order of first use, with how often each network has it."""
    found: dict[Layer, dict[str, int]] = {}
    for network in networks:
        for layer, count in Counter(network.layers).items():
            found.setdefault(layer, {})[network.name] = count
    return found
