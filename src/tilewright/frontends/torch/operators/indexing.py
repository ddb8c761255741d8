"""Elements picked and placed by indices, which are checked: a call fails for one that is outside."""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size, static_of
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import Sizes, Tensors, handles
from tilewright.ops.scatter import Reduction


@handles("aten.embedding.default")
def embedding(
    b: TorchEmit,
    weight: Tensor,
    indices: Tensor,
    *,
    padding_idx: Size = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    return b.take(weight, b.checked(indices, weight.shape[0], "index", from_end=False), 0)


@handles("aten.index_select.default")
def index_select(b: TorchEmit, x: Tensor, index: Tensor, *, dim: int) -> Tensor:
    if not x.rank:
        return b.reshape(x, b.extents)
    axis = b.axis(dim, x.rank)
    places = b.checked(index if index.rank else b.reshape(index, (1,)), x.shape[axis], "index", from_end=False)
    return b.take(x, places, axis)


@handles("aten.gather.default")
def gather(b: TorchEmit, x: Tensor, index: Tensor, *, dim: int, sparse_grad: bool = False) -> Tensor:
    if not x.rank:
        flat, places = b.reshape(x, (1,)), b.reshape(index, (product(index.shape),))
        return b.reshape(b.take(flat, b.checked(places, 1, "index", from_end=False), 0), b.extents)
    if not index.rank:
        raise Unsupported("an index without dimensions is not supported")
    axis = b.axis(dim, x.rank)
    return b.gather_elements(x, b.checked(index, x.shape[axis], "index", from_end=False), axis)


def _scattered(b: TorchEmit, x: Tensor, index: Tensor, updates: Tensor, dim: int, reduction: Reduction) -> Tensor:
    """x with updates at the indices along an axis; of equal ones the last is taken, where they are not combined."""
    if not x.rank:
        count = product(index.shape)
        index, updates = b.reshape(index, (count,)), b.reshape(updates, (count,))
        made = _scattered(b, b.reshape(x, (1,)), index, updates, 0, reduction)
        return b.reshape(made, ())
    if not index.rank:
        raise Unsupported("an index without dimensions is not supported")
    axis = b.axis(dim, x.rank)
    places = b.checked(index, x.shape[axis], "index", from_end=False)
    part = b.slice(updates, [0] * updates.rank, index.shape, clamped=True)
    return b.op("scatter_elements", x, places, b.cast(part, x.dtype), axis=axis, reduction=reduction)


@handles("aten.scatter.src")
def scatter(b: TorchEmit, x: Tensor, index: Tensor, src: Tensor, *, dim: int) -> Tensor:
    return _scattered(b, x, index, src, dim, Reduction.NONE)


@handles("aten.scatter.value")
def scatter_number(b: TorchEmit, x: Tensor, index: Tensor, *, dim: int, value: Number) -> Tensor:
    return _scattered(b, x, index, b.broadcast(b.scalar(value, x.dtype), index.shape), dim, Reduction.NONE)


_OF_TRUTHS = {Reduction.ADD: Reduction.MAX, Reduction.MUL: Reduction.MIN}
"""What sums and products of truth values are, 0 and 1: whether any, or all, hold."""


def _combining(b: TorchEmit, x: Tensor, kind: Reduction) -> tuple[Tensor, Reduction]:
    """A tensor in the type that its elements are combined in, and how they are."""
    if x.dtype.is_bool:
        return b.cast(x, dtypes.u8), _OF_TRUTHS.get(kind, kind)
    return b.wide(x), kind


@handles("aten.scatter_add.default")
def scatter_add(b: TorchEmit, x: Tensor, index: Tensor, src: Tensor, *, dim: int) -> Tensor:
    start, kind = _combining(b, x, Reduction.ADD)
    return b.done(_scattered(b, start, index, src, dim, kind))


_KINDS = {"sum": Reduction.ADD, "prod": Reduction.MUL, "amax": Reduction.MAX, "amin": Reduction.MIN}


@handles("aten.scatter_reduce.two")
def scatter_reduce(
    b: TorchEmit, x: Tensor, index: Tensor, src: Tensor, *, dim: int, reduce: str, include_self: bool = True
) -> Tensor:
    """Updates combined at the indices; without `include_self`, what is there counts only where nothing comes."""
    named = _KINDS.get("sum" if reduce == "mean" else reduce)
    if named is None or (reduce == "mean" and x.dtype.is_bool):
        raise Unsupported(f"the reduction {reduce!r} of {x.dtype} is not supported")
    start, kind = _combining(b, x, named)
    if not include_self:
        neutral = b.broadcast(b.scalar(_neutral(kind, start), start.dtype), index.shape)
        start = _scattered(b, start, index, neutral, dim, Reduction.NONE)
    made = _scattered(b, start, index, src, dim, kind)
    if reduce == "mean":
        one = b.scalar(1, made.dtype)
        alone = b.broadcast(one, x.shape)
        ones = b.broadcast(one, index.shape)
        if not include_self:
            alone = _scattered(b, alone, index, b.broadcast(b.scalar(0, made.dtype), index.shape), dim, Reduction.NONE)
        count = _scattered(b, alone, index, ones, dim, Reduction.ADD)
        made = made / count if made.dtype.is_float else b.map("floordiv", made, count)
    return b.done(made)


def _neutral(kind: Reduction, x: Tensor) -> Number:
    """What does not change anything that it is combined with."""
    ends = {Reduction.MAX: x.dtype.min, Reduction.MIN: x.dtype.max}
    return ends.get(kind, 1 if kind is Reduction.MUL else 0)


@handles("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_combined(b: TorchEmit, x: Tensor, index: Tensor, src: Tensor, *, dim: int, reduce: str) -> Tensor:
    named = {"add": Reduction.ADD, "multiply": Reduction.MUL}.get(reduce)
    if named is None:
        raise Unsupported(f"the reduction {reduce!r} is not supported")
    start, kind = _combining(b, x, named)
    updates = b.cast(src, x.dtype)
    updates = updates if src.rank or not index.rank else b.broadcast(updates, index.shape)
    return b.done(_scattered(b, start, index, updates, dim, kind))


class _Places:
    """Indices of several dimensions that broadcast with each other: `x` with their dimensions first, the indices as one
    into these, flat; `shape` is what they broadcast to, and `front` the order of dimensions that brought them first."""

    def __init__(self, b: TorchEmit, x: Tensor, indices: Tensors) -> None:
        self.axes = [n for n, index in enumerate(indices) if index is not None]
        tensors = [index for index in indices if index is not None]
        if any(not t.dtype.is_int for t in tensors):
            raise Unsupported("indices that are truth values have a number of elements that only data tells")
        rank = max(t.rank for t in tensors)
        self.shape = [_extent([t.shape[t.rank - rank + d] for t in tensors if t.rank + d >= rank]) for d in range(rank)]
        rest = [a for a in range(x.rank) if a not in self.axes]
        self.order = [*self.axes, *rest]
        extents = [x.shape[a] for a in self.axes]
        self.limit = simplify(product(extents))
        self.rest = [x.shape[a] for a in rest]
        flat: Tensor | None = None
        for index, extent in zip(tensors, extents, strict=True):
            place = b.checked(index, extent, "index")
            flat = place if flat is None else flat * b.of_size(extent) + place
        assert flat is not None
        self.index = b.reshape(b.broadcast(flat, self.shape), (simplify(product(self.shape)),))
        apart = any(b - a > 1 for a, b in zip(self.axes, self.axes[1:], strict=False))
        self.at = 0 if apart else self.axes[0]

    def flat(self, b: TorchEmit, x: Tensor) -> Tensor:
        """The indexed dimensions as one, before the others."""
        return b.reshape(b.transpose(x, self.order), (self.limit, *self.rest))

    def placed(self) -> list[int]:
        """Where the dimensions of the indices, which come first, are in a result: at the place of the first of the
        indexed dimensions where these lie together, else in front."""
        count, rest = len(self.shape), len(self.rest)
        return [*range(count, count + self.at), *range(count), *range(count + self.at, count + rest)]


def _extent(extents: list[Expr]) -> Expr:
    """What extents broadcast to."""
    return next((e for e in extents if not (isinstance(e, Const) and e.value == 1)), const(1))


@handles("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(b: TorchEmit, x: Tensor, *, indices: Tensors) -> Tensor:
    places = _Places(b, x, indices)
    taken = b.take(places.flat(b, x), places.index, 0)
    return b.transpose(b.reshape(taken, (*places.shape, *places.rest)), places.placed())


@handles("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(b: TorchEmit, x: Tensor, values: Tensor, *, indices: Tensors, accumulate: bool = False) -> Tensor:
    """x with values at the indices; with `accumulate`, added to what is there. Of an index that is a mask the values
    must be one number, as other masks have a number of elements that only data tells."""
    masks = [index for index in indices if index is not None and index.dtype.is_bool]
    if masks and indices[0] is masks[0] and len(indices) == 1 and static_of(values.shape) in ((), (1,)):
        one = b.reshape(b.cast(values, x.dtype), ())
        mask = b.reshape(masks[0], (*masks[0].shape, *[1] * (x.rank - masks[0].rank)))
        if accumulate:
            one = b.map("or", x, one) if x.dtype.is_bool else x + one
        return b.select(mask, one, x)
    places = _Places(b, x, indices)
    order = places.placed()
    natural = [*places.shape, *places.rest]
    wide = b.broadcast(values, [natural[a] for a in order])
    updates = b.reshape(
        b.transpose(wide, [order.index(a) for a in range(len(order))]), (places.index.shape[0], *places.rest)
    )
    kept, reduction = places.flat(b, x), Reduction.NONE
    if accumulate:
        kept, reduction = _combining(b, kept, Reduction.ADD)
    rows = b.reshape(places.index, (places.index.shape[0], 1))
    made = b.op("scatter_nd", kept, rows, b.cast(updates, kept.dtype), reduction=reduction)
    whole = b.reshape(b.cast(made, x.dtype), [x.shape[a] for a in places.order])
    return b.transpose(whole, [places.order.index(a) for a in range(x.rank)])


@handles("aten.put.default")
def put(b: TorchEmit, x: Tensor, index: Tensor, source: Tensor, *, accumulate: bool = False) -> Tensor:
    """x, flat, with the source at the indices."""
    size, count = simplify(product(x.shape)), simplify(product(index.shape))
    flat, reduction = b.reshape(x, (size,)), Reduction.NONE
    if accumulate:
        flat, reduction = _combining(b, flat, Reduction.ADD)
    places = b.checked(b.reshape(index, (count,)), size, "index")
    updates = b.cast(b.reshape(source, (count,)), flat.dtype)
    return b.done(b.reshape(b.op("scatter_elements", flat, places, updates, axis=0, reduction=reduction), x.shape))


@handles("aten.index_reduce.default")
def index_reduce(
    b: TorchEmit, x: Tensor, index: Tensor, source: Tensor, *, dim: int, reduce: str, include_self: bool = True
) -> Tensor:
    """Parts of the source combined with those of x that the indices along an axis name."""
    if not x.rank:
        index, source = (b.reshape(t, (1,)) for t in (index, source))
        return scatter_reduce(b, x, index, source, dim=0, reduce=reduce, include_self=include_self)
    axis = b.axis(dim, x.rank)
    places = b.broadcast(b.align(b.reshape(index, (product(index.shape),)), axis, x.rank), source.shape)
    return scatter_reduce(b, x, places, source, dim=axis, reduce=reduce, include_self=include_self)


def _counted(b: TorchEmit, mask: Tensor) -> Tensor:
    """The number of each element among those that a flat mask takes; 0 for the others."""
    order = b.cumulative("sum", b.cast(mask, dtypes.i64), 0) - 1
    return b.select(mask, order, 0)


@handles("aten.masked_scatter.default")
def masked_scatter(b: TorchEmit, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x with the elements of the source, in order, where the mask holds. A call fails if there are too few."""
    flat = b.reshape(source, (product(source.shape),))
    if isinstance(flat.shape[0], Const) and flat.shape[0].value == 0:
        raise Unsupported("a source without elements is not supported")
    count = product(b.extents)
    where = b.reshape(b.broadcast(mask, b.extents), (count,))
    places = b.checked(_counted(b, where), flat.shape[0], "element of the source", from_end=False)
    own = b.reshape(b.broadcast(x, b.extents), (count,))
    return b.reshape(b.select(where, b.take(flat, places, 0), own), b.extents)


@handles("aten.masked_scatter_backward.default")
def masked_scatter_backward(b: TorchEmit, grad: Tensor, mask: Tensor, *, sizes: Sizes) -> Tensor:
    """The gradients where the mask holds, in order, and zeros behind them."""
    count, size = product(grad.shape), product(b.extents)
    where = b.reshape(b.broadcast(mask, grad.shape), (count,))
    places = b.checked(_counted(b, where), size, "element of the source", from_end=False)
    updates = b.select(where, b.reshape(b.wide(grad), (count,)), 0)
    empty = b.broadcast(b.scalar(0, updates.dtype), (size,))
    return b.done(
        b.reshape(b.op("scatter_elements", empty, places, updates, axis=0, reduction=Reduction.ADD), b.extents)
    )
