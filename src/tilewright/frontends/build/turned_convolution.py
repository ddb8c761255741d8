"""Gradients of convolutions with regard to images that are small beside the kernel, which is read as it lies.

A transposed convolution (`transposed_convolution.py`) turns its kernel round. Where that has more elements than both
images, these are turned instead. With a stride of 1:

    x'[i] = sum of y'[i + k*dilation] * w[k] over k           x', y': x and y from their ends, y padded

With strides each place of the result gets what every tap of every window gives it:

    p[k, q] = sum of y[o, q] * w[o, k] over o                 a product without windows
    x[q*stride + k*dilation - low] += p[k, q]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tilewright.expr.nodes import Expr
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.build.windows import Windows, padded


def convolve_turned(b: Emit, y: Tensor, shape: Sequence[Expr], w: Tensor, view: Windows, group: int) -> Tensor:
    """The gradient of the convolution of these windows with regard to its input, which is of this shape. All sizes are
    constant. y: its results' gradient; w: output channels, input channels of a group, window."""
    kernel = b.reshape(w, (group, w.shape[0] // group, *w.shape[1:]))
    images = b.reshape(y, (y.shape[0], *kernel.shape[:2], *y.shape[2:]))
    make = _from_the_end if all(s == 1 for s in view.strides) else _by_taps
    return b.reshape(make(b, images, shape, kernel, view), shape)


def _from_the_end(b: Emit, y: Tensor, shape: Sequence[Expr], kernel: Tensor, view: Windows) -> Tensor:
    """[images, groups, channels of a group, places], for strides of 1."""
    n = len(view.kernel)
    low = [span - 1 - high for span, high in zip(view.spans(), view.high, strict=True)]
    reached = zip(shape[2:], y.shape[3:], low, view.spans(), strict=True)
    high = [extent + span - 1 - own - before for extent, own, before, span in reached]
    source = padded(b, _turned(b, y, n), low, high)
    index = " ".join(f"i{d}+k{d}" + (f"*{a}" if a > 1 else "") for d, a in enumerate(view.dilations))
    places, taps = (" ".join(f"{a}{d}" for d in range(n)) for a in "ik")
    sizes = [(f"i{d}", extent) for d, extent in enumerate(shape[2:])]
    found = b.contract(f"n g o {index}, g o c {taps} -> n g c {places}", source, kernel, sizes=sizes)
    return _turned(b, found, n)


def _turned(b: Emit, x: Tensor, dimensions: int) -> Tensor:
    """The last dimensions from their ends."""
    rest = x.rank - dimensions
    starts: list[Size] = [0] * rest + [extent - 1 for extent in x.shape[rest:]]
    return b.slice(x, starts, x.shape, [1] * rest + [-1] * dimensions, clamped=True)


def _by_taps(b: Emit, y: Tensor, shape: Sequence[Expr], kernel: Tensor, view: Windows) -> Tensor:
    """[images, groups, channels of a group, places], for any strides."""
    n = len(view.kernel)
    places, taps = (" ".join(f"{a}{d}" for d in range(n)) for a in "qk")
    given = b.contract(f"n g o {places}, g o c {taps} -> n g c {taps} {places}", y, kernel)
    rest = [*given.shape[:3]]
    total: Tensor | None = None
    for tap in product(*map(range, view.kernel)):
        starts: list[Size] = [0, 0, 0, *tap, *[0] * n]
        part = b.slice(given, starts, [*rest, *[1] * n, *y.shape[3:]], clamped=True)
        part = _at_places(b, b.reshape(part, (*rest, *y.shape[3:])), shape[2:], tap, view)
        total = part if total is None else total + part
    assert total is not None
    return total


def _at_places(b: Emit, part: Tensor, extents: Sequence[Expr], tap: Sequence[int], view: Windows) -> Tensor:
    """What a tap gives to each place of the result: zeros between the places of its windows, and around them."""
    apart: list[Size] = list(part.shape[:3])
    full: list[Size] = list(part.shape[:3])
    behind: list[Size] = [0, 0, 0]
    for extent, stride in zip(part.shape[3:], view.strides, strict=True):
        apart += [extent, 1]
        behind += [0, stride - 1]
        full.append(extent * stride)
    split = b.reshape(part, apart)
    wide = b.reshape(b.pad(split, [0] * split.rank, behind), full)
    low = [t * d - before for t, d, before in zip(tap, view.dilations, view.low, strict=True)]
    high = [extent - own - first for extent, own, first in zip(extents, wide.shape[3:], low, strict=True)]
    return padded(b, wide, low, high)
