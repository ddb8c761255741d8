"""Recipes of products, convolutions, pools and normalizations."""

from __future__ import annotations

from typing import Any

from fuzz.drawing import Draw
from fuzz.elements import Style
from fuzz.pointwise import finite
from fuzz.recipes import recipe

CALM = (Style.WHOLE, Style.NORMAL, Style.UNIT)


def calm(d: Draw) -> Style:
    """Elements whose products and sums are far from the ends of their type's range."""
    return Style(d.pick(CALM))


@recipe(3)
def mat_mul(d: Draw) -> None:
    m, n, k = d.size(), d.size(), d.size()
    batch = d.shape(d.pick((0, 0, 1, 2)))
    left, right = [*d.fitting(batch), m, k], [*d.fitting(batch), k, n]
    if d.maybe(0.15):
        left = [k]
    if d.maybe(0.15):
        right = [k]
    types = d.types("MatMul")
    fits = [v for v, a in d.values.items() if a.dtype.name in types and 2 <= a.ndim <= 4]
    if fits and d.maybe():
        x = d.pick(fits)
        right = [d.values[x].shape[-1], n]
    else:
        x = d.new(types, left, style=calm(d))
    d.node("MatMul", [x, d.like(x, right, style=calm(d))])


@recipe(2)
def gemm(d: Draw) -> None:
    m, n, k = d.size(), d.size(), d.size()
    across, down = d.pick((0, 1)), d.pick((0, 1))
    x = d.new(d.types("Gemm"), [k, m] if across else [m, k], style=calm(d))
    inputs = [x, d.like(x, [n, k] if down else [k, n], style=calm(d))]
    if d.maybe(0.7):
        inputs.append(d.like(x, d.pick(([m, n], [n], [1, n], [m, 1], [], [1])), style=calm(d)))
    whole = d.values[x].dtype.kind in "iu"
    scales = d.some(alpha=1.0 if whole else d.pick((1.0, 0.5, -2.0)), beta=1.0 if whole else d.pick((1.0, 0.0, 0.25)))
    d.node("Gemm", inputs, {**({"transA": across} if across else {}), **({"transB": down} if down else {}), **scales})


def image(d: Draw, n: int, channels: int) -> list[int]:
    sizes = {1: (1, 3, 7, 12, 17), 2: (1, 3, 5, 7, 8), 3: (1, 2, 3, 4)}[n]
    return [d.pick((1, 1, 2)), channels, *[d.pick(sizes) for _ in range(n)]]


