"""Windows over the spatial dimensions: padding, convolutions, and where the maximum of each is. Layout: batch,
channels, spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, const
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Number, Tensor


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows over the spatial dimensions: kernel sizes, strides, dilations, and the padding before and behind."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[Expr, ...]
    high: tuple[Expr, ...]

    def spans(self) -> list[int]:
        """The extent of a dilated window, per dimension: (kernel - 1) * dilation + 1."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]


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


def first_places(b: Emit, x: Tensor, best: Tensor, view: Windows, column_major: int, nan: bool = False) -> Tensor:
    """The index, in the whole flattened input, of the first maximum of each window, or with `nan` of the last NaN.

    The position within the window of the first maximum is the least of those whose element equals the maximum: one pass
    for each position of the window, from the last to the first.
    """
    source = padded(b, x, view.low, view.high, x.dtype.min)
    spatial = x.shape[2:]
    strides = [const(1)] * len(spatial)
    order = range(len(spatial)) if column_major else range(len(spatial) - 1, -1, -1)
    total: Expr = const(1)
    for d in order:
        strides[d] = total  # type: ignore[call-overload]
        total = total * spatial[d]
    chosen: Tensor | None = None
    seen: Tensor | None = None
    if math.prod(view.kernel) > 256:
        raise Unsupported("the indices of MaxPool are supported for windows of at most 256 elements")
    for position in reversed(range(math.prod(view.kernel))):
        offsets = _offsets(position, view)
        starts = [0, 0, *offsets]
        taken = b.slice(source, starts, best.shape, [1, 1, *view.strides], clamped=True)
        index: Tensor | None = None
        found = b.map("eq", taken, best)
        if nan:
            none = b.map("isnan", taken)
            last = none if seen is None else b.map("and", none, b.map("not", seen))
            seen = none if seen is None else b.map("or", seen, none)
            found = b.map("or", found, last)
        for d, offset in enumerate(offsets):
            along = b.iota((best.shape[2 + d],), 0) * view.strides[d] + b.of_size(offset - view.low[d])
            part = b.align(along * b.of_size(strides[d]), 2 + d, x.rank)
            index = part if index is None else index + part
            if not are_zero((view.low[d], view.high[d])):  # padding may equal the maximum
                inside = b.map("and", b.map("le", 0, along), b.map("lt", along, b.of_size(spatial[d])))
                found = b.map("and", found, b.align(inside, 2 + d, x.rank))
        assert index is not None
        chosen = index if chosen is None else b.select(found, index, chosen)
    assert chosen is not None
    plane = b.align(b.iota((x.shape[0],), 0) * b.of_size(x.shape[1] * total), 0, x.rank)
    channel = b.align(b.iota((x.shape[1],), 0) * b.of_size(total), 1, x.rank)
    return b.broadcast(plane + channel + chosen, best.shape)


def _offsets(position: int, view: Windows) -> list[int]:
    """The place within the padded window of the element with this number in row-major order."""
    found = []
    for k, d in zip(reversed(view.kernel), reversed(view.dilations), strict=True):
        position, digit = divmod(position, k)
        found.append(digit * d)
    return found[::-1]


def are_zero(amounts: Sequence[Expr]) -> bool:
    return all(isinstance(a, Const) and a.value == 0 for a in amounts)
