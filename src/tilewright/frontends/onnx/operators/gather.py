"""Elements picked and placed by indices, which are checked: negative ones count from the end, others must be inside."""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr, const
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.loop import Loop
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.registry import handles
from tilewright.graph.op import LARGEST
from tilewright.ops.scatter import Reduction


@handles("Gather")
def gather(b: Emit, x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    along = b.axis(axis, x.rank)
    return b.take(x, b.checked(index, x.shape[along], f"along axis {along}"), along)


@handles("GatherElements")
def gather_elements(b: Emit, x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    along = b.axis(axis, x.rank)
    return b.gather_elements(x, b.checked(index, x.shape[along], f"along axis {along}"), along)


@handles("GatherND")
def gather_nd(b: Emit, x: Tensor, index: Tensor, *, batch_dims: int = 0) -> Tensor:
    return b.op("gather_nd", x, checked_tuples(b, x, index, batch_dims), batch_dims=batch_dims)


def checked_tuples(b: Emit, x: Tensor, index: Tensor, batch: int) -> Tensor:
    """Indices whose last dimension holds one for each dimension of x after `batch` ones, each checked."""
    if index.rank == 0 or not isinstance(index.shape[-1], Const):
        raise Unsupported("the last dimension of the indices must be constant")
    depth, last = int(index.shape[-1].value), index.rank - 1
    if not 0 <= batch <= last or batch + depth > x.rank:
        raise b.error(f"{depth} indices after {batch} batch dimensions for a tensor of {x.rank} dimensions")
    limits = x.shape[batch : batch + depth]
    if all(limit is limits[0] for limit in limits):
        return b.checked(index, limits[0]) if depth else b.cast(index, dtypes.i64)
    parts = [b.checked(b.narrow(index, last, n, 1), limit, f"along axis {batch + n}") for n, limit in enumerate(limits)]
    return b.concat(parts, last)


_REDUCTIONS = {r.value: r for r in Reduction}


def _reduction(name: str) -> Reduction:
    if name not in _REDUCTIONS:
        raise Unsupported(f"the reduction {name!r} is not supported")
    return _REDUCTIONS[name]


@handles("Scatter", "ScatterElements")
def scatter_elements(
    b: Emit, x: Tensor, index: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    along = b.axis(axis, x.rank)
    places = b.checked(index, x.shape[along], f"along axis {along}")
    return b.op("scatter_elements", x, places, updates, axis=along, reduction=_reduction(reduction))


@handles("ScatterND")
def scatter_nd(b: Emit, x: Tensor, index: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    places = checked_tuples(b, x, index, 0)
    return b.op("scatter_nd", x, places, updates, reduction=_reduction(reduction))


@handles("TensorScatter")
def tensor_scatter(
    b: Emit, past: Tensor, update: Tensor, start: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """`update` written into `past` from the index `start[i]` of `axis` on, for each batch i; or around the end."""
    along = b.axis(axis, past.rank)
    if along == 0 or mode not in ("linear", "circular"):
        raise Unsupported(f"TensorScatter along axis {along} in mode {mode!r} is not supported")
    step = b.align(b.iota((update.shape[along],), 0), along, past.rank)
    first = b.full((1,), 0, dtypes.i64) if start is None else b.cast(start, dtypes.i64)
    place = step + b.align(first, 0, past.rank)
    limit = past.shape[along]
    if mode == "circular":
        place = b.map("mod", place, b.of_size(limit))
    index = b.checked(b.broadcast(place, update.shape), limit)
    return b.op("scatter_elements", past, index, update, axis=along, reduction=Reduction.NONE)


@handles("OneHot")
def one_hot(b: Emit, index: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    """values[1] where the index names the place along the new axis, values[0] elsewhere."""
    along = b.axis(axis, index.rank + 1)
    extent = b.size(b.cast(depth, dtypes.i64), "the depth of OneHot", 0, LARGEST)
    wide = b.cast(index, dtypes.i64)
    wrapped = b.unsqueeze(b.select(b.map("lt", wide, 0), wide + b.of_size(extent), wide), [along])
    here = b.map("eq", b.align(b.iota((extent,), 0), along, index.rank + 1), wrapped)
    off, on = (b.reshape(b.narrow(values, 0, n, 1), ()) for n in (0, 1))
    return b.select(here, on, off)


def true_places(b: Emit, mask: Tensor, what: str) -> Tensor:
    """The coordinates of the true elements in row-major order: i64[count, rank]. Their number is a symbol."""
    axes = list(range(mask.rank))
    total = b.reduce("sum", b.cast(mask, dtypes.i64), axes)
    count = b.size(total, what, 0, product(mask.shape))
    return b.op("compact", mask, size=count)


@handles("NonZero")
def non_zero(b: Emit, x: Tensor) -> Tensor:
    places = true_places(b, x if x.dtype is dtypes.bool_ else b.map("ne", x, 0), "the number of non-zero elements")
    return b.transpose(places, (1, 0))


@handles("Compress")
def compress(b: Emit, x: Tensor, keep: Tensor, *, axis: int | None = None) -> Tensor:
    """The slices along `axis` (without one, the elements) whose place in the condition is true."""
    source = b.reshape(x, (product(x.shape),)) if axis is None else x
    along = 0 if axis is None else b.axis(axis, x.rank)
    if keep.rank != 1:
        raise b.error(f"the condition of Compress has {keep.rank} dimensions, not 1")
    limit = source.shape[along]
    b.require_at_most(keep.shape[0], limit, "the condition of Compress has {0} elements, the axis only {1}")
    places = true_places(b, keep, "the number of true elements")
    return b.take(source, b.reshape(places, (places.shape[0],)), along)


@handles("TopK", until=9)
def top_k_by_attribute(b: Emit, x: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, ...]:
    return b.ops("top_k", x, axis=b.axis(axis, x.rank), k=const(k), largest=True)


@handles("TopK", since=10)
def top_k(b: Emit, x: Tensor, k: Tensor, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, ...]:
    along = b.axis(axis, x.rank)
    count = b.size(k, "the K of TopK", 0, x.shape[along])
    return b.ops("top_k", x, axis=along, k=count, largest=bool(largest))


@handles("Unique")
def unique(b: Emit, x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor | None, ...]:
    """The different elements; where each is first; for each element which of them it is; and how often each occurs.

    The elements are sorted (stably), the first of each run is marked, and the marked ones are kept.
    """
    if axis is not None and x.rank != 1:
        return _unique_slices(b, x, b.axis(axis, x.rank), bool(sorted))
    length = product(x.shape)
    values, order = b.ops("top_k", b.reshape(x, (length,)), axis=0, k=length, largest=False)
    place = b.iota((length,), 0)
    before = b.take(values, b.map("max", place - 1, 0), 0)
    starts = b.map("or", b.map("eq", place, 0), b.map("ne", values, before))
    return _runs(b, values, order, starts, length, bool(sorted))


def _unique_slices(b: Emit, x: Tensor, axis: int, ascending: bool) -> tuple[Tensor | None, ...]:
    """`unique` of the slices along an axis, in the order of their first elements that differ: sorted, stably, by their
    last elements, then by those before, and so on."""
    order = [axis, *(d for d in range(x.rank) if d != axis)]
    front = b.transpose(x, order)
    count, size = front.shape[0], product(front.shape[1:])
    rows = b.reshape(front, (count, size))
    loop = Loop(b, "sort", size, [b.iota((count,), 0)], [b.transpose(rows, (1, 0))], [True])
    (places,), (column,) = loop.states, loop.slices
    _, sorted_again = loop.b.ops("top_k", loop.b.take(column, places, 0), axis=0, k=column.shape[0], largest=False)
    (places,), _ = loop.finish([loop.b.take(places, sorted_again, 0)], [], [])
    values, place = b.take(rows, places, 0), b.iota((count,), 0)
    before = b.take(values, b.map("max", place - 1, 0), 0)
    starts = b.map("or", b.map("eq", place, 0), b.reduce("any", b.map("ne", values, before), [1]))
    kept, *rest = _runs(b, values, places, starts, count, ascending)
    assert kept is not None
    whole = b.reshape(kept, (kept.shape[0], *front.shape[1:]))
    return b.transpose(whole, [order.index(d) for d in range(x.rank)]), *rest


def _runs(
    b: Emit, values: Tensor, order: Tensor, starts: Tensor, length: Expr, ascending: bool
) -> tuple[Tensor | None, ...]:
    """What `unique` gives, from the sorted values, their places, and marks where each run of equal ones starts."""
    found = true_places(b, starts, "the number of different elements")
    count = found.shape[0]
    firsts = b.reshape(found, (count,))
    group = b.cumulative("sum", b.cast(starts, dtypes.i64), 0) - 1
    inverse = b.op("scatter_elements", order, order, group, axis=0, reduction=Reduction.NONE)
    ones = b.full((length,), 1, dtypes.i64)
    nothing = b.full((count,), 0, dtypes.i64)
    counts = b.op("scatter_elements", nothing, group, ones, axis=0, reduction=Reduction.ADD)
    index, kept = b.take(order, firsts, 0), b.take(values, firsts, 0)
    if not ascending:
        _, rank = b.ops("top_k", index, axis=0, k=count, largest=False)
        back = b.op("scatter_elements", rank, rank, b.iota((count,), 0), axis=0, reduction=Reduction.NONE)
        kept, index, counts = (b.take(t, rank, 0) for t in (kept, index, counts))
        inverse = b.take(back, inverse, 0)
    return kept, index, inverse, counts
