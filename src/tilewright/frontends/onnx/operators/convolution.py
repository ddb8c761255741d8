"""Convolutions: padding, then a contraction with windowed index maps. Layout: batch, channels, spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.build import maximum
from tilewright.expr.nodes import Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.build.windows import Windows, convolve
from tilewright.frontends.onnx.registry import Ints, handles

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def windows(
    b: Emit,
    extents: Sequence[Expr],
    kernel: Sequence[int],
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
    auto_pad: str,
) -> Windows:
    """The attributes that convolutions and pools share, with their defaults, checked; automatic padding computed."""
    n = len(extents)
    ones = (1,) * n
    if auto_pad not in AUTO_PADS:
        raise Unsupported(f"auto_pad is {auto_pad!r}, not one of {', '.join(AUTO_PADS)}")
    kernel = b.entries("kernel_shape", kernel, n, 1)
    stride = b.entries("strides", strides or ones, n, 1)
    dilation = b.entries("dilations", dilations or ones, n, 1)
    amounts = b.entries("pads", pads or (0,) * (2 * n), 2 * n)
    if auto_pad in ("NOTSET", "VALID"):
        used = [const(a) for a in (amounts if auto_pad == "NOTSET" else (0,) * (2 * n))]
        return Windows(kernel, stride, dilation, tuple(used[:n]), tuple(used[n:]))
    both = [_same_padding(*row) for row in zip(extents, kernel, stride, dilation, strict=True)]
    less, more = [simplify(t // 2) for t in both], [simplify(t - t // 2) for t in both]
    low, high = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    return Windows(kernel, stride, dilation, tuple(low), tuple(high))


def _same_padding(extent: Expr, kernel: int, stride: int, dilation: int) -> Expr:
    """How much padding gives ceil(extent / stride) windows."""
    count = (extent + (stride - 1)) // stride
    return simplify(maximum((count - 1) * stride + ((kernel - 1) * dilation + 1) - extent, 0))


def window_of(b: Emit, x: Tensor, w: Tensor, kernel_shape: Ints | None, group: int) -> Ints:
    """The window's sizes from the weights, which must be constant and agree with the attribute."""
    if x.rank < 3 or w.rank != x.rank:
        raise b.error(f"input and weights have {x.rank} and {w.rank} dimensions; both need batch, channels and a space")
    shape = w.static_shape()
    if shape is None:
        raise Unsupported("the shape of the weights must be constant")
    if kernel_shape is not None and tuple(kernel_shape) != shape[2:]:
        raise b.error(f"kernel_shape is {list(kernel_shape)}, but the weights have the window {list(shape[2:])}")
    if group < 1 or shape[0] % group:
        raise b.error(f"{shape[0]} channels of the weights cannot be split into {group} groups")
    return shape[2:]


@handles("Conv")
def conv(
    b: Emit,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    kernel = window_of(b, x, w, kernel_shape, group)
    view = windows(b, x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    y = convolve(b, x, w, view, group)
    return y if bias is None else y + b.align(bias, 1, y.rank)
