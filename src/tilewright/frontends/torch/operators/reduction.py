"""Reductions, and sums and products of all elements up to each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const
from tilewright.frontends.build.composed import mean_over, product
from tilewright.frontends.build.loop import Loop
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import static_of
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import Ints, handles
from tilewright.frontends.torch.types import wide


def over(b: TorchEmit, x: Tensor, dim: Ints | int | None) -> list[int]:
    """The axes that are reduced: all where none is named."""
    given = (dim,) if isinstance(dim, int) else dim
    return b.axes(given, max(x.rank, 1)) if given else list(range(x.rank))


def _reduced(b: TorchEmit, kind: str, x: Tensor, axes: Sequence[int], keepdim: bool) -> Tensor:
    """The reduction; of a tensor without dimensions, its element."""
    return b.reduce(kind, x, axes, keepdim) if x.rank else x


@handles("aten.sum.default", "aten.sum.dim_IntList")
def total(
    b: TorchEmit, x: Tensor, *, dim: Ints | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    x = b.cast(x, wide(b.result.dtype))
    return b.done(_reduced(b, "sum", x, over(b, x, dim), keepdim))


@handles("aten.mean.default", "aten.mean.dim")
def mean(
    b: TorchEmit, x: Tensor, *, dim: Ints | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    x = b.cast(x, wide(b.result.dtype))
    return b.done(mean_over(b, x, over(b, x, dim), keepdim) if x.rank else x)


@handles("aten.prod.default", "aten.prod.dim_int")
def prod(
    b: TorchEmit, x: Tensor, *, dim: int | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    x = b.cast(x, wide(b.result.dtype))
    return b.done(_reduced(b, "prod", x, over(b, x, dim), keepdim))


def _extreme(kind: str, truth: str) -> Callable[..., Tensor]:
    def handler(b: TorchEmit, x: Tensor, *, dim: Ints = (), keepdim: bool = False) -> Tensor:
        return _reduced(b, truth if x.dtype.is_bool else kind, x, over(b, x, dim), keepdim)

    return handler


handles("aten.amax.default")(_extreme("max", "any"))
handles("aten.amin.default")(_extreme("min", "all"))
handles("aten.max.default")(_extreme("max", "any"))
handles("aten.min.default")(_extreme("min", "all"))


def _truth(kind: str) -> Callable[..., Tensor]:
    def handler(b: TorchEmit, x: Tensor, *, dim: Ints | None = None, keepdim: bool = False) -> Tensor:
        return b.done(_reduced(b, kind, b.truth(x), over(b, x, dim), keepdim))

    return handler


for _kind in ("any", "all"):
    handles(*(f"aten.{_kind}.{overload}" for overload in ("default", "dim", "dims")))(_truth(_kind))


@handles("aten.var.correction")
def variance(
    b: TorchEmit, x: Tensor, *, dim: Ints | None = None, correction: Number | None = None, keepdim: bool = False
) -> Tensor:
    return b.done(_moments(b, x, dim, correction, keepdim)[0])


@handles("aten.var_mean.correction")
def variance_and_mean(
    b: TorchEmit, x: Tensor, *, dim: Ints | None = None, correction: Number | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    found, average = _moments(b, x, dim, correction, keepdim)
    return b.done(found, 0), b.done(average, 1)


def _moments(
    b: TorchEmit, x: Tensor, dim: Ints | None, correction: Number | None, keepdim: bool
) -> tuple[Tensor, Tensor]:
    """The squares of what deviates from the mean, summed and divided by their number less the correction (1 unless
    given); and the mean."""
    if not x.rank:
        raise Unsupported("the variance of a tensor without dimensions is not supported")
    x, axes = b.wide(x), over(b, x, dim)
    average = mean_over(b, x, axes, True)
    apart = x - average
    squares = b.reduce("sum", apart * apart, axes, keepdim)
    count = b.of_size(product([x.shape[a] for a in axes]), x.dtype)
    divisor = b.map("max", count - (1 if correction is None else correction), 0)
    return squares / divisor, average if keepdim else b.squeeze(average, axes)


def _arg(kind: str) -> Callable[..., Tensor]:
    def handler(b: TorchEmit, x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Tensor:
        flat = b.reshape(x, (product(x.shape),)) if dim is None or not x.rank else x
        axis = 0 if dim is None or not x.rank else b.axis(dim, x.rank)
        return b.reshape(b.arg_reduce(kind, flat, axis, keepdim), b.extents)

    return handler


handles("aten.argmax.default")(_arg("max"))
handles("aten.argmin.default")(_arg("min"))


def _with_place(kind: str, truth: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def handler(b: TorchEmit, x: Tensor, *, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if not x.rank:
            return x, b.scalar(0, dtypes.i64)
        axis = b.axis(dim, x.rank)
        numbers = b.cast(x, dtypes.u8) if x.dtype.is_bool else x
        best = b.reduce(truth if x.dtype.is_bool else kind, x, [axis], keepdim)
        return best, b.arg_reduce(kind, numbers, axis, keepdim)

    return handler


handles("aten.max.dim")(_with_place("max", "any"))
handles("aten.min.dim")(_with_place("min", "all"))


def _cumulative(kind: str) -> Callable[..., Tensor]:
    def handler(b: TorchEmit, x: Tensor, *, dim: int, dtype: DType | None = None) -> Tensor:
        x = b.cast(x, wide(b.result.dtype))
        return b.done(b.cumulative(kind, x, b.axis(dim, x.rank)) if x.rank else x)

    return handler


handles("aten.cumsum.default")(_cumulative("sum"))
handles("aten.cumprod.default")(_cumulative("prod"))


def _running(kind: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def handler(b: TorchEmit, x: Tensor, *, dim: int) -> tuple[Tensor, Tensor]:
        """The extremes of all elements up to each, and their places: the last of equal ones; NaN is one from its first
        place on."""
        if not x.rank:
            return x, b.scalar(0, dtypes.i64)
        if x.dtype.is_bool:
            x = b.cast(x, dtypes.u8)
        axis = b.axis(dim, x.rank)
        best = b.cumulative(kind, x, axis)
        found = b.map("eq", x, best)
        if x.dtype.is_float:
            found = b.map("or", found, b.map("isnan", x))
        place = b.align(b.iota((x.shape[axis],), 0), axis, x.rank)
        return b.done(best, 0), b.cumulative("max", b.select(found, b.broadcast(place, x.shape), 0), axis)

    return handler


handles("aten.cummax.default")(_running("max"))
handles("aten.cummin.default")(_running("min"))


@handles("aten.logcumsumexp.default")
def running_log_sum(b: TorchEmit, x: Tensor, *, dim: int) -> Tensor:
    """The logarithms of sums of exponentials of all elements up to each, without overflow: the greatest so far, and the
    sum of the others' exponentials as parts of its own, so that no logarithm is rounded but those that are results."""
    if not x.rank:
        return x
    axis = b.axis(dim, x.rank)
    order = [axis, *(a for a in range(x.rank) if a != axis)]
    moved = b.transpose(b.wide(x), order)
    nothing, no_others = (b.broadcast(b.scalar(n, moved.dtype), moved.shape[1:]) for n in (float("-inf"), 0.0))
    loop = Loop(b, "logcumsumexp", moved.shape[0], [nothing, no_others], [moved], [False])
    (before, others), (one,), body = loop.states, loop.slices, loop.b
    high, low = body.map("max", before, one), body.map("min", before, one)
    alike = body.map("and", body.map("eq", low, high), body.map("isinf", low))
    part = body.map("exp", body.select(alike, float("-inf"), low - high))
    others = body.select(body.map("lt", before, one), (others + 1) * part, others + part)
    made = high + body.map("log1p", others)
    _, (found,) = loop.finish([high, others], [made], [False])
    return b.done(b.transpose(found, [order.index(a) for a in range(x.rank)]))


