"""Convolutions and their gradients, of one to three spatial dimensions."""

from __future__ import annotations

import math

from tilewright.expr.nodes import Const, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import static_of
from tilewright.frontends.build.transposed_convolution import convolve_transposed
from tilewright.frontends.build.turned_convolution import convolve_turned
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.build.windows import Windows, convolve, padded
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import Bools, Ints, Sizes, handles


def _windows(w: Tensor, stride: Ints, padding: Ints, dilation: Ints) -> Windows:
    kernel = static_of(w.shape[2:])
    if kernel is None:
        raise Unsupported("the kernel must have a constant size")
    n = len(kernel)
    pads = tuple([const(p) for p in _each(padding, n)])
    return Windows(kernel, _each(stride, n), _each(dilation, n), pads, pads)


def _each(numbers: Ints, n: int) -> Ints:
    return numbers * n if len(numbers) == 1 else numbers


def _check(x: Tensor, w: Tensor) -> None:
    if x.rank != w.rank or x.rank < 3:
        raise Unsupported("an image without a batch is not supported")
    if static_of(w.shape) is None:
        raise Unsupported("the shape of the weights must be constant")
    if any(isinstance(d, Const) and d.value == 0 for d in (*x.shape, *w.shape)):
        raise Unsupported("convolutions without elements are not supported")


@handles("aten.convolution.default")
def convolution(
    b: TorchEmit,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Tensor:
    _check(x, w)
    view, (x, w) = _windows(w, stride, padding, dilation), [b.wide(t) for t in (x, w)]
    if transposed:
        y = convolve_transposed(b, x, w, view, groups, view.low, view.high, _each(output_padding, x.rank - 2))
    else:
        y = convolve(b, x, w, view, groups)
    return b.done(y if bias is None else y + b.align(b.wide(bias), 1, y.rank))


@handles("aten.convolution_backward.default")
def convolution_backward(
    b: TorchEmit,
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    *,
    bias_sizes: Sizes | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    output_mask: Bools,
) -> tuple[Tensor | None, ...]:
    """The gradients of the image, the weights and the bias."""
    _check(x, w)
    view, (grad, x, w) = _windows(w, stride, padding, dilation), [b.wide(t) for t in (grad, x, w)]
    image = weights = bias = None
    if output_mask[0]:
        image = b.done(_of_image(b, grad, x, w, view, groups, transposed), 0)
    if output_mask[1]:
        small, large = (x, grad) if transposed else (grad, x)
        weights = b.done(_of_weights(b, small, large, w, view, groups), 1)
    if output_mask[2]:
        bias = b.done(b.reduce("sum", grad, [0, *range(2, grad.rank)]), 2)
    return image, weights, bias


def _of_image(b: Emit, grad: Tensor, x: Tensor, w: Tensor, view: Windows, groups: int, transposed: bool) -> Tensor:
    if transposed:
        return b.slice(convolve(b, grad, w, view, groups), [0] * x.rank, x.shape, clamped=True)
    if _elements(grad) + _elements(x) < _elements(w):
        return convolve_turned(b, grad, x.shape, w, view, groups)
    extra = []
    for d, span in enumerate(view.spans()):
        reached = (grad.shape[2 + d] - 1) * view.strides[d] + span - view.low[d] - view.high[d]
        rest = simplify(x.shape[2 + d] - reached)
        if not isinstance(rest, Const):
            if view.strides[d] > 1:
                raise Unsupported("the gradient of an image of dynamic size is supported for strides of 1 alone")
            rest = const(0)
        extra.append(int(rest.value))
    return convolve_transposed(b, grad, w, view, groups, view.low, view.high, extra)


def _elements(x: Tensor) -> float:
    """How many elements a tensor has; infinitely many where only a call knows it."""
    return math.prod(static_of(x.shape) or (math.inf,))


def _of_weights(b: Emit, small: Tensor, large: Tensor, w: Tensor, view: Windows, groups: int) -> Tensor:
    """For each element of the kernel the products of what it multiplied: `small` is at each place of the windows, which
    lie in `large`. [channels of small, channels of large in a group, kernel…]"""
    n = w.rank - 2
    source = padded(b, large, view.low, view.high)
    split = [_grouped(b, t, groups) for t in (small, source)]
    places, kernel = [f"s{d}" for d in range(n)], [f"k{d}" for d in range(n)]
    index = " ".join(
        f"{s}{_times(stride)}+{k}{_times(dilation)}"
        for s, k, stride, dilation in zip(places, kernel, view.strides, view.dilations, strict=True)
    )
    sizes = [(k, size) for k, size in zip(kernel, view.kernel, strict=True)]
    spec = f"n g o {' '.join(places)}, n g c {index} -> g o c {' '.join(kernel)}"
    found = b.contract(spec, *split, sizes=sizes)
    return b.reshape(found, w.shape)


def _grouped(b: Emit, x: Tensor, groups: int) -> Tensor:
    return b.reshape(x, (x.shape[0], groups, simplify(x.shape[1] // groups), *x.shape[2:]))


def _times(factor: int) -> str:
    return "" if factor == 1 else f"*{factor}"
