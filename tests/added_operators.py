"""Operators and handlers as a program has them: element-wise ones, a reduction, one composed of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper

import tilewright as tw
from tilewright.expr.build import select
from tilewright.expr.nodes import Expr, Le, Sub, as_expr, binary, call
from tilewright.graph.op import Arrays, TypeContext
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer
from tilewright.ops.checks import check_count, check_kind
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]
DOMAIN = "com.example"


def snake_of(x: Expr, a: Expr) -> Expr:
    """x + sin(a*x)^2 / a"""
    s = call("sin", a * x)
    return x + s * s / a


class FactorAttributes(tw.Attributes):
    """`factor`: what the sums are multiplied by."""

    factor: float = 1.0


class ScaledSum(tw.Operator):
    """The sums along the last axis, times a factor."""

    name = "scaled_sum"
    attributes = FactorAttributes
    pattern = tw.Pattern.REDUCE

    def infer(self, context: TypeContext, inputs: Types, attrs: FactorAttributes) -> Types:
        check_count(context, inputs, 1)
        check_kind(context, inputs[0], "f")
        if not inputs[0].rank:
            raise context.error("a scalar has no last axis", "reshape it")
        return (TensorType(inputs[0].dtype, inputs[0].shape[:-1]),)

    def meaning(self, inputs: Arrays, attrs: FactorAttributes) -> Arrays:
        (x,) = inputs
        return ((x * x.dtype.type(attrs.factor)).sum(-1, dtype=x.dtype),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (y,) = inputs, outputs
        factor = as_expr(attrs.factor, x.dtype)
        build.accumulate(self.name, y, [x.shape[-1]], init=0, update=lambda acc, *at: acc + load(x, *at) * factor)


class BandAttributes(tw.Attributes):
    """`width`: how many diagonals on each side of the main one are in the band."""

    width: int


class BandedProduct(tw.Operator):
    """The product of a square matrix with a vector, of which the elements in the band alone count."""

    name = "banded_product"
    attributes = BandAttributes
    pattern = tw.Pattern.REDUCE
    rereads = True

    def infer(self, context: TypeContext, inputs: Types, attrs: BandAttributes) -> Types:
        check_count(context, inputs, 2)
        w, x = inputs
        context.require_equal(w.shape[0], w.shape[1], "the sizes of the matrix")
        context.require_equal(w.shape[1], x.shape[0], "the sizes of the operands")
        return (x,)

    def meaning(self, inputs: Arrays, attrs: BandAttributes) -> Arrays:
        w, x = inputs
        return (np.triu(np.tril(w, attrs.width), -attrs.width) @ x,)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (w, x), (y,) = inputs, outputs

        def term(total: Expr, i: Expr, k: Expr) -> Expr:
            inside = binary(Le, call("abs", binary(Sub, i, k)), attrs.width)
            return total + select(inside, load(w, i, k), as_expr(0, w.dtype)) * load(x, k)

        build.accumulate(self.name, y, [x.shape[0]], init=0, update=term)


def read_snake(b: tw.Emit, x: tw.Tensor, *, alpha: float = 1.0) -> tw.Tensor:
    return b.map("snake", x, alpha)


def read_scaled_sum(b: tw.Emit, x: tw.Tensor, *, factor: float) -> tw.Tensor:
    return b.op("scaled_sum", x, factor=factor)


def read_banded_product(b: tw.Emit, w: tw.Tensor, x: tw.Tensor, *, width: int = 1) -> tw.Tensor:
    return b.op("banded_product", w, x, width=width)


def read_centred(b: tw.Emit, x: tw.Tensor, bias: tw.Tensor | None = None) -> tuple[tw.Tensor, tw.Tensor]:
    """Composed of operators that there are: x minus the mean of its last axis, and that mean."""
    count = b.cast(b.of_size(x.shape[-1]), x.dtype)
    mean = b.reduce("sum", x, [x.rank - 1], keepdims=True) / count
    centred = x - mean
    return (centred if bias is None else centred + bias), mean


HANDLERS = {"Snake": read_snake, "ScaledSum": read_scaled_sum, "Banded": read_banded_product, "Centred": read_centred}


@contextmanager
def registered() -> Iterator[None]:
    """Inside, all of these operators and handlers are."""
    snake = tw.elementwise("snake")(snake_of)
    operators = (ScaledSum(), BandedProduct())
    for op in operators:
        tw.register(op)
    for name, function in HANDLERS.items():
        tw.onnx_operator(DOMAIN, name)(function)
    try:
        yield
    finally:
        for addition in (snake, *operators, *HANDLERS.values()):
            tw.unregister(addition)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attrs: Any) -> NodeProto:
    """A node; operators in `HANDLERS` are of the domain."""
    return helper.make_node(operator, inputs, outputs, domain=domain or DOMAIN * (operator in HANDLERS), **attrs)


def model(nodes: Sequence[NodeProto], version: int = 1, **shapes: Sequence[int | str]) -> ModelProto:
    """A model of these nodes; `y` is its result, all other shapes are those of inputs, f32."""
    values = {name: helper.make_tensor_value_info(name, 1, list(shape)) for name, shape in shapes.items()}
    inputs = [v for name, v in values.items() if name != "y"]
    graph = helper.make_graph(nodes, "g", inputs, [values["y"]])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
