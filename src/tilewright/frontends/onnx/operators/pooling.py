"""Pools: padding, then a reduction over windows. Layout: batch, channels, spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.expr.build import less, select
from tilewright.expr.nodes import Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.composed import mean_over, product
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.build.windows import Windows, are_zero, first_places, padded
from tilewright.frontends.onnx.operators.convolution import windows
from tilewright.frontends.onnx.registry import Ints, handles
from tilewright.graph.op import LARGEST
from tilewright.ops.scatter import Reduction


def _reduced(b: Emit, kind: str, x: Tensor, view: Windows, fill: Number) -> Tensor:
    return b.window(kind, padded(b, x, view.low, view.high, fill), view.kernel, view.strides, view.dilations)


def _view(
    b: Emit,
    x: Tensor,
    kernel: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
    auto_pad: str,
    ceil_mode: int,
) -> tuple[Windows, tuple[Expr, ...]]:
    """The windows, and the padding behind as the model gives it: ceil_mode adds some for an incomplete last window."""
    if x.rank < 3:
        raise b.error(f"the input has {x.rank} dimensions; it needs batch, channels and a space")
    view = windows(b, x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    if not ceil_mode or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return view, view.high
    high = [
        simplify(h + _overhang(extent, low, h, span, stride))
        for extent, low, h, span, stride in zip(
            x.shape[2:], view.low, view.high, view.spans(), view.strides, strict=True
        )
    ]
    return Windows(view.kernel, view.strides, view.dilations, view.low, tuple(high)), view.high


def _overhang(extent: Expr, low: Expr, high: Expr, span: int, stride: int) -> Expr:
    """How far the last window reaches past the padded input; nothing when that window would start in the padding."""
    rest = extent + low + high - span
    count = (rest + (stride - 1)) // stride
    starts_inside = less(count * stride, extent + low)
    return simplify(select(starts_inside, count * stride - rest, 0))


@handles("MaxPool")
def max_pool(
    b: Emit,
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
) -> tuple[Tensor | None, ...]:
    view, _ = _view(b, x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    best = _reduced(b, "max", x, view, x.dtype.min)
    return best, first_places(b, x, best, view, storage_order) if b.wants(1) else None


@handles("AveragePool")
def average_pool(
    b: Emit,
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The mean of each window: of its elements in the input, with count_include_pad also of those in the padding; never
    of those that ceil_mode adds behind."""
    view, asked = _view(b, x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    total = _reduced(b, "sum", x, view, 0)
    if are_zero((*view.low, *view.high)):
        return total / math.prod(view.kernel)
    count: Tensor | None = None
    for d, extent in enumerate(x.shape[2:]):
        inside = b.full((extent,), 1, x.dtype)
        outer = 1 if count_include_pad else 0
        inside = b.pad(inside, [view.low[d]], [asked[d]], outer)
        inside = b.pad(inside, [0], [simplify(view.high[d] - asked[d])], 0)
        windows_along = b.window(
            "sum", inside, view.kernel[d : d + 1], view.strides[d : d + 1], view.dilations[d : d + 1]
        )
        along = b.align(windows_along, 2 + d, x.rank)
        count = along if count is None else count * along
    assert count is not None
    return total / count


@handles("LpPool", since=2)
def lp_pool(
    b: Emit,
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    p: int = 2,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The p-norm of each window."""
    return lp_norm(b, x, p, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)


def lp_norm(
    b: Emit,
    x: Tensor,
    p: float,
    kernel_shape: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
    auto_pad: str,
    ceil_mode: int,
) -> Tensor:
    """The p-norm of each window, for any real p."""
    view, _ = _view(b, x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return norm_of(b, _reduced(b, "sum", powers(b, x, p), view, 0), p)


def powers(b: Emit, x: Tensor, p: float) -> Tensor:
    """|x| to the power p."""
    if p == 2:
        return x * x
    size = b.map("abs", x)
    return size if p == 1 else b.map("pow", size, float(p))


def norm_of(b: Emit, total: Tensor, p: float) -> Tensor:
    """The p-th root."""
    return total if p == 1 else b.map("sqrt", total) if p == 2 else b.map("pow", total, 1 / p)


def _space(b: Emit, x: Tensor) -> list[int]:
    if x.rank < 3:
        raise b.error(f"the input has {x.rank} dimensions; it needs batch, channels and a space")
    return list(range(2, x.rank))


@handles("GlobalAveragePool")
def global_average_pool(b: Emit, x: Tensor) -> Tensor:
    return mean_over(b, x, _space(b, x), True)


@handles("GlobalMaxPool")
def global_max_pool(b: Emit, x: Tensor) -> Tensor:
    return b.reduce("max", x, _space(b, x), keepdims=True)


@handles("GlobalLpPool", since=2)
def global_lp_pool(b: Emit, x: Tensor, *, p: int = 2) -> Tensor:
    return global_lp_norm(b, x, p)


def global_lp_norm(b: Emit, x: Tensor, p: float) -> Tensor:
    """The p-norm of each channel, for any real p."""
    return norm_of(b, b.reduce("sum", powers(b, x, p), _space(b, x), keepdims=True), p)


@handles("MaxUnpool")
def max_unpool(
    b: Emit,
    x: Tensor,
    index: Tensor,
    output_shape: Tensor | None = None,
    *,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """Each element at the place in the flattened result that its index names; zeros elsewhere."""
    view = windows(b, x.shape[2:], kernel_shape, strides, None, pads, "NOTSET")
    natural = [
        simplify((extent - 1) * stride + k - low - high)
        for extent, stride, k, low, high in zip(
            x.shape[2:], view.strides, view.kernel, view.low, view.high, strict=True
        )
    ]
    target = [*x.shape[:2], *natural]
    if output_shape is not None:
        target = b.shape(output_shape, "the output shape of MaxUnpool", 0, LARGEST)
    if len(target) != x.rank:
        raise b.error(f"the output shape of MaxUnpool has {len(target)} entries for {x.rank} dimensions")
    count, places = product(x.shape), b.reshape(index, (product(x.shape),))
    checked = b.checked(_replaced(b, places, natural, target, x), product(target))
    empty = b.full((product(target),), 0, x.dtype)
    filled = b.op("scatter_elements", empty, checked, b.reshape(x, (count,)), axis=0, reduction=Reduction.NONE)
    return b.reshape(filled, target)


def _replaced(b: Emit, index: Tensor, natural: Sequence[Expr], target: Sequence[Expr], x: Tensor) -> Tensor:
    """Indices into the natural result as indices into the wanted one: the spatial coordinates stay."""
    if list(target) == [*x.shape[:2], *natural]:
        return index
    rest, found = index, b.scalar(0, index.dtype)
    stride: Expr = const(1)
    for d in range(x.rank - 1, -1, -1):
        extent = x.shape[d] if d < 2 else natural[d - 2]
        found = found + b.map("mod", rest, b.of_size(extent)) * b.of_size(stride)
        rest = b.map("floordiv", rest, b.of_size(extent))
        stride = simplify(stride * target[d])
    return found
