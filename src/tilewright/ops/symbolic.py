"""Symbols, checks and constants; and tensors made of nothing but an index or a size.

    w: f32[784, 10] = constant(name=@w)                     m = size(count, low=0, high=n, what="boxes")
    require(n == m, message="{0} is not {1}")               y: f32[n] = call(x, callee="relu", symbols=(n,))
    z: f32[n, 4] = full(value=0.0, shape=(n, 4))            i: i64[n, 4] = iota(shape=(n, 4), axis=0, dtype=i64)
    s: i64[2] = index_values(values=(n, n*4), shape=(2,))

    h: f32[4], y: f32[n, 4] = scan(h0, xs, w, body="cell", symbols=(), steps=n, states=1, scanned=(forward,), …)

    m, z: f32[m] = if(cond, x, then="short", otherwise="long", symbols=(n,))

    k, m, h: f32[m], y: f32[k, 4] = while(go, h0, w, body="cell", states=1, symbols=(n,), most=n)

The first four, `scan`, `if` and `while` compute nothing by themselves: the graph's verifier and evaluator know their
records (graph/symbolic.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.build import cast, equal, select
from tilewright.expr.dtypes import DType
from tilewright.expr.meaning import convert
from tilewright.expr.nodes import Const, Expr, const
from tilewright.graph.op import Arrays, Attributes, Op, Pattern, TypeContext, register
from tilewright.graph.symbolic import Call, Constant, If, Require, Scan, Size, While
from tilewright.loops.build import Builder
from tilewright.loops.nodes import Buffer
from tilewright.ops.checks import check_sizes
from tilewright.ops.movement import sizes
from tilewright.report.errors import InternalError
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]


class SymbolicOp(Op):
    """An operator whose meaning depends on the module around it."""

    pattern = Pattern.SHAPE

    def meaning(self, inputs: Arrays, attrs: Any) -> Arrays:
        raise InternalError(f"{self.name} has no meaning apart from its module", fix="call graph.evaluate")


class ConstantOp(SymbolicOp):
    """A constant of the module, by name."""

    name = "constant"
    attributes = Constant

    def infer(self, context: TypeContext, inputs: Types, attrs: Constant) -> Types:
        check_no_inputs(context, inputs)
        if attrs.type.static_shape() is None:
            raise context.error(f"a constant has a shape of numbers, not {attrs.type}")
        return (attrs.type,)


class SizeOp(SymbolicOp):
    """Binds a symbol to the value of an i64 scalar, once that is known to be in [low, high]."""

    name = "size"
    attributes = Size

    def infer(self, context: TypeContext, inputs: Types, attrs: Size) -> Types:
        scalar = TensorType(dtypes.index, ())
        if inputs != (scalar,):
            shown = ", ".join(map(str, inputs)) or "nothing"
            raise context.error(f"size takes one {scalar}, not {shown}", "cast to i64 and reshape to ()")
        return ()


class RequireOp(SymbolicOp):
    """The call fails unless a condition over symbols holds."""

    name = "require"
    attributes = Require

    def infer(self, context: TypeContext, inputs: Types, attrs: Require) -> Types:
        check_no_inputs(context, inputs)
        if not attrs.cond.dtype.is_bool:
            raise context.error(f"a condition is a truth value, not {attrs.cond.dtype}", "compare it with something")
        return ()


class CallOp(SymbolicOp):
    """Calls a loops function of the module."""

    name = "call"
    attributes = Call

    def infer(self, context: TypeContext, inputs: Types, attrs: Call) -> Types:
        return attrs.types


class ScanOp(SymbolicOp):
    """Runs a graph function of the module once a step; each step takes the states that the one before it gave."""

    name = "scan"
    attributes = Scan

    def infer(self, context: TypeContext, inputs: Types, attrs: Scan) -> Types:
        least, given = attrs.states + len(attrs.scanned), attrs.states + len(attrs.stacked)
        if attrs.states < 0 or len(inputs) < least or len(attrs.types) != given:
            raise context.error(
                f"scan with {attrs.states} states, {len(attrs.scanned)} scanned and {len(attrs.stacked)} stacked"
                f" operands has at least {least} inputs and {given} outputs, not {len(inputs)} and {len(attrs.types)}"
            )
        if attrs.steps.dtype is not dtypes.index:
            raise context.error(f"the number of steps is an i64, not {attrs.steps.dtype}")
        return attrs.types


class IfOp(SymbolicOp):
    """Runs one of two graph functions of the module."""

    name = "if"
    attributes = If

    def infer(self, context: TypeContext, inputs: Types, attrs: If) -> Types:
        check_condition(context, inputs)
        return attrs.types


class WhileOp(SymbolicOp):
    """Runs a graph function of the module as long as a truth value holds that each step gives."""

    name = "while"
    attributes = While

    def infer(self, context: TypeContext, inputs: Types, attrs: While) -> Types:
        check_condition(context, inputs)
        if attrs.states < 0 or len(inputs) < 1 + attrs.states or len(attrs.types) < attrs.states:
            raise context.error(
                f"while with {attrs.states} states has at least {1 + attrs.states} inputs and {attrs.states} outputs,"
                f" not {len(inputs)} and {len(attrs.types)}"
            )
        if attrs.most is not None and attrs.most.dtype is not dtypes.index:
            raise context.error(f"the number of steps is an i64, not {attrs.most.dtype}")
        return attrs.types


class Full(Attributes):
    """`value` everywhere in a tensor of `shape`."""

    any_number = frozenset({"value"})

    value: Const
    shape: tuple[Expr, ...]


class FullOp(Op):
    """A tensor whose elements are all the same number."""

    name = "full"
    attributes = Full
    pattern = Pattern.MAP

    def infer(self, context: TypeContext, inputs: Types, attrs: Full) -> Types:
        check_no_inputs(context, inputs)
        out = TensorType(attrs.value.dtype, attrs.shape)
        check_sizes(context, out)
        return (out,)

    def meaning(self, inputs: Arrays, attrs: Full) -> Arrays:
        return (np.full(sizes(attrs.shape), attrs.value.value, attrs.value.dtype.numpy),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Full) -> None:
        build.compute("full", outputs[0], lambda *at: attrs.value)


class IndexValues(Attributes):
    """`values` in row-major order in a tensor of `shape`."""

    any_number = frozenset({"values"})

    values: tuple[Expr, ...]
    shape: tuple[int, ...]


class IndexValuesOp(Op):
    """An i64 tensor of sizes and other expressions over the symbols."""

    name = "index_values"
    attributes = IndexValues
    pattern = Pattern.MAP

    def infer(self, context: TypeContext, inputs: Types, attrs: IndexValues) -> Types:
        check_no_inputs(context, inputs)
        if any(v.dtype is not dtypes.index for v in attrs.values) or min(attrs.shape, default=0) < 0:
            raise context.error("index values are i64 expressions in a shape of numbers", "cast the tensor afterwards")
        if len(attrs.values) != math.prod(attrs.shape):
            raise context.error(f"{len(attrs.values)} values do not fill the shape {attrs.shape}")
        return (TensorType.of(dtypes.index, attrs.shape),)

    def meaning(self, inputs: Arrays, attrs: IndexValues) -> Arrays:
        return (np.array(sizes(attrs.values), np.int64).reshape(attrs.shape),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        build.compute("index_values", outputs[0], lambda *at: self.element(attrs, at))

    def element(self, attrs: IndexValues, at: Sequence[Expr]) -> Expr:
        """The value at an index: a chain of selections, the last value standing for every index left."""
        linear: Expr = const(0)
        for index, extent in zip(at, attrs.shape, strict=True):
            linear = linear * extent + index
        picked: Expr = attrs.values[-1] if attrs.values else const(0)
        for n in reversed(range(len(attrs.values) - 1)):
            picked = select(equal(linear, n), attrs.values[n], picked)
        return picked


class Iota(Attributes):
    """The index along `axis`, as `dtype`, in a tensor of `shape`."""

    shape: tuple[Expr, ...]
    axis: int
    dtype: DType


class IotaOp(Op):
    """A tensor whose elements are their own index along one axis."""

    name = "iota"
    attributes = Iota
    pattern = Pattern.MAP

    def infer(self, context: TypeContext, inputs: Types, attrs: Iota) -> Types:
        check_no_inputs(context, inputs)
        out = TensorType(attrs.dtype, attrs.shape)
        check_sizes(context, out)
        if not 0 <= attrs.axis < len(attrs.shape):
            raise context.error(f"a tensor of {len(attrs.shape)} dimensions has no axis {attrs.axis}")
        if attrs.dtype.is_bool:
            raise context.error("an index is no truth value", "take i64 and compare")
        return (out,)

    def meaning(self, inputs: Arrays, attrs: Iota) -> Arrays:
        shape = sizes(attrs.shape)
        along = [1] * len(shape)
        along[attrs.axis] = shape[attrs.axis]
        line = convert(np.arange(shape[attrs.axis], dtype=np.int64), attrs.dtype).reshape(along)
        return (np.array(np.broadcast_to(line, shape)),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Iota) -> None:
        build.compute("iota", outputs[0], lambda *at: cast(at[attrs.axis], attrs.dtype))


def check_condition(context: TypeContext, inputs: Types) -> None:
    """The first input is one truth value."""
    if inputs[:1] != (TensorType(dtypes.bool_, ()),):
        shown = str(inputs[0]) if inputs else "nothing"
        raise context.error(f"the condition is one bool[], not {shown}", "cast it to bool and reshape to ()")


def check_no_inputs(context: TypeContext, inputs: Types) -> None:
    """There are no inputs."""
    if inputs:
        raise context.error(f"{context.op} takes no inputs, not {', '.join(map(str, inputs))}")


_BY_THEMSELVES = (FullOp(), IndexValuesOp(), IotaOp())
for _op in (ConstantOp(), SizeOp(), RequireOp(), CallOp(), ScanOp(), IfOp(), WhileOp(), *_BY_THEMSELVES):
    register(_op)
