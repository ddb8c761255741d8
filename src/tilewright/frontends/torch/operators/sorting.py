"""Sorted elements and their places; equal elements keep their order. Elements by their rank, and places in what is
sorted already."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr, const
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size, static_of
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import handles


def _first(b: TorchEmit, x: Tensor, dim: int, count: Expr | None, largest: bool) -> tuple[Tensor, ...]:
    if x.rank and x.dtype.is_bool:
        values, places = _first(b, b.cast(x, dtypes.u8), dim, count, largest)
        return b.cast(values, x.dtype), places
    if not x.rank:
        raise Unsupported(f"sorting {x.dtype}{list(x.shape)} is not supported")
    axis = b.axis(dim, x.rank)
    k = x.shape[axis] if count is None else count
    if not (largest and x.dtype.is_float):
        return b.ops("top_k", x, axis=axis, k=k, largest=largest)
    _, places = b.ops("top_k", _keys(b, x), axis=axis, k=k, largest=True)
    return b.gather_elements(x, places, axis), places


def _keys(b: TorchEmit, x: Tensor) -> Tensor:
    """Integers in the order of floats, as PyTorch has it: NaN is greater than all, and zeros are equal."""
    x = b.wide(x)
    integer = {32: dtypes.i32, 64: dtypes.i64}[x.dtype.bits]
    bits = b.op("bitcast", b.select(b.map("eq", x, 0), b.scalar(0, x.dtype), x), dtype=integer)
    below = b.map("bit_and", b.map("shr", bits, integer.bits - 1), int(integer.max))
    return b.select(b.map("isnan", x), b.scalar(int(integer.max), integer), b.map("bit_xor", bits, below))


@handles("aten.sort.default", "aten.sort.stable")
def sort(
    b: TorchEmit, x: Tensor, *, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> tuple[Tensor, ...]:
    return _first(b, x, dim, None, descending)


@handles("aten.topk.default")
def topk(
    b: TorchEmit, x: Tensor, *, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, ...]:
    axis = b.axis(dim, max(x.rank, 1))
    count = b.extents[axis] if x.rank else None
    if isinstance(count, Const) and count.value == 0:
        raise Unsupported("no element at all is asked for")
    return _first(b, x, dim, count, largest)


def _only_one_place(b: TorchEmit, x: Tensor, index: int = 1) -> None:
    """Of equal elements eager's algorithms take any: of integers, which often are equal, places are not supported."""
    if b.wants(index) and not x.dtype.is_float:
        raise Unsupported("the place of one of several equal integers is not supported")


def _along(b: TorchEmit, x: Tensor, dim: int) -> tuple[Tensor, int]:
    """The tensor with at least one dimension, and the axis; there must be elements along it."""
    x = x if x.rank else b.reshape(x, (1,))
    axis = b.axis(dim, x.rank)
    if isinstance(x.shape[axis], Const) and x.shape[axis] is const(0):
        raise Unsupported("one of no elements is not supported")
    return x, axis


