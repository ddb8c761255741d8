"""Elements moved: shapes, orders of dimensions, parts, and tensors behind each other. What is a view in PyTorch is its
elements here: AOTAutograd has made all mutations of views explicit."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.build import less_equal, maximum, minimum, select
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import Ints, Sizes, Tensors, handles


@handles("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten._reshape_alias.default")
def view(b: TorchEmit, x: Tensor, *, size: Sizes, stride: Sizes = ()) -> Tensor:
    return b.reshape(x, b.extents)


@handles("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.unsqueeze.default")
def squeeze(b: TorchEmit, x: Tensor, *, dim: Ints = ()) -> Tensor:
    """With or without dimensions of extent one."""
    return b.reshape(x, b.extents)


@handles("aten.permute.default")
def permute(b: TorchEmit, x: Tensor, *, dims: Ints) -> Tensor:
    return b.transpose(x, b.axes(dims, x.rank))


@handles("aten.t.default")
def transposed_matrix(b: TorchEmit, x: Tensor) -> Tensor:
    return b.transpose(x, range(x.rank)[::-1])


@handles("aten.transpose.int")
def transpose(b: TorchEmit, x: Tensor, *, dim0: int, dim1: int) -> Tensor:
    order = list(range(x.rank))
    if order:
        first, second = b.axis(dim0, x.rank), b.axis(dim1, x.rank)
        order[first], order[second] = second, first
    return b.transpose(x, order)


@handles("aten.expand.default")
def expand(b: TorchEmit, x: Tensor, *, size: Sizes, implicit: bool = False) -> Tensor:
    return b.broadcast(x, b.extents)


def begin_of(start: Size, extent: Expr) -> Expr:
    """Where a slice begins that counts from the end below zero, and is clamped to the extent."""
    first = start if isinstance(start, Expr) else const(start)
    counted = simplify(select(less_equal(0, first), first, first + extent))
    return simplify(minimum(maximum(counted, 0), extent))


@handles("aten.slice.Tensor")
def slice_(
    b: TorchEmit, x: Tensor, *, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Tensor:
    """Every `step`-th element from `start` on, as many as the result has."""
    axis = b.axis(dim, x.rank)
    starts, steps = [const(0)] * x.rank, [1] * x.rank
    starts[axis], steps[axis] = begin_of(start or 0, x.shape[axis]), step  # type: ignore[call-overload]
    return b.slice(x, starts, b.extents, steps, clamped=True)


def _places(b: TorchEmit, x: Tensor, axis: int, start: Size, count: Expr, step: int) -> Tensor:
    """The indices start, start + step, … along an axis, with the shape of the other dimensions of x."""
    index = b.iota((count,), 0) * step + b.of_size(start)
    shape = [count if a == axis else d for a, d in enumerate(x.shape)]
    return b.broadcast(b.align(index, axis, x.rank), shape)


@handles("aten.slice_scatter.default")
def slice_scatter(
    b: TorchEmit,
    x: Tensor,
    y: Tensor,
    *,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Tensor:
    """x with y in place of a slice."""
    axis = b.axis(dim, x.rank)
    first = begin_of(start or 0, x.shape[axis])
    y = b.cast(y, x.dtype)
    if step == 1:
        before = b.narrow(x, axis, 0, first)
        end_of = simplify(first + y.shape[axis])
        behind = b.narrow(x, axis, end_of, simplify(x.shape[axis] - end_of))
        return b.concat([before, y, behind], axis)
    index = _places(b, y, axis, first, y.shape[axis], step)
    return b.op("scatter_elements", x, index, y, axis=axis)


@handles("aten.select.int")
def select_one(b: TorchEmit, x: Tensor, *, dim: int, index: Size) -> Tensor:
    axis = b.axis(dim, x.rank)
    return b.pick(x, axis, _wrapped(index, x.shape[axis]))


def _wrapped(index: Size, extent: Expr) -> Expr:
    place = index if isinstance(index, Expr) else const(index)
    return simplify(select(less_equal(0, place), place, place + extent))


@handles("aten.select_scatter.default")
def select_scatter(b: TorchEmit, x: Tensor, y: Tensor, *, dim: int, index: Size) -> Tensor:
    """x with y in place of what is at one index."""
    axis = b.axis(dim, x.rank)
    here = b.map("eq", b.align(b.iota((x.shape[axis],), 0), axis, x.rank), b.of_size(_wrapped(index, x.shape[axis])))
    return b.select(here, b.unsqueeze(b.cast(y, x.dtype), [axis]), x)


@handles("aten.cat.default")
def cat(b: TorchEmit, *, tensors: Tensors, dim: int = 0) -> Tensor:
    """The tensors behind each other; empty ones of one dimension are left out, as PyTorch does."""
    rank = len(b.extents)
    kept = [b.cast(t, b.result.dtype) for t in tensors if t is not None and t.rank == rank and not _is_nothing(t, rank)]
    return b.concat(kept, b.axis(dim, rank)) if kept else b.broadcast(b.scalar(0, b.result.dtype), b.extents)


def _is_nothing(x: Tensor, rank: int) -> bool:
    return rank > 1 and x.rank == 1 and isinstance(x.shape[0], Const) and x.shape[0].value == 0


def _parts(b: TorchEmit, x: Tensor, axis: int, sizes: Sequence[Expr]) -> tuple[Tensor, ...]:
    start: Expr = const(0)
    found = []
    for size in sizes:
        found.append(b.narrow(x, axis, start, size))
        start = simplify(start + size)
    return tuple(found)


@handles("aten.split_with_sizes.default")
def split_with_sizes(b: TorchEmit, x: Tensor, *, split_sizes: Sizes, dim: int = 0) -> tuple[Tensor, ...]:
    axis = b.axis(dim, x.rank)
    return _parts(b, x, axis, [t.shape[axis] for t in b.results if t is not None])


@handles("aten.split.Tensor")
def split(b: TorchEmit, x: Tensor, *, split_size: Size, dim: int = 0) -> tuple[Tensor, ...]:
    axis = b.axis(dim, x.rank)
    return _parts(b, x, axis, [t.shape[axis] for t in b.results if t is not None])


@handles("aten.unbind.int")
def unbind(b: TorchEmit, x: Tensor, *, dim: int = 0) -> tuple[Tensor, ...]:
    axis = b.axis(dim, x.rank)
    return tuple([b.pick(x, axis, n) for n in range(len(b.results))])


@handles("aten.flip.default")
def flip(b: TorchEmit, x: Tensor, *, dims: Ints) -> Tensor:
    return b.flip(x, b.axes(dims, x.rank) if x.rank else [])


@handles("aten.constant_pad_nd.default")
def constant_pad(b: TorchEmit, x: Tensor, *, pad: Sizes, value: Number = 0) -> Tensor:
    """The last dimensions first, each with what comes before and behind; negative numbers take away."""
    low: list[Size] = [0] * x.rank
    high: list[Size] = [0] * x.rank
    for n in range(len(pad) // 2):
        low[x.rank - 1 - n], high[x.rank - 1 - n] = pad[2 * n], pad[2 * n + 1]
    return b.pad(x, low, high, b.scalar(value, x.dtype))


@handles("aten.repeat.default")
def repeat(b: TorchEmit, x: Tensor, *, repeats: Sizes) -> Tensor:
    """The whole tensor again and again along each dimension, new leading ones among them."""
    rank = len(repeats)
    shape = [const(1)] * (rank - x.rank) + list(x.shape)
    apart = b.reshape(x, [e for d in shape for e in (const(1), d)])
    wide = b.broadcast(apart, [e for n, d in zip(repeats, shape, strict=True) for e in (n, d)])
    return b.reshape(wide, b.extents)


@handles("aten.diagonal.default")
def diagonal(b: TorchEmit, x: Tensor, *, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements whose index along dim2 is that along dim1 plus the offset, as the last dimension."""
    first, second = b.axis(dim1, x.rank), b.axis(dim2, x.rank)
    rest = [a for a in range(x.rank) if a not in (first, second)]
    front = b.transpose(x, [first, second, *rest])
    rows, columns = front.shape[:2]
    flat = b.reshape(front, (simplify(rows * columns), *front.shape[2:]))
    start = b.of_size(simplify(const(max(-offset, 0)) * columns + max(offset, 0)))
    index = b.iota((b.extents[-1],), 0) * b.of_size(simplify(columns + 1)) + start
    return b.transpose(b.take(flat, index, 0), [*range(1, 1 + len(rest)), 0])