def window(d: Draw, kernel: list[int], dilated: bool = True) -> dict[str, Any]:
    """Attributes that windows share."""
    n = len(kernel)
    found = d.some(strides=[d.pick((1, 1, 2, 3)) for _ in range(n)])
    if dilated:
        found |= d.some(dilations=[d.pick((1, 1, 2)) for _ in range(n)])
    if d.maybe(0.5):
        found["pads"] = [d.chance.randint(0, max(k - 1, 0)) for k in kernel * 2]
    elif d.maybe(0.4):
        found["auto_pad"] = d.pick(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    return found


@recipe(3)
def conv(d: Draw) -> None:
    operator = d.pick(("Conv", "Conv", "ConvTranspose"))
    n = d.pick((1, 2, 2, 2, 3))
    kernel = [d.pick((1, 2, 3, 3, 4)) for _ in range(n)]
    groups = d.pick((1, 1, 2, 3))
    per, out = d.pick((1, 1, 2, 3)), d.pick((1, 2, 4))
    x = d.new(d.types(operator), image(d, n, groups * per), style=calm(d))
    shape = [groups * out, per, *kernel] if operator == "Conv" else [groups * per, out, *kernel]
    inputs = [x, d.like(x, shape, style=calm(d), constant=0.7, dynamic=False)]
    if d.maybe():
        inputs.append(d.like(x, [groups * out], style=calm(d)))
    attributes = window(d, kernel) | d.some(kernel_shape=kernel) | ({"group": groups} if groups > 1 else {})
    if operator == "ConvTranspose" and d.maybe(0.3):
        strides = attributes.get("strides", [1] * n)
        attributes["output_padding"] = [d.chance.randint(0, max(s - 1, 0)) for s in strides]
    d.node(operator, inputs, attributes)


@recipe(3)
def pool(d: Draw) -> None:
    operator = d.pick(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    n = d.pick((1, 2, 2, 3))
    kernel = [d.pick((1, 2, 3)) for _ in range(n)]
    dilated = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[operator] <= d.opset
    attributes = window(d, kernel, dilated) | {"kernel_shape": kernel}
    if operator != "LpPool" or d.opset >= 18:
        attributes |= d.some(ceil_mode=d.pick((0, 1)))
    if operator == "AveragePool":
        attributes |= d.some(count_include_pad=d.pick((0, 1)))
    if operator == "LpPool":
        attributes |= d.some(p=d.pick((1, 2, 3)))
    sizes = image(d, n, d.pick((1, 2, 3)))
    reach = [(k - 1) * e + 1 for k, e in zip(kernel, attributes.get("dilations", [1] * n), strict=True)]
    pads = attributes.get("pads", [0] * 2 * n)
    if any(r > s + pads[i] + pads[n + i] for i, (r, s) in enumerate(zip(reach, sizes[2:], strict=True))):
        d.pick(())  # no window fits
    two = operator == "MaxPool" and d.maybe(0.25)
    x = d.new(d.types(operator), sizes, style=calm(d))
    d.node(operator, [x], attributes | (d.some(storage_order=d.pick((0, 1))) if two else {}), 2 if two else 1)


@recipe()
def global_pool(d: Draw) -> None:
    operator = d.pick(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    x = d.new(d.types(operator), image(d, d.pick((1, 2, 3)), d.pick((1, 3))), style=calm(d))
    d.node(operator, [x], d.some(p=d.pick((1, 2, 3))) if operator == "GlobalLpPool" else {})


@recipe(2)
def normalization(d: Draw) -> None:
    operator = d.pick(("LayerNormalization", "RMSNormalization"))
    x = d.take(d.types(operator), (1, 4), lambda a: finite(a) and a.size > 0)
    shape = d.values[x].shape
    axis = d.axis(len(shape))
    scale = d.like(x, d.pick((shape[axis:], shape[-1:])), style=calm(d))
    inputs = [x, scale]
    if operator == "LayerNormalization" and d.maybe(0.6):
        inputs.append(d.like(x, d.values[scale].shape, style=calm(d)))
    attributes = {"axis": axis} | d.some(epsilon=d.pick((1e-5, 1e-3, 0.1)))
    outputs = d.pick((1, 1, 3)) if operator == "LayerNormalization" else 1
    d.node(operator, inputs, attributes, outputs)


@recipe(2)
def channel_normalization(d: Draw) -> None:
    operator = d.pick(("BatchNormalization", "InstanceNormalization", "GroupNormalization"))
    groups = d.pick((1, 2))
    channels = groups * d.pick((1, 2, 3))
    x = d.new(d.types(operator), image(d, d.pick((1, 2, 2, 3)), channels), style=calm(d))
    count = groups if operator == "GroupNormalization" and d.opset < 21 else channels
    inputs = [x, d.like(x, [count], style=calm(d)), d.like(x, [count], style=calm(d))]
    attributes = d.some(epsilon=d.pick((1e-5, 1e-3, 0.1)))
    if operator == "BatchNormalization":
        inputs += [d.like(x, [channels], style=calm(d)), d.like(x, [channels], 0.0, style=Style.POSITIVE)]
        attributes |= d.some(momentum=0.9)
    if operator == "GroupNormalization":
        attributes["num_groups"] = groups
    d.node(operator, inputs, attributes)


@recipe()
def other_normalization(d: Draw) -> None:
    operator = d.pick(("LpNormalization", "MeanVarianceNormalization", "LRN"))
    if operator == "LpNormalization":
        x = d.take(d.types(operator), (1, 4), lambda a: finite(a) and a.size > 0)
        d.node(operator, [x], d.some(axis=d.axis(d.values[x].ndim), p=d.pick((1, 2))))
    elif operator == "LRN":
        x = d.new(d.types(operator), image(d, 2, d.pick((1, 3, 5))), style=calm(d))
        d.node(
            operator,
            [x],
            {"size": d.pick((1, 2, 3, 5)), **d.some(alpha=d.pick((1e-4, 0.5)), beta=0.75, bias=d.pick((1.0, 2.0)))},
        )
    else:
        x = d.new(d.types(operator), image(d, 2, 3), style=calm(d))
        d.node(operator, [x], d.some(axes=d.pick(([0, 2, 3], [1, 2], [3]))))
