"""A detector of the kind of YOLO: cross-stage partial blocks (Wang et al., "CSPNet", 2020), pooling at several widths,
features of three strides that pass down and up again (Liu et al., "Path Aggregation Network", 2018)."""

from __future__ import annotations

import numpy as np

from benchmarks.network_models.builder import SWISH, Graph, Value

STRIDE = 32
"""Rows and columns of an image for one of its smallest features: sides are multiples of it."""


def detector(width: int = 16, size: int = 320, outputs: int = 75) -> Graph:
    """Boxes for each place of three maps of features; the batch, height and width of images are symbols."""
    g = Graph("detector")
    image = g.image(3, size)
    g.name_dimensions(image, {0: "batch", 2: "height", 3: "width"})
    x = convolution(g, image, width, 3, 2)
    features: list[Value] = []
    for factor, blocks in ((2, 1), (4, 2), (8, 3), (16, 1)):
        x = partial(g, convolution(g, x, factor * width, 3, 2), factor * width, blocks)
        features.append(x)
    _, near, middle, far = features
    top = convolution(g, pools(g, far), 8 * width)
    half = convolution(g, partial(g, joined(g, doubled(g, top), middle), 8 * width, 1), 4 * width)
    small = partial(g, joined(g, doubled(g, half), near), 4 * width, 1)
    medium = partial(g, joined(g, convolution(g, small, 4 * width, 3, 2), half), 8 * width, 1)
    large = partial(g, joined(g, convolution(g, medium, 8 * width, 3, 2), top), 16 * width, 1)
    names = {0: "batch"} | {n: f"side_{n}" for n in (2, 3)}
    maps = {}
    for name, x in (("small", small), ("medium", medium), ("large", large)):
        maps[name] = g.conv(x, outputs, 1, scale=SWISH)
        g.name_dimensions(maps[name], {n: word if n == 0 else f"{name}_{word}" for n, word in names.items()})
    return g.end(**maps)


def convolution(g: Graph, x: Value, outputs: int, kernel: int = 1, stride: int = 1) -> Value:
    """A convolution and a smooth step."""
    return g.swish(g.conv(x, outputs, kernel, stride, scale=SWISH))


def partial(g: Graph, x: Value, outputs: int, blocks: int) -> Value:
    """Half of the channels pass bottlenecks, the other half is joined again."""
    y, rest = convolution(g, x, outputs // 2), convolution(g, x, outputs // 2)
    for _ in range(blocks):
        y = g.apply("Add", y, convolution(g, convolution(g, y, outputs // 2), outputs // 2, 3))
    return convolution(g, joined(g, y, rest), outputs)


def pools(g: Graph, x: Value) -> Value:
    """The largest numbers of squares of 5, 9 and 13 places, beside x itself."""
    channels = x.shape[1]
    parts = [convolution(g, x, channels // 2)]
    for _ in range(3):
        sides = {"kernel_shape": [5] * 2, "strides": [1] * 2, "pads": [2] * 4}
        parts.append(g.node("MaxPool", [parts[-1]], parts[-1].shape, **sides))
    return convolution(g, joined(g, *parts), channels)


def joined(g: Graph, *parts: Value) -> Value:
    """The channels of all parts."""
    first = parts[0].shape
    return g.node("Concat", parts, [first[0], sum(p.shape[1] for p in parts), *first[2:]], axis=1)


def doubled(g: Graph, x: Value) -> Value:
    """Each place four times."""
    scales = g.constant(np.array([1, 1, 2, 2], np.float32))
    shape = [*x.shape[:2], *(2 * side for side in x.shape[2:])]
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return g.node("Resize", [x, Value("", ()), scales], shape, **how)