def _norm(b: TorchEmit, x: Tensor, p: float) -> Tensor:
    """The p-norm along the last dimension: for 0 the number of elements other than 0, for infinity the greatest."""
    size, last = b.map("abs", x), [x.rank - 1]
    if p == 0:
        return b.reduce("sum", b.cast(b.truth(x), x.dtype), last)
    if p == 1:
        return b.reduce("sum", size, last)
    if p == 2:
        return b.map("sqrt", b.reduce("sum", x * x, last))
    if p == float("inf"):
        return b.reduce("max", size, last)
    return b.map("pow", b.reduce("sum", b.map("pow", size, p), last), 1 / p)


@handles("aten._cdist_forward.default")
def distances(b: TorchEmit, x: Tensor, y: Tensor, *, p: float, compute_mode: int | None = None) -> Tensor:
    """The p-norms of the differences of each row of x and each row of y."""
    if isinstance(x.shape[-1], Const) and x.shape[-1].value == 0:
        return b.broadcast(b.scalar(0, b.result.dtype), b.extents)
    apart = b.unsqueeze(b.wide(x), [x.rank - 1]) - b.unsqueeze(b.wide(y), [y.rank - 2])
    return b.done(_norm(b, apart, p))


@handles("aten._pdist_forward.default")
def pair_distances(b: TorchEmit, x: Tensor, *, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of each row and each row behind it."""
    static = static_of(x.shape)
    if static is None or static[0] > MOST_ROWS:
        raise Unsupported(f"distances of {x.shape[0]} rows are not supported: {MOST_ROWS} at most")
    if static[0] < 2 or static[1] == 0:
        return b.broadcast(b.scalar(0, b.result.dtype), b.extents)
    first, second = (b.of_array(i.astype(np.int64)) for i in np.triu_indices(static[0], 1))
    return b.done(_norm(b, b.take(b.wide(x), first, 0) - b.take(b.wide(x), second, 0), p))


MOST_ROWS = 256
"""Of which all pairs are constants of a program: 32640."""