def _shaped(b: TorchEmit, found: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    return b.reshape(found, b.extents), b.reshape(place, b.extents)


@handles("aten.kthvalue.default")
def kth_value(b: TorchEmit, x: Tensor, *, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The element that k - 1 others come before."""
    _only_one_place(b, x)
    x, axis = _along(b, x, dim)
    values, places = _first(b, x, axis, const(k), False)
    return _shaped(b, b.pick(values, axis, k - 1), b.pick(places, axis, k - 1))


def _middle(b: TorchEmit, x: Tensor, axis: int, skips: bool) -> tuple[Tensor, Tensor]:
    """The lower median along an axis and its place: among numbers alone, or NaN where there is one."""
    values, places = _first(b, x, axis, None, False)
    last = b.of_size(x.shape[axis] - 1)
    none = b.cast(b.map("isnan", x), dtypes.i64) if x.dtype.is_float else b.full(x.shape, 0, dtypes.i64)
    count = b.reduce("sum", none, [axis], keepdims=True)
    numbers = b.map("max", last - count, 0)
    rank = b.map("floordiv", numbers, 2)
    if not skips:
        rank = b.select(b.map("lt", 0, count), numbers + 1, b.map("floordiv", last, 2))
        rank = b.map("min", rank, last)
    return b.gather_elements(values, rank, axis), b.gather_elements(places, rank, axis)


def _median(skips: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    def handler(b: TorchEmit, x: Tensor, *, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        _only_one_place(b, x)
        x, axis = _along(b, x, dim)
        return _shaped(b, *_middle(b, x, axis, skips))

    return handler


def _whole_median(skips: bool) -> Callable[..., Tensor]:
    def handler(b: TorchEmit, x: Tensor) -> Tensor:
        flat, _ = _along(b, b.reshape(x, (product(x.shape),)), 0)
        return b.reshape(_middle(b, flat, 0, skips)[0], ())

    return handler


for _name, _skips in {"median": False, "nanmedian": True}.items():
    handles(f"aten.{_name}.dim")(_median(_skips))
    handles(f"aten.{_name}.default")(_whole_median(_skips))


@handles("aten.mode.default")
def mode(b: TorchEmit, x: Tensor, *, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The element that there are most of, the least of several: the longest run of what is sorted."""
    _only_one_place(b, x)
    x, axis = _along(b, x, dim)
    values, places = _first(b, x, axis, None, False)
    place = b.broadcast(b.align(b.iota((x.shape[axis],), 0), axis, x.rank), x.shape)
    before = b.gather_elements(values, b.map("max", place - 1, 0), axis)
    begin = b.cumulative("max", b.select(b.map("ne", values, before), place, 0), axis)
    longest = b.arg_reduce("max", place - begin, axis, keepdims=True)
    return _shaped(b, b.gather_elements(values, longest, axis), b.gather_elements(places, longest, axis))


@handles("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def places_in_sorted(
    b: TorchEmit,
    sequence: Tensor,
    x: Tensor,
    sorter: Tensor | None = None,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
) -> Tensor:
    """How many elements of a sorted sequence, its last dimension, are below each number, or, `right`, not above it. The
    sorter has the order that sorts the sequence."""
    if sorter is not None:
        order = b.checked(sorter, sequence.shape[-1], "index", from_end=False)
        sequence = b.gather_elements(sequence, order, sequence.rank - 1)
    return _places(b, sequence, x, right or side == "right")


@handles("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def buckets(b: TorchEmit, x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return _places(b, boundaries, x, right)


def _places(b: TorchEmit, sequence: Tensor, x: Tensor, right: bool) -> Tensor:
    """By halves: as many steps as the number of elements has bits."""
    static = static_of(sequence.shape[-1:])
    if static is None:
        raise Unsupported("a sequence of a dynamic number of elements is not supported")
    if static == (0,):
        return b.broadcast(b.scalar(0, b.result.dtype), b.extents)
    dtype = b.promote()
    sequence, x = b.cast(sequence, dtype), b.broadcast(b.cast(x, dtype), b.extents)
    low = b.broadcast(b.scalar(0, dtypes.i64), x.shape)
    high = b.broadcast(b.scalar(static[0], dtypes.i64), x.shape)
    for _ in range(static[0].bit_length()):
        middle = b.map("shr", low + high, 1)
        place = b.map("min", middle, static[0] - 1)
        one = b.gather_elements(sequence, place, x.rank - 1) if sequence.rank > 1 else b.take(sequence, place, 0)
        before = b.map("not", b.map("lt" if right else "le", x, one))
        open = b.map("lt", low, high)
        low, high = (
            b.select(b.map("and", open, before), middle + 1, low),
            b.select(b.map("and", open, b.map("not", before)), middle, high),
        )
    return b.done(low)
