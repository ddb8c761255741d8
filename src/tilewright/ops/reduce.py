"""Reductions: elements combined along axes.

    reduce(x: f32[n, m], kind="sum", axes=(1,), keepdims=False)  ->  f32[n]

Elements combine in ascending index order. Sums and products of 16-bit floats are kept in f32 and rounded once; integers
wrap around. Over no elements a reduction gives its neutral element: 0, 1, false, true, the least or the greatest value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.build import cast, less, maximum, minimum, select
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import And, Const, Expr, Le, Not, Or, call, const
from tilewright.expr.work import Work
from tilewright.graph.nodes import Node
from tilewright.graph.op import Arrays, Attributes, Op, Pattern, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer
from tilewright.ops.blocks import accumulate_wide
from tilewright.ops.checks import ONE, check_axes, check_axis, check_count, check_kind, wide
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]


class ReduceKind(Enum):
    """How elements combine."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    ANY = "any"
    ALL = "all"


COMBINE: dict[ReduceKind, Callable[[Expr, Expr], Expr]] = {
    ReduceKind.SUM: lambda a, b: a + b,
    ReduceKind.PROD: lambda a, b: a * b,
    ReduceKind.MAX: maximum,
    ReduceKind.MIN: minimum,
    ReduceKind.ANY: Or,
    ReduceKind.ALL: And,
}
"""The combination of two elements, as an expression."""

UFUNC: dict[ReduceKind, np.ufunc] = {
    ReduceKind.SUM: np.add,
    ReduceKind.PROD: np.multiply,
    ReduceKind.MAX: np.maximum,
    ReduceKind.MIN: np.minimum,
    ReduceKind.ANY: np.logical_or,
    ReduceKind.ALL: np.logical_and,
}
"""The combination of two elements, as NumPy calls it."""

KINDS: dict[ReduceKind, str] = {
    ReduceKind.SUM: "iuf",
    ReduceKind.PROD: "iuf",
    ReduceKind.MAX: "biuf",
    ReduceKind.MIN: "biuf",
    ReduceKind.ANY: "b",
    ReduceKind.ALL: "b",
}
"""The kinds of element type that a reduction takes."""


def neutral(kind: ReduceKind, dtype: DType) -> Const:
    """The element that changes nothing, which is also the reduction of no elements."""
    values: dict[ReduceKind, int | float] = {
        ReduceKind.SUM: 0,
        ReduceKind.PROD: 1,
        ReduceKind.MAX: dtype.min,
        ReduceKind.MIN: dtype.max,
        ReduceKind.ANY: False,
        ReduceKind.ALL: True,
    }
    return const(values[kind], dtype)


def accumulator(kind: ReduceKind, dtype: DType) -> DType:
    """The type that a reduction of `dtype` is kept in while it runs."""
    return wide(dtype) if kind in (ReduceKind.SUM, ReduceKind.PROD) else dtype


def reduced(x: np.ndarray[Any, Any], kind: ReduceKind, axes: Sequence[int], keepdims: bool) -> np.ndarray[Any, Any]:
    """NumPy's reduction with the accumulator, the neutral element and the wrapping that are promised here."""
    kept = wide(element_type(x))
    first = np.asarray(neutral(kind, kept).value, kept.numpy)[()]
    with np.errstate(all="ignore"):
        total = UFUNC[kind].reduce(
            x.astype(kept.numpy), axis=tuple(axes), dtype=kept.numpy, keepdims=keepdims, initial=first
        )
    return np.asarray(total, kept.numpy).astype(x.dtype)


def element_type(x: np.ndarray[Any, Any]) -> DType:
    """The element type of an array that holds a tensor."""
    found = dtypes.from_numpy(x.dtype)
    assert found is not None, f"arrays of {x.dtype} are no tensors"
    return found


def define_reduction(
    build: Builder,
    name: str,
    kind: ReduceKind,
    out: Buffer,
    extents: Sequence[Expr],
    element: Callable[..., Expr],
) -> None:
    """out[i, …] = the combination of element(i, …, r, …) over every point r, … of the extents."""
    if not extents:
        build.compute(name, out, element)
        return
    kept, combine = accumulator(kind, out.dtype), COMBINE[kind]
    add = accumulate_wide if kept is not out.dtype else Builder.accumulate
    add(
        build,
        name,
        out,
        extents,
        init=neutral(kind, kept),
        update=lambda total, *at: combine(total, cast(element(*at), kept)),
    )


class ReduceAttributes(Attributes):
    """`kind`: how elements combine; `axes`: along which dimensions; `keepdims`: these stay, with size 1."""

    kind: ReduceKind
    axes: tuple[int, ...]
    keepdims: bool = False


def rows_of(node: Node) -> tuple[Expr, ...] | None:
    """The leading dimensions of a reduction over trailing axes: its rows. None for any other node."""
    if not isinstance(node.attrs, ReduceAttributes) or not node.attrs.axes:
        return None
    shape = node.inputs[0].type.shape
    kept = len(shape) - len(node.attrs.axes)
    return shape[:kept] if kept and min(node.attrs.axes) == kept else None


