"""Pools of as many windows as are asked for: window i of m over n elements begins at i*n // m and ends before
(i + 1)*n / m, rounded up. So windows differ in size and may overlap, and each axis is pooled by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.expr.nodes import Expr
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import static_of
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.operators.pooling import max_pool_backward
from tilewright.frontends.torch.registry import Sizes, handles


class _Axis:
    """The windows along an axis: the places of their elements [window, element], and which of these count."""

    def __init__(self, b: TorchEmit, extent: Expr, windows: Expr) -> None:
        static = static_of((extent, windows))
        if static is None or 0 in static:
            raise Unsupported(f"{windows} windows over {extent} elements are not supported")
        n, m = static
        begins = np.arange(m) * n // m
        ends = -(-(np.arange(1, m + 1) * n) // m)
        place = begins[:, None] + np.arange(max(ends - begins))
        self.inside = place < ends[:, None]
        self.counts = ends - begins
        self.begins = begins
        self.place = np.minimum(place, n - 1)
        of = np.arange(n)
        self.takers = (begins[:, None] <= of) & (of < ends[:, None])

    def taken(self, b: TorchEmit, x: Tensor, axis: int, other: float | int) -> Tensor:
        """The elements of each window as an axis behind that of the windows; `other` fills shorter ones."""
        made = b.take(x, b.of_array(self.place.astype(np.int64)), axis)
        if self.inside.all():
            return made
        after = x.rank - axis - 1
        mask = b.of_array(self.inside.reshape(*self.inside.shape, *[1] * after))
        return b.select(mask, made, b.scalar(other, x.dtype))


def _axes(b: TorchEmit, x: Sequence[Expr], y: Sequence[Expr], n: int) -> list[_Axis]:
    return [_Axis(b, whole, windows) for whole, windows in zip(x[-n:], y[-n:], strict=True)]


def _aligned(b: TorchEmit, numbers: np.ndarray[tuple[int, ...], np.dtype[np.int64]], axis: int, x: Tensor) -> Tensor:
    return b.align(b.cast(b.of_array(numbers.astype(np.int64)), x.dtype), axis, x.rank)


@handles("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_average_pool(b: TorchEmit, x: Tensor, *, output_size: Sizes) -> Tensor:
    """The means of the windows."""
    n = len(output_size)
    if 0 in (static_of(b.extents) or ()):
        return b.broadcast(b.scalar(0, b.result.dtype), b.extents)
    found = b.wide(x)
    for d, axis in enumerate(_axes(b, x.shape, b.extents, n)):
        at = x.rank - n + d
        total = b.reduce("sum", axis.taken(b, found, at, 0), [at + 1])
        found = total / _aligned(b, axis.counts, at, total)
    return b.done(found)


@handles("aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default")
def adaptive_average_pool_backward(b: TorchEmit, grad: Tensor, x: Tensor) -> Tensor:
    """Each element gets its share of the gradients of its windows, which lie next to each other."""
    n = 3 if "pool3d" in b.graph.source else 2
    if 0 in (static_of(b.extents) or ()):
        return b.broadcast(b.scalar(0, b.result.dtype), b.extents)
    found = b.wide(grad)
    for d, axis in enumerate(_axes(b, x.shape, grad.shape, n)):
        at = x.rank - n + d
        shares = found / _aligned(b, axis.counts, at, found)
        takers = axis.takers.T
        first, several = takers.argmax(1), takers.sum(1)
        place = first[:, None] + np.arange(several.max())
        inside = place < (first + several)[:, None]
        taken = b.take(shares, b.of_array(np.minimum(place, takers.shape[1] - 1).astype(np.int64)), at)
        mask = b.of_array(inside.reshape(*inside.shape, *[1] * (x.rank - at - 1)))
        found = b.reduce("sum", b.select(mask, taken, b.scalar(0, taken.dtype)), [at + 1])
    return b.done(found)


@handles("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(b: TorchEmit, x: Tensor, *, output_size: Sizes) -> tuple[Tensor | None, ...]:
    """The maxima of the windows, and their places in the image, flat: the first of equal ones. The last axis comes
    first, so that the place is that of the first row that has the maximum."""
    n = len(output_size)
    axes = _axes(b, x.shape, b.extents, n)
    best, place, step = x, None, 1
    for d in reversed(range(n)):
        at = x.rank - n + d
        taken = axes[d].taken(b, best, at, x.dtype.min)
        best = b.reduce("max", taken, [at + 1])
        if b.wants(1):
            chosen = b.arg_reduce("max", taken, at + 1, keepdims=True)
            begins = _aligned(b, axes[d].begins, at, best)
            own = (b.squeeze(chosen, [at + 1]) + b.cast(begins, chosen.dtype)) * step
            if place is not None:
                windows = b.take(place, b.of_array(axes[d].place.astype(np.int64)), at)
                own = own + b.squeeze(b.gather_elements(windows, chosen, at + 1), [at + 1])
            place = own
        step *= axes[d].takers.shape[1]
    return best, place


@handles("aten.adaptive_max_pool2d_backward.default", "aten.adaptive_max_pool3d_backward.default")
def adaptive_max_pool_backward(b: TorchEmit, grad: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    return max_pool_backward(b, grad, x, indices, kernel_size=(), stride=(), padding=(), dilation=(), ceil_mode=False)
