"""Transposed convolutions: how much of the full result is wanted (build/transposed_convolution.py has the result)."""

from __future__ import annotations

from tilewright.expr.build import maximum
from tilewright.expr.nodes import Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.transposed_convolution import convolve_transposed
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.build.windows import Windows
from tilewright.frontends.onnx.operators.convolution import window_of, windows
from tilewright.frontends.onnx.registry import Ints, handles


@handles("ConvTranspose")
def conv_transpose(
    b: Emit,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The gradient of a convolution with regard to its input."""
    n = x.rank - 2
    kernel = window_of(b, x, w, kernel_shape, group)
    view = windows(b, x.shape[2:], kernel, strides, dilations, pads, "NOTSET" if output_shape else auto_pad)
    extra = b.entries("output_padding", output_padding or (0,) * n, n, 0)
    wanted = None if output_shape is None else b.entries("output_shape", output_shape[-n:], n, 0)
    low, high = _outer_padding(x, view, extra, wanted, auto_pad)
    y = convolve_transposed(b, x, w, view, group, low, high, extra)
    return y if bias is None else y + b.align(bias, 1, y.rank)


def _outer_padding(
    x: Tensor, view: Windows, extra: Ints, wanted: Ints | None, auto_pad: str
) -> tuple[list[Expr], list[Expr]]:
    """How much of the full result is cut off before and behind, from pads, auto_pad or the wanted output shape."""
    if wanted is None and auto_pad in ("NOTSET", "VALID"):
        return list(view.low), list(view.high)
    low, high = [], []
    for d, (extent, stride, span) in enumerate(zip(x.shape[2:], view.strides, view.spans(), strict=True)):
        target: Expr = extent * stride if wanted is None else const(wanted[d])
        total = simplify((extent - 1) * stride + extra[d] + span - target)
        if wanted is None:
            total = simplify(maximum(total, 0))
        small, large = simplify(total // 2), simplify(total - total // 2)
        first, last = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        low.append(first)
        high.append(last)
    return low, high