class Reduce(Op):
    """Elements combined along axes; over no axes the input itself."""

    name = "reduce"
    attributes = ReduceAttributes
    pattern = Pattern.REDUCE

    def infer(self, context: TypeContext, inputs: Types, attrs: ReduceAttributes) -> Types:
        check_count(context, inputs, 1)
        (x,) = inputs
        check_kind(context, x, KINDS[attrs.kind], attrs.kind.value)
        check_axes(context, x, attrs.axes)
        return (TensorType(x.dtype, shape_without(x, attrs.axes, attrs.keepdims)),)

    def meaning(self, inputs: Arrays, attrs: ReduceAttributes) -> Arrays:
        return (reduced(inputs[0], attrs.kind, attrs.axes, attrs.keepdims),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (out,) = inputs, outputs
        axes = sorted(attrs.axes)
        define_reduction(
            build,
            attrs.kind.value,
            attrs.kind,
            out,
            [x.shape[a] for a in axes],
            lambda *at: load(x, *source_index(at, len(x.shape), axes, attrs.keepdims)),
        )


def shape_without(x: TensorType, axes: Sequence[int], keepdims: bool) -> tuple[Expr, ...]:
    """The shape after the axes are reduced: without them, or with size 1 in their place."""
    if keepdims:
        return tuple([ONE if d in axes else extent for d, extent in enumerate(x.shape)])
    return tuple([extent for d, extent in enumerate(x.shape) if d not in axes])


def source_index(at: Sequence[Expr], rank: int, axes: Sequence[int], keepdims: bool) -> list[Expr]:
    """The input index of the point `at`: the output's index, then one index for each of the ascending axes."""
    inner = dict(zip(axes, at[len(at) - len(axes) :], strict=True))
    outer = iter([i for d, i in enumerate(at[:rank]) if d not in inner] if keepdims else at)
    return [inner[d] if d in inner else next(outer) for d in range(rank)]


class ArgReduceAttributes(Attributes):
    """`kind`: max or min; `axis`: along which dimension; `keepdims`: it stays, with size 1; `last`: of equal elements
    the last one's index instead of the first one's."""

    kind: ReduceKind
    axis: int
    keepdims: bool = False
    last: bool = False


class ArgReduce(Op):
    """The i64 index of the greatest or least element along an axis, which is not empty. NaN counts as both."""

    name = "arg_reduce"
    cost = Work(plain=5)
    attributes = ArgReduceAttributes
    pattern = Pattern.REDUCE

    def infer(self, context: TypeContext, inputs: Types, attrs: ArgReduceAttributes) -> Types:
        check_count(context, inputs, 1)
        (x,) = inputs
        check_one_of(context, attrs.kind, (ReduceKind.MAX, ReduceKind.MIN))
        check_kind(context, x, "biuf")
        check_axis(context, x, attrs.axis)
        extent = x.shape[attrs.axis]
        if not isinstance(extent, Const) or extent.value == 0:
            context.require(Le(ONE, extent), f"axis {attrs.axis} of {x} has no elements, so none is the {_word(attrs)}")
        return (TensorType(dtypes.index, shape_without(x, (attrs.axis,), attrs.keepdims)),)

    def meaning(self, inputs: Arrays, attrs: ArgReduceAttributes) -> Arrays:
        (x,) = inputs
        x = x.astype(wide(element_type(x)).numpy)
        find = np.argmax if attrs.kind is ReduceKind.MAX else np.argmin
        if attrs.last:
            index = x.shape[attrs.axis] - 1 - find(np.flip(x, attrs.axis), axis=attrs.axis, keepdims=attrs.keepdims)
        else:
            index = find(x, axis=attrs.axis, keepdims=attrs.keepdims)
        return (np.asarray(index, np.int64),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (out,) = inputs, outputs
        axis, rank = attrs.axis, len(x.shape)

        def update(best: Expr, *at: Expr) -> Expr:
            place = source_index(at, rank, (axis,), attrs.keepdims)
            leader = load(x, *place[:axis], best, *place[axis + 1 :])
            return select(_beats(load(x, *place), leader, attrs), place[axis], best)

        build.accumulate(f"arg_{attrs.kind.value}", out, [x.shape[axis]], init=0, update=update)


def _word(attrs: ArgReduceAttributes) -> str:
    return "greatest" if attrs.kind is ReduceKind.MAX else "least"


def _beats(new: Expr, best: Expr, attrs: ArgReduceAttributes) -> Expr:
    """Whether the element `new` takes the place of `best`, which is before it (or is it)."""
    a, b = (best, new) if attrs.kind is ReduceKind.MAX else (new, best)
    better = Le(a, b) if attrs.last else less(a, b)
    if not new.dtype.is_float:
        return better
    if attrs.last:
        return Or(call("isnan", new), And(better, Not(call("isnan", best))))
    return Or(better, And(call("isnan", new), Not(call("isnan", best))))


def check_one_of(context: TypeContext, kind: ReduceKind, allowed: Sequence[ReduceKind]) -> None:
    """The kind is one that the operator knows."""
    if kind not in allowed:
        names = ", ".join(k.value for k in allowed)
        raise context.error(f"{context.op} has no kind {kind.value}", f"the kinds are {names}")


for _op in (Reduce(), ArgReduce()):
    register(_op)
