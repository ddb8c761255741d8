"""Data movement: the same elements at other places. Nothing is computed but indices.

    reshape(x: f32[n, 6], shape=(n, 2, 3))      transpose(x: f32[n, m], perm=(1, 0))      slice, pad, concat, broadcast

Indices are exact for every size, zero included, and every load is within its buffer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from tilewright.core.walk import preorder
from tilewright.expr.build import maximum, minimum
from tilewright.expr.nodes import Const, Eq, Expr, Le, Lt, Or, Select, call
from tilewright.expr.simplify import simplify
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
from tilewright.types.tensor import TensorType, dim, shape_of

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


class PadMode(Enum):
    """What fills the padding: a value, the nearest element, the mirror image without its first element, or the tensor
    repeated."""

    CONSTANT = "constant"
    EDGE = "edge"
    REFLECT = "reflect"
    WRAP = "wrap"


class PadAttributes(Attributes):
    """The number of elements added before and after each dimension (negative: removed), and what fills them."""

    low: tuple[Expr, ...]
    high: tuple[Expr, ...]
    mode: PadMode = PadMode.CONSTANT

    @property
    def surrounds(self) -> bool:
        """Whether the whole input stands inside known numbers of elements of one value."""
        counts = [number(e) for e in (*self.low, *self.high)]
        return self.mode is PadMode.CONSTANT and all(n is not None and n >= 0 for n in counts)


class Pad(Op):
    """out[i, …] = x[i - low, …] where that is inside, else what `mode` says. Inputs: x, and the scalar value that the
    mode `constant` fills with."""

    name = "pad"
    cost = Work(plain=3)
    attributes = PadAttributes

    def infer(self, context: TypeContext, inputs: Types, attrs: PadAttributes) -> Types:
        check_count(context, inputs, 2)
        x, value = inputs
        check_rank(context, value, 0, "the value of pad")
        check_same_dtype(context, inputs)
        check_length(context, x, attrs.low, "low")
        check_length(context, x, attrs.high, "high")
        out = TensorType.of(x.dtype, [lo + n + hi for lo, n, hi in zip(attrs.low, x.shape, attrs.high, strict=True)])
        check_sizes(context, out)
        if attrs.mode is not PadMode.CONSTANT:
            for d, (low, extent, high) in enumerate(zip(attrs.low, x.shape, attrs.high, strict=True)):
                self._check_source(context, x, attrs.mode, d, low, extent, high)
        return (out,)

    def _check_source(
        self, context: TypeContext, x: TensorType, mode: PadMode, d: int, low: Expr, extent: Expr, high: Expr
    ) -> None:
        """The dimension has the elements that padding it by low and high copies."""
        added = [count for count in (low, high) if not (isinstance(count, Const) and count.value <= 0)]
        if mode is PadMode.REFLECT:
            for count in added:
                why = f"reflecting {count} elements at an end of dimension {d} of {x} takes more than it has"
                context.require(Lt(count, extent), why)
        elif added:
            context.require(Le(ONE, extent), f"dimension {d} of {x} has no elements to pad it with")

    def reordered(self, attrs: PadAttributes, order: tuple[int, ...]) -> Attributes:
        return permuted(attrs, order)

    def meaning(self, inputs: Arrays, attrs: PadAttributes) -> Arrays:
        x, value = inputs
        low, high = sizes(attrs.low), sizes(attrs.high)
        shape = [lo + n + hi for lo, n, hi in zip(low, x.shape, high, strict=True)]
        if 0 in shape:
            return (np.empty(shape, x.dtype),)
        places = [np.arange(lo + n + hi) - lo for lo, n, hi in zip(low, x.shape, high, strict=True)]
        if attrs.mode is not PadMode.CONSTANT:
            picked = [_numpy_source(attrs.mode, at, n) for at, n in zip(places, x.shape, strict=True)]
            return (np.asarray(x[np.ix_(*picked)]),)
        out = np.full([len(at) for at in places], value, x.dtype)
        inside = [np.flatnonzero((at >= 0) & (at < n)) for at, n in zip(places, x.shape, strict=True)]
        source = [at[where] for at, where in zip(places, inside, strict=True)]
        out[np.ix_(*inside)] = x[np.ix_(*source)]
        return (out,)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x, value), (out,) = inputs, outputs
        bounds = list(zip(attrs.low, x.shape, attrs.high, strict=True))
        if attrs.mode is PadMode.CONSTANT:
            first = [maximum(lo, 0) for lo, _, _ in bounds]
            counts = [_copied(lo, n, hi) for lo, n, hi in bounds]
            behind = [simplify(n - f - count) for n, f, count in zip(out.shape, first, counts, strict=True)]
            in_slabs = all(number(e) is not None for e in (*first, *behind)) and all(number(e) != 0 for e in counts)

            def placed(*at: Expr) -> list[Expr]:
                return [i + f for i, f in zip(at, first, strict=True)]

            def copied(*at: Expr) -> Expr:
                return load(x, *[simplify(i + f - lo) for i, f, lo in zip(at, first, attrs.low, strict=True)])

            if not in_slabs:
                build.compute("pad_fill", out, lambda *at: load(value))
            build.compute("pad_copy", out, copied, extents=shape_of(counts), at=placed)
            if in_slabs:
                _fill_around(build, out, value, first, counts, behind)
            return
        build.compute(
            "pad", out, lambda *at: load(x, *[_source(attrs.mode, i, b) for i, b in zip(at, bounds, strict=True)])
        )


def _copied(low: Expr, extent: Expr, high: Expr) -> Expr:
    """How much of a dimension is copied: all of it where nothing is cut off."""
    if all((n := number(e)) is not None and n >= 0 for e in (low, high)):
        return extent
    return maximum(low + extent + minimum(high, 0) - maximum(low, 0), 0)


def _fill_around(
    build: Builder, out: Buffer, value: Buffer, first: list[Expr], counts: list[Expr], behind: list[Expr]
) -> None:
    """Fills what is not inside first .. first + counts, a box inside the output with so much `behind` it: slab by slab
    before and behind it in each dimension, so that nothing is written twice."""
    for d, (begin, count) in enumerate(zip(first, counts, strict=True)):
        for start, size in ((ZERO, begin), (begin + count, behind[d])):
            if size is ZERO:
                continue
            offsets = [*first[:d], start, *[ZERO] * (len(first) - d - 1)]
            extents = [*counts[:d], size, *out.shape[d + 1 :]]

            def placed(*at: Expr, offsets: list[Expr] = offsets) -> list[Expr]:
                return [i + o for i, o in zip(at, offsets, strict=True)]

            build.compute("pad_fill", out, lambda *at: load(value), extents=extents, at=placed)


def _source(mode: PadMode, i: Expr, bounds: tuple[Expr, Expr, Expr]) -> Expr:
    """The index that place i of a padded dimension copies; inside the dimension for every i of the output."""
    low, extent, high = bounds
    if low is ZERO and high is ZERO:
        return i
    at, last = i - low, extent - 1
    if mode is PadMode.EDGE:
        return minimum(maximum(at, 0), last)
    if mode is PadMode.WRAP:
        return at % extent
    return last - call("abs", last - call("abs", at))


def _numpy_source(mode: PadMode, at: np.ndarray[Any, Any], extent: int) -> np.ndarray[Any, Any]:
    last = extent - 1
    match mode:
        case PadMode.EDGE:
            picked = np.clip(at, 0, last)
        case PadMode.WRAP:
            picked = at % max(extent, 1)
        case _:
            picked = last - np.abs(last - np.abs(at))
    return np.asarray(picked)


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


for _op in (Reshape(), Transpose(), BroadcastOp(), Slice(), Pad(), Concat()):
    register(_op)
