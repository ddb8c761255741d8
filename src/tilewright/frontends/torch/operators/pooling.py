"""Pools over windows, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.expr.build import less, select
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.build.windows import Windows, first_places, padded
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import Ints, handles
from tilewright.ops.scatter import Reduction


def _windows(x: Tensor, n: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Windows:
    """The windows over the last n dimensions. With `ceil_mode`, more padding behind lets a last window in that begins
    inside."""
    if x.rank not in (n + 1, n + 2):
        raise Unsupported(f"pools over {x.rank} dimensions are not supported")
    kernel, padding, dilation = (_each(p, n) for p in (kernel, padding, dilation))
    stride = _each(stride, n) if stride else kernel
    low = tuple([const(p) for p in padding])
    if not ceil_mode:
        return Windows(kernel, stride, dilation, low, low)
    plain = Windows(kernel, stride, dilation, low, low)
    reach = zip(x.shape[x.rank - n :], padding, plain.spans(), stride, strict=True)
    high = [simplify(p + _overhang(extent, p, span, s)) for extent, p, span, s in reach]
    return Windows(kernel, stride, dilation, low, tuple(high))


def _each(numbers: Ints, n: int) -> Ints:
    return numbers * n if len(numbers) == 1 else numbers


def _overhang(extent: Expr, padding: int, span: int, stride: int) -> Expr:
    """How far the last window reaches past the padded image; nothing where it would begin in the padding."""
    rest = extent + 2 * padding - span
    count = (rest + (stride - 1)) // stride
    return select(less(count * stride, extent + padding), count * stride - rest, 0)


def _batched(b: TorchEmit, x: Tensor, n: int) -> Tensor:
    return b.unsqueeze(x, [0]) if x.rank == n + 1 else x


@handles("aten.max_pool2d_with_indices.default")
def max_pool(
    b: TorchEmit,
    x: Tensor,
    *,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor | None, ...]:
    """The maxima, and where each is in its image, flat: the first of equal ones."""
    view = _windows(x, 2, kernel_size, stride, padding, dilation, ceil_mode)
    image = _batched(b, x, 2)
    best = b.window(
        "max", padded(b, image, view.low, view.high, x.dtype.min), view.kernel, view.strides, view.dilations
    )
    places = None
    if b.wants(1):
        found = first_places(b, image, best, view, 0, nan=x.dtype.is_float)
        places = b.reshape(b.map("mod", found, b.of_size(product(image.shape[2:]))), b.extents)
    return b.reshape(best, b.extents), places


@handles("aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default")
def max_pool_backward(
    b: TorchEmit,
    grad: Tensor,
    x: Tensor,
    indices: Tensor,
    *,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> Tensor:
    """Each gradient at the place of its maximum; those of one place are added."""
    front = x.rank - _dimensions(b)
    size = product(x.shape[front:])
    channels = simplify(product(x.shape[:front]))
    places = b.reshape(indices, (channels, product(grad.shape[front:])))
    checked = b.checked(places, size, "index", from_end=False)
    updates = b.reshape(b.wide(grad), places.shape)
    empty = b.broadcast(b.scalar(0, updates.dtype), (channels, size))
    made = b.op("scatter_elements", empty, checked, updates, axis=1, reduction=Reduction.ADD)
    return b.done(b.reshape(made, x.shape))


def _counts(b: TorchEmit, x: Tensor, view: Windows, padding: Ints, include: bool, divisor: int | None) -> Tensor | None:
    """How many elements each window is the mean of, along the last dimensions; None where all have as many."""
    static = all(isinstance(e, Const) and e.value == 0 for e in (*view.low, *view.high))
    if divisor is not None or static:
        return None
    count: Tensor | None = None
    for d, extent in enumerate(x.shape[2:]):
        inside = b.full((extent,), 1, x.dtype)
        own = padding[d]
        inside = b.pad(inside, [own], [own], 1 if include else 0)
        inside = b.pad(inside, [0], [simplify(view.high[d] - own)], 0)
        along = b.window("sum", inside, view.kernel[d : d + 1], view.strides[d : d + 1], (1,))
        aligned = b.align(along, 2 + d, x.rank)
        count = aligned if count is None else count * aligned
    return count


@handles("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def average_pool(
    b: TorchEmit,
    x: Tensor,
    *,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window: of its elements in the image, and with `count_include_pad` of those in the padding."""
    n = _dimensions(b)
    view = _windows(x, n, kernel_size, stride, padding, (1,), ceil_mode)
    image = b.wide(_batched(b, x, n))
    total = b.window("sum", padded(b, image, view.low, view.high), view.kernel, view.strides, (1,) * n)
    count = _counts(b, image, view, _each(padding, n), count_include_pad, divisor_override)
    y = total / (divisor_override or math.prod(view.kernel)) if count is None else total / count
    return b.done(b.reshape(y, b.extents))


@handles("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def average_pool_backward(
    b: TorchEmit,
    grad: Tensor,
    x: Tensor,
    *,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """The sum, for each element, of its windows' gradients over their counts: those of a window spread a stride apart,
    and summed by windows of stride 1 that look back."""
    n = _dimensions(b)
    view = _windows(x, n, kernel_size, stride, padding, (1,), ceil_mode)
    image, wide = _batched(b, x, n), b.wide(_batched(b, grad, n))
    count = _counts(b, b.wide(image), view, _each(padding, n), count_include_pad, divisor_override)
    each = wide / (divisor_override or math.prod(view.kernel)) if count is None else wide / count
    spread = _spread(b, each, view.strides)
    low = [0, 0, *(k - 1 for k in view.kernel)]
    high = [const(0), const(0)]
    for d, (k, p) in enumerate(zip(view.kernel, view.low, strict=True)):
        extent = image.shape[2 + d] + p  # up to the last element of the image, from the first of the padding
        high.append(simplify(extent - spread.shape[2 + d]))  # type: ignore[arg-type]
        assert k > 0
    sums = b.window("sum", b.pad(spread, low, high), view.kernel, (1,) * n, (1,) * n)
    part = b.slice(sums, [0, 0, *view.low], image.shape, clamped=True)
    return b.done(b.reshape(part, x.shape))


def _dimensions(b: TorchEmit) -> int:
    """Over how many dimensions the pool is that is being read, as its name says."""
    return 3 if "pool3d" in b.graph.source else 2


def _spread(b: TorchEmit, x: Tensor, strides: Sequence[int]) -> Tensor:
    """stride - 1 zeros behind each element of the last dimensions."""
    spatial = x.shape[2:]
    split = b.reshape(x, (*x.shape[:2], *(e for d in spatial for e in (d, const(1)))))
    high = [0, 0, *(e for s in strides for e in (0, s - 1))]
    wide = b.pad(split, [0] * len(high), high)
    return b.reshape(wide, (*x.shape[:2], *(simplify(d * s) for d, s in zip(spatial, strides, strict=True))))
