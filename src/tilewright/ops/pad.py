"""Padding: a tensor with elements around it, or with its ends cut off.

    pad(x: f32[n, 3], value, low=(0, 1), high=(0, 1))  ->  f32[n, 5]          zeros, edges, mirror images, repetitions

Every load is within its buffer, for every size, zero included.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from tilewright.expr.build import maximum, minimum
from tilewright.expr.nodes import Const, Expr, Le, Lt, call
from tilewright.expr.simplify import simplify
from tilewright.expr.work import Work
from tilewright.graph.op import Arrays, Attributes, Op, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer
from tilewright.ops.checks import (
    ONE,
    ZERO,
    check_count,
    check_length,
    check_rank,
    check_same_dtype,
    check_sizes,
    number,
)
from tilewright.ops.movement import Types, permuted, sizes
from tilewright.types.tensor import TensorType, shape_of


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

    def reads_once(self, attrs: PadAttributes) -> bool:
        return attrs.surrounds

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


register(Pad())
