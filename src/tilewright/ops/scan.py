"""Scans: running combinations along an axis.

    cumulative(x: f32[n, m], kind="sum", axis=0)         out[i, j] = x[0, j] + … + x[i, j]

Elements combine in order, so floats have one result. 16-bit floats are kept in f32, each output rounded
once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.expr.build import cast, less, maximum
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.work import Work
from tilewright.graph.op import Arrays, Attributes, Op, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer, If, Stmt, Store
from tilewright.ops.blocks import add_block, loop, then
from tilewright.ops.checks import check_axis, check_count, check_kind
from tilewright.ops.reduce import COMBINE, KINDS, UFUNC, ReduceKind, accumulator, check_one_of, element_type, neutral
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]
_SCANS = (ReduceKind.SUM, ReduceKind.PROD, ReduceKind.MAX, ReduceKind.MIN)


class CumulativeAttributes(Attributes):
    """`kind`: sum, prod, max or min; `axis`: along which dimension; `exclusive`: without the element itself, the first
    output being the neutral element; `reverse`: from the last element on."""

    kind: ReduceKind
    axis: int
    exclusive: bool = False
    reverse: bool = False


class Cumulative(Op):
    """Each output element combines the input elements up to its place along an axis."""

    name = "cumulative"
    rereads = True
    cost = Work(steps=0.5)
    attributes = CumulativeAttributes

    def infer(self, context: TypeContext, inputs: Types, attrs: CumulativeAttributes) -> Types:
        check_count(context, inputs, 1)
        check_one_of(context, attrs.kind, _SCANS)
        check_kind(context, inputs[0], KINDS[attrs.kind], attrs.kind.value)
        check_axis(context, inputs[0], attrs.axis)
        return inputs

    def meaning(self, inputs: Arrays, attrs: CumulativeAttributes) -> Arrays:
        (x,) = inputs
        axis = attrs.axis
        source = np.moveaxis(np.flip(x, axis) if attrs.reverse else x, axis, 0)
        kept = _kept(x, attrs.kind)
        with np.errstate(all="ignore"):
            running = UFUNC[attrs.kind].accumulate(source.astype(kept.dtype), axis=0, dtype=kept.dtype)
        if attrs.exclusive and len(source):
            running = np.concatenate([np.full_like(running[:1], kept), running[:-1]])
        result = np.moveaxis(running.astype(x.dtype), 0, axis)
        return (np.flip(result, axis) if attrs.reverse else result,)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (out,) = inputs, outputs
        kept = accumulator(attrs.kind, out.dtype)
        total = out if kept is out.dtype else build.temporary("running", dtype=kept, shape=out.shape)
        others = [extent for d, extent in enumerate(out.shape) if d != attrs.axis]
        add_block(build, f"running_{attrs.kind.value}", others, lambda *rest: _scan(x, total, attrs, rest))
        if total is not out:
            build.compute("running_round", out, lambda *at: cast(load(total, *at), out.dtype))


def _scan(x: Buffer, total: Buffer, attrs: CumulativeAttributes, rest: tuple[Expr, ...]) -> Stmt:
    """Fills `total` along the axis, the other indices being `rest`."""
    extent, axis = total.shape[attrs.axis], attrs.axis

    def at(step: Expr) -> tuple[Expr, ...]:
        return (*rest[:axis], extent - 1 - step if attrs.reverse else step, *rest[axis:])

    def element(step: Expr) -> Expr:
        return cast(load(x, *at(step)), total.dtype)

    step = Var("k")
    combined = COMBINE[attrs.kind](load(total, *at(step)), element(step if attrs.exclusive else step + 1))
    first = Store(total, at(const(0)), neutral(attrs.kind, total.dtype) if attrs.exclusive else element(const(0)))
    further = loop(step, 0, maximum(extent - 1, 0), Store(total, at(step + 1), combined))
    some = less(const(0), extent)
    if isinstance(some, Const):
        return then(first, further) if some.value else then()
    return then(If(some, first), further)


def _kept(x: np.ndarray[Any, Any], kind: ReduceKind) -> np.ndarray[Any, Any]:
    """The neutral element in the type that the running combination is kept in."""
    kept = accumulator(kind, element_type(x))
    return np.asarray(neutral(kind, kept).value, kept.numpy)


register(Cumulative())
