"""Reductions over sliding windows: pooling.

    window_reduce(x: f32[1, 8, h, w], kind="max", window=(1, 1, 3, 3), strides=(1, 1, 2, 2), dilations=(1, 1, 1, 1))

Only whole windows count: an input that needs padding is padded before. Order and accumulators are those of reduce.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.expr.nodes import Expr, Le, const
from tilewright.graph.op import Arrays, Attributes, Op, Pattern, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer
from tilewright.ops.checks import check_count, check_kind, check_length, number
from tilewright.ops.movement import permuted
from tilewright.ops.reduce import KINDS, ReduceKind, check_one_of, define_reduction, reduced
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]


class WindowReduceAttributes(Attributes):
    """`kind`: max, min or sum; for each dimension the number of elements in a window, the distance from one window to
    the next, and the distance between the elements of one."""

    kind: ReduceKind
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


class WindowReduce(Op):
    """out[i, …] = x[i*stride + w*dilation, …] combined over every w of the window; along a dimension of n elements
    there are (n - ((window - 1)*dilation + 1)) // stride + 1 windows."""

    name = "window_reduce"
    rereads = True
    takes_padding = True
    known_by_axes = True
    attributes = WindowReduceAttributes
    pattern = Pattern.REDUCE

    def infer(self, context: TypeContext, inputs: Types, attrs: WindowReduceAttributes) -> Types:
        check_count(context, inputs, 1)
        (x,) = inputs
        check_one_of(context, attrs.kind, (ReduceKind.MAX, ReduceKind.MIN, ReduceKind.SUM))
        check_kind(context, x, KINDS[attrs.kind], attrs.kind.value)
        for field in ("window", "strides", "dilations"):
            values = getattr(attrs, field)
            check_length(context, x, values, field)
            if any(v < 1 for v in values):
                raise context.error(f"{field} {values} has an entry below 1")
        return (TensorType.of(x.dtype, [self._extent(context, x, attrs, d) for d in range(x.rank)]),)

    def _extent(self, context: TypeContext, x: TensorType, attrs: WindowReduceAttributes, d: int) -> Expr:
        """The number of windows along dimension d."""
        extent, window, stride = x.shape[d], attrs.window[d], attrs.strides[d]
        if window == 1 and stride == 1:
            return extent
        span = (window - 1) * attrs.dilations[d] + 1
        known = number(extent)
        if span > 1 and (known is None or known < span):
            context.require(Le(const(span), extent), f"a window of {span} elements does not fit dimension {d} of {x}")
        return (extent - span) // stride + 1

    def reordered(self, attrs: WindowReduceAttributes, order: tuple[int, ...]) -> Attributes:
        return permuted(attrs, order)

    def meaning(self, inputs: Arrays, attrs: WindowReduceAttributes) -> Arrays:
        (x,) = inputs
        spans = [(w - 1) * d + 1 for w, d in zip(attrs.window, attrs.dilations, strict=True)]
        shape = [(n - span) // s + 1 for n, span, s in zip(x.shape, spans, attrs.strides, strict=True)]
        if x.ndim == 0 or 0 in shape:
            return (x.reshape(-1)[: math.prod(shape)].reshape(shape).copy(),)
        windows = np.lib.stride_tricks.sliding_window_view(x, spans)
        picked = windows[tuple([slice(None, None, step) for step in attrs.strides + attrs.dilations])]
        return (reduced(picked, attrs.kind, range(x.ndim, 2 * x.ndim), False),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (out,) = inputs, outputs
        rank = len(x.shape)
        moving = [d for d in range(rank) if attrs.window[d] > 1]

        def element(*at: Expr) -> Expr:
            inner = dict(zip(moving, at[rank:], strict=True))
            index = [at[d] * attrs.strides[d] for d in range(rank)]
            return load(x, *[i + inner[d] * attrs.dilations[d] if d in inner else i for d, i in enumerate(index)])

        extents = [const(attrs.window[d]) for d in moving]
        define_reduction(build, f"window_{attrs.kind.value}", attrs.kind, out, extents, element)


register(WindowReduce())
