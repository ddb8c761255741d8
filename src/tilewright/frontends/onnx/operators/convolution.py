"""Convolutions: padding, then a contraction with windowed index maps. Layout: batch, channels, spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.build import maximum
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.onnx.registry import Ints, handles

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows over the spatial dimensions: kernel sizes, strides, dilations, and the padding before and behind."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    low: tuple[Expr, ...]
    high: tuple[Expr, ...]

    def spans(self) -> list[int]:
        """The extent of a dilated window, per dimension: (kernel - 1) * dilation + 1."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]


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


def padded(b: Emit, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Number = 0) -> Tensor:
    """The tensor with its spatial dimensions padded."""
    zeros: list[Size] = [0] * (x.rank - len(low))
    return b.pad(x, [*zeros, *low], [*zeros, *high], value)


def convolve(b: Emit, x: Tensor, w: Tensor, view: Windows, group: int, dtype: DType | None = None) -> Tensor:
    """The convolution of x with w, without bias. w: output channels, input channels of a group, window."""
    source = padded(b, x, view.low, view.high)
    n = x.rank - 2
    spatial, window = [f"s{d}" for d in range(n)], [f"k{d}" for d in range(n)]
    index = " ".join(
        f"{s}{_times(stride)}+{k}{_times(dilation)}"
        for s, k, stride, dilation in zip(spatial, window, view.strides, view.dilations, strict=True)
    )
    sizes = [
        (s, (extent - span) // stride + 1)
        for s, extent, span, stride in zip(spatial, source.shape[2:], view.spans(), view.strides, strict=True)
    ]
    s, k = " ".join(spatial), " ".join(window)
    if group == 1:
        return b.contract(f"n c {index}, o c {k} -> n o {s}", source, w, sizes=sizes, dtype=dtype)
    channels = w.shape[1]
    split = b.reshape(source, (x.shape[0], group, channels, *source.shape[2:]))
    grouped = b.reshape(w, (group, w.shape[0] // group, *w.shape[1:]))
    result = b.contract(f"n g c {index}, g o c {k} -> n g o {s}", split, grouped, sizes=sizes, dtype=dtype)
    return b.reshape(result, (x.shape[0], w.shape[0], *result.shape[3:]))


def _times(factor: int) -> str:
    return "" if factor == 1 else f"*{factor}"


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
