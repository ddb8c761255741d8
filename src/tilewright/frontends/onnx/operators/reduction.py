"""Reductions over axes, which are an attribute, an input known while the model is read, or dynamic."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

from tilewright.expr.build import equal, select
from tilewright.expr.nodes import Expr, Or, const
from tilewright.frontends.build.composed import mean_over
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.dynamic_axes import count_of, named_dimensions
from tilewright.frontends.onnx.operators.permute import permuted
from tilewright.frontends.onnx.registry import Ints, handles

Over = Callable[[Emit, Tensor, Sequence[int], bool], Tensor]


def _plain(kind: str, truth: str | None = None) -> Over:
    def over(b: Emit, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
        if x.dtype.is_bool and truth is None:
            raise Unsupported("reductions of truth values other than ReduceMin and ReduceMax are not supported")
        return b.reduce(truth if x.dtype.is_bool and truth else kind, x, axes, keepdims)

    return over


def _absolute(b: Emit, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return b.reduce("sum", b.map("abs", x), axes, keepdims)


def _squares(b: Emit, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return b.reduce("sum", x * x, axes, keepdims)


def _euclidean(b: Emit, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    if not x.dtype.is_float:
        raise Unsupported("ReduceL2 of integers is not supported")
    return b.map("sqrt", _squares(b, x, axes, keepdims))


def _log_sum(b: Emit, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return b.map("log", b.reduce("sum", x, axes, keepdims))


def _log_sum_exp(b: Emit, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    """log(sum(exp(x))), with the maximum taken out so that nothing overflows; infinite maxima stay in."""
    top = b.reduce("max", x, axes, keepdims=True)
    top = b.select(b.map("isinf", top), 0, top) if x.dtype.is_float else top
    total = b.map("log", b.reduce("sum", b.map("exp", x - top), axes, keepdims)) if axes else x - top
    return total + (top if keepdims or not axes else b.squeeze(top, axes))


_KINDS: dict[str, Over] = {
    "ReduceSum": _plain("sum"),
    "ReduceProd": _plain("prod"),
    "ReduceMax": _plain("max", "any"),
    "ReduceMin": _plain("min", "all"),
    "ReduceMean": mean_over,
    "ReduceL1": _absolute,
    "ReduceL2": _euclidean,
    "ReduceSumSquare": _squares,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}


def _by_attribute(over: Over) -> Callable[..., Tensor]:
    def handler(b: Emit, x: Tensor, *, axes: Ints | None = None, keepdims: int = 1) -> Tensor:
        chosen = range(x.rank) if axes is None else b.axes(axes, x.rank)
        return over(b, x, list(chosen), bool(keepdims))

    return handler


def _by_input(over: Over) -> Callable[..., Tensor]:
    def handler(
        b: Emit, x: Tensor, axes: Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        if axes is None or axes.shape == (const(0),):
            chosen: list[int] | None = [] if noop_with_empty_axes else list(range(x.rank))
            return over(b, x, chosen or [], bool(keepdims))
        known = b.integers(axes, "the axes")
        if known is not None:
            return over(b, x, b.axes(known, x.rank), bool(keepdims))
        return _over_unknown(b, x, axes, over, bool(keepdims))

    return handler


def _over_unknown(b: Emit, x: Tensor, axes: Tensor, over: Over, keepdims: bool) -> Tensor:
    """A reduction over dynamic axes: they are transposed to the end, by a permutation made of them."""
    count = count_of(b, axes)
    if count > x.rank:
        raise b.error(f"there are {count} axes of {x.rank} dimensions")
    named = named_dimensions(b, axes, x.rank)
    number = functools.reduce(operator.add, named, const(0))
    b.require_equal(number, count, "the axes name a dimension twice: {0} different ones of {1}")
    before: Expr = const(0)
    kept: Expr = const(0)
    places: list[Expr] = []
    for mark in named:
        places.append(select(equal(mark, 1), before + (x.rank - count), kept))
        before, kept = before + mark, kept + (1 - mark)
    result = over(b, permuted(b, x, places), list(range(x.rank - count, x.rank)), False)
    if not keepdims:
        return result
    return b.reshape(result, [select(equal(mark, 1), 1, extent) for mark, extent in zip(named, x.shape, strict=True)])


for _name, _over in _KINDS.items():
    _change = 13 if _name == "ReduceSum" else 18
    handles(_name, until=_change - 1)(_by_attribute(_over))
    handles(_name, since=_change)(_by_input(_over))


def _arg(kind: str) -> Callable[..., Tensor]:
    def handler(b: Emit, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        return b.arg_reduce(kind, x, b.axis(axis, x.rank), bool(keepdims), bool(select_last_index))

    return handler


handles("ArgMax")(_arg("max"))
handles("ArgMin")(_arg("min"))


def _cumulative(kind: str) -> Callable[..., Tensor]:
    def handler(b: Emit, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        flags = {"exclusive": bool(exclusive), "reverse": bool(reverse)}
        known = b.integers(axis, "the axis")
        if known is not None:
            return b.cumulative(kind, x, b.axis(known[0], x.rank), **flags)
        chosen = b.size(axis, "the axis", -x.rank, x.rank - 1)
        result = b.cumulative(kind, x, 0, **flags)
        for d in range(1, x.rank):
            here = b.of_condition(Or(equal(chosen, d), equal(chosen, d - x.rank)))
            result = b.select(here, b.cumulative(kind, x, d, **flags), result)
        return result

    return handler


handles("CumSum")(_cumulative("sum"))
handles("CumProd")(_cumulative("prod"))