@handles("aten.diagonal_scatter.default")
def diagonal_scatter(b: TorchEmit, x: Tensor, y: Tensor, *, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """x with y in place of a diagonal."""
    first, second = b.axis(dim1, x.rank), b.axis(dim2, x.rank)
    rest = [a for a in range(x.rank) if a not in (first, second)]
    row, column = (b.align(b.iota((x.shape[a],), 0), a, x.rank) for a in (first, second))
    here = b.map("eq", row + offset, column)
    behind = b.transpose(b.cast(y, x.dtype), [y.rank - 1, *range(y.rank - 1)])
    if isinstance(behind.shape[0], Const) and behind.shape[0].value == 0:
        return x
    place = b.map("min", b.map("max", b.iota((x.shape[first],), 0) + min(offset, 0), 0), b.of_size(y.shape[-1] - 1))
    spread = b.unsqueeze(b.take(behind, place, 0), [1])
    order = [first, second, *rest]
    return b.select(here, b.transpose(spread, [order.index(a) for a in range(x.rank)]), x)


@handles("aten.as_strided.default")
def as_strided(b: TorchEmit, x: Tensor, *, size: Sizes, stride: Sizes, storage_offset: Size | None = None) -> Tensor:
    """Elements of the memory of a tensor that is contiguous: those at the sums of multiples of the strides."""
    if not b.is_contiguous:
        raise Unsupported("the memory of a tensor that is not contiguous is not supported")
    place = b.of_size(0 if storage_offset is None else storage_offset)
    for axis, step in enumerate(stride):
        along = b.iota((b.extents[axis],), 0) * b.of_size(step)
        place = place + b.align(along, axis, len(stride))
    flat = b.reshape(x, (simplify(product(x.shape)),))
    index = b.checked(b.broadcast(place, b.extents), flat.shape[0], "index", from_end=False)
    return b.take(flat, index, 0)


@handles("aten.copy.default")
def copy(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    """The elements of y, in the type and shape of x."""
    return b.broadcast(b.cast(y, x.dtype), b.extents)


@handles("aten.unfold.default")
def unfold(b: TorchEmit, x: Tensor, *, dimension: int, size: int, step: int) -> Tensor:
    """Overlapping parts of an axis, their elements as the last dimension."""
    if not x.rank:
        return b.reshape(x, b.extents)
    axis = b.axis(dimension, x.rank)
    count = b.extents[axis]
    begins, within = b.iota((count, size), 0) * step, b.iota((count, size), 1)
    taken = b.take(x, begins + within, axis)
    return b.transpose(taken, [*range(axis + 1), *range(axis + 2, x.rank + 1), axis + 1])
