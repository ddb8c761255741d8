"""Data movement: the same elements at other places. Nothing is computed but indices.

    reshape(x: f32[n, 6], shape=(n, 2, 3))      transpose(x: f32[n, m], perm=(1, 0))      slice, concat, broadcast

Indices are exact for every size, zero included, and every load is within its buffer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.core.walk import preorder
from tilewright.expr.nodes import Const, Eq, Expr, Or, Select
from tilewright.expr.work import Work
from tilewright.graph.op import Arrays, Attributes, Op, Pattern, TypeContext, register
from tilewright.loops.build import Builder, load, load_broadcast
from tilewright.loops.nodes import Buffer
from tilewright.ops.checks import (
    ONE,
    ZERO,
    check_axes,
    check_axis,
    check_count,
    check_length,
    check_rank,
    check_same_dtype,
    check_sizes,
    number,
)
from tilewright.types.tensor import TensorType, dim

Types = tuple[TensorType, ...]


class ShapeAttributes(Attributes):
    """`shape`: the shape of the output."""

    shape: tuple[Expr, ...]


class Reshape(Op):
    """The same elements in the same row-major order under another shape."""

    name = "reshape"
    moves = True
    cost = Work()
    attributes = ShapeAttributes
    pattern = Pattern.VIEW

    def infer(self, context: TypeContext, inputs: Types, attrs: ShapeAttributes) -> Types:
        check_count(context, inputs, 1)
        out = TensorType(inputs[0].dtype, attrs.shape)
        check_sizes(context, out)
        if not _same_factors(inputs[0].shape, out.shape):
            before, after = inputs[0].size, out.size
            if before is not after:
                context.require_equal(before, after, f"the numbers of elements of {inputs[0]} and {_shown(out)}")
        return (out,)

    def meaning(self, inputs: Arrays, attrs: ShapeAttributes) -> Arrays:
        return (inputs[0].reshape(sizes(attrs.shape)),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (out,) = inputs, outputs
        build.compute("reshape", out, lambda *at: load(x, *reshaped(at, out.shape, x.shape)))


def _shown(type: TensorType) -> str:
    """A type for a message; a shape that the call computes from data is no help to read."""
    return "the shape asked for" if any(isinstance(d, Select) for d in preorder(type.shape)) else str(type)


def _same_factors(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """Whether both shapes are the same symbolic sizes and equal products of numbers: the quick proof of equal sizes."""
    rest = [extent for extent in b if not isinstance(extent, Const)]
    for extent in a:
        if not isinstance(extent, Const):
            if extent not in rest:
                return False
            rest.remove(extent)
    return not rest and math.prod(sizes(a)) == math.prod(sizes(b))


def reshaped(at: Sequence[Expr], shape: Sequence[Expr], source: Sequence[Expr]) -> list[Expr]:
    """The index in `source` of the element that has the index `at` in `shape`, both holding the same elements in
    row-major order. Leading and trailing dimensions that agree keep their indices; only those between are
    divided."""
    head = tail = 0
    most = min(len(shape), len(source))
    while head < most and shape[head] is source[head]:
        head += 1
    while head + tail < most and shape[-1 - tail] is source[-1 - tail]:
        tail += 1
    linear: Expr = ZERO
    for index, extent in zip(at[head : len(shape) - tail], shape[head : len(shape) - tail], strict=True):
        linear = linear * extent + index
    middle = source[head : len(source) - tail]
    picked: list[Expr] = []
    stride: Expr = ONE
    for n, extent in enumerate(reversed(middle)):
        quotient = linear // stride
        picked.append(ZERO if extent is ONE else quotient if n == len(middle) - 1 else quotient % extent)
        stride = extent * stride
    return [*at[:head], *reversed(picked), *at[len(shape) - tail :]]


class TransposeAttributes(Attributes):
    """`perm`: dimension d of the output is dimension perm[d] of the input."""

    perm: tuple[int, ...]


class Transpose(Op):
    """The dimensions in another order."""

    name = "transpose"
    moves = True
    cost = Work(shuffles=3)
    attributes = TransposeAttributes
    pattern = Pattern.MAP

    def infer(self, context: TypeContext, inputs: Types, attrs: TransposeAttributes) -> Types:
        check_count(context, inputs, 1)
        (x,) = inputs
        check_length(context, x, attrs.perm, "perm")
        check_axes(context, x, attrs.perm)
        return (TensorType(x.dtype, tuple([x.shape[p] for p in attrs.perm])),)

    def meaning(self, inputs: Arrays, attrs: TransposeAttributes) -> Arrays:
        return (np.transpose(inputs[0], attrs.perm),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (out,) = inputs, outputs
        places = [attrs.perm.index(d) for d in range(len(attrs.perm))]
        build.compute("transpose", out, lambda *at: load(x, *[at[p] for p in places]))


class BroadcastOp(Op):
    """The tensor repeated to a larger shape, as NumPy's broadcast_to: trailing dimensions are aligned, and a size is
    that of the output or 1."""

    name = "broadcast"
    moves = True
    attributes = ShapeAttributes
    pattern = Pattern.MAP

    def infer(self, context: TypeContext, inputs: Types, attrs: ShapeAttributes) -> Types:
        check_count(context, inputs, 1)
        (x,) = inputs
        out = TensorType(x.dtype, attrs.shape)
        check_sizes(context, out)
        if x.rank > out.rank:
            raise context.error(f"{x} has more dimensions than {out}", "broadcasting only adds dimensions in front")
        for extent, target in zip(x.shape, out.shape[out.rank - x.rank :], strict=True):
            if extent is target or extent is ONE:
                continue
            cond: Expr = Eq(extent, target)
            if number(extent) is None:
                cond = Or(Eq(extent, ONE), cond)
            context.require(cond, f"{x} does not broadcast to {out}")
        return (out,)

    def meaning(self, inputs: Arrays, attrs: ShapeAttributes) -> Arrays:
        return (np.broadcast_to(inputs[0], sizes(attrs.shape)).copy(),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (out,) = inputs, outputs
        build.compute("broadcast", out, lambda *at: load_broadcast(x, at, out.shape))


class SliceAttributes(Attributes):
    """For each dimension the first index, the number of elements, and the step between them (negative: backwards)."""

    starts: tuple[Expr, ...]
    sizes: tuple[Expr, ...]
    steps: tuple[Expr, ...]


def permuted(record: Attributes, order: Sequence[int]) -> Attributes:
    """The record with each tuple of a value for each dimension in another order of these."""
    values = [tuple([v[d] for d in order]) if isinstance(v, tuple) else v for v in record.field_values()]
    return type(record)(*values)


class Slice(Op):
    """out[i, …] = x[start + i*step, …]. The caller has clamped: every such index is inside the dimension."""

    name = "slice"
    moves = True
    reads_part = True
    attributes = SliceAttributes
    pattern = Pattern.MAP

    def infer(self, context: TypeContext, inputs: Types, attrs: SliceAttributes) -> Types:
        check_count(context, inputs, 1)
        (x,) = inputs
        for field in ("starts", "sizes", "steps"):
            check_length(context, x, getattr(attrs, field), field)
        out = TensorType(x.dtype, attrs.sizes)
        check_sizes(context, out)
        for d in range(x.rank):
            start, count, step = attrs.starts[d], attrs.sizes[d], attrs.steps[d]
            if not _inside(number(start), number(count), number(step), number(x.shape[d])):
                why = f"dimension {d} of {x} has no {count} elements from {start} on in steps of {step}"
                raise context.error(why, "clamp start and size to the dimension")
        return (out,)

    def reordered(self, attrs: SliceAttributes, order: tuple[int, ...]) -> Attributes:
        return permuted(attrs, order)

    def meaning(self, inputs: Arrays, attrs: SliceAttributes) -> Arrays:
        counts = sizes(attrs.sizes)
        if 0 in counts:
            return (np.empty(counts, inputs[0].dtype),)
        picked = [
            start + step * np.arange(size)
            for start, size, step in zip(sizes(attrs.starts), counts, sizes(attrs.steps), strict=True)
        ]
        return (np.asarray(inputs[0][np.ix_(*picked)]),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (out,) = inputs, outputs
        rule = list(zip(attrs.starts, attrs.steps, strict=True))
        build.compute("slice", out, lambda *at: load(x, *[s + i * step for i, (s, step) in zip(at, rule, strict=True)]))


def _inside(start: int | None, count: int | None, step: int | None, extent: int | None) -> bool:
    """Whether the first and the last element are inside the dimension, as far as the numbers that are known tell."""
    if start is None or count is None or count == 0:
        return True
    last = start + (count - 1) * step if step is not None else start
    return all(at >= 0 and (extent is None or at < extent) for at in (start, last))


MOST_JOINED = 64
"""The most parts that a front end or a rule concatenates in one operator: a kernel has a nest for each part, and every
step of its schedule looks at all nests. More are concatenated in groups, whose kernels are mostly the same program."""


class ConcatAttributes(Attributes):
    """`axis`: the dimension along which the inputs follow each other."""

    axis: int


class Concat(Op):
    """The inputs concatenated along an axis; all other sizes are equal."""

    name = "concat"
    cost = Work(plain=3)
    attributes = ConcatAttributes

    def infer(self, context: TypeContext, inputs: Types, attrs: ConcatAttributes) -> Types:
        if not inputs:
            raise context.error("concat takes at least 1 input")
        check_same_dtype(context, inputs)
        first, axis = inputs[0], attrs.axis
        check_axis(context, first, axis)
        shape = list(first.shape)
        for n, type in enumerate(inputs[1:], 1):
            check_rank(context, type, first.rank, "the first input of concat")
            for d in range(first.rank):
                if d == axis:
                    shape[d] = shape[d] + type.shape[d]
                elif shape[d] is not type.shape[d]:
                    context.require_equal(shape[d], type.shape[d], f"the sizes of dimension {d} of inputs 0 and {n}")
                    shape[d] = type.shape[d] if isinstance(type.shape[d], Const) else shape[d]
        shape[axis] = dim(shape[axis])
        return (TensorType(first.dtype, tuple(shape)),)

    def reads_once(self, attrs: ConcatAttributes) -> bool:
        return True

    def reordered(self, attrs: ConcatAttributes, order: tuple[int, ...]) -> Attributes:
        return ConcatAttributes(order.index(attrs.axis))

    def meaning(self, inputs: Arrays, attrs: ConcatAttributes) -> Arrays:
        return (np.concatenate(inputs, axis=attrs.axis),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (out,) = outputs
        offset: Expr = ZERO
        for n, x in enumerate(inputs):
            _place(build, f"concat{n}", x, out, attrs.axis, offset)
            offset = dim(offset + x.shape[attrs.axis])


def _place(build: Builder, name: str, x: Buffer, out: Buffer, axis: int, offset: Expr) -> None:
    """The block that copies x to `out`, starting at `offset` along the axis."""
    build.compute(
        name,
        out,
        lambda *at: load(x, *at),
        extents=x.shape,
        at=lambda *at: [i + offset if d == axis else i for d, i in enumerate(at)],
    )


def sizes(exprs: Sequence[Expr]) -> list[int]:
    """The numbers among the expressions: all of them when they have been evaluated."""
    return [int(e.value) for e in exprs if isinstance(e, Const)]


for _op in (Reshape(), Transpose(), BroadcastOp(), Slice(), Concat()):
    register(_op)
