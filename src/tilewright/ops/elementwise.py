"""Element-wise operators: one table row each. Every output element is one expression of the input elements there.

    add(x: f32[n, 4], b: f32[4])  ->  f32[n, 4]          y[i, j] = x[i, j] + b[j]

Operands broadcast as in NumPy and have one element type; front ends insert casts. A row's builder gives the expression;
the meaning is that expression evaluated over arrays, the definition is that expression over loads. So each operation of
a row rounds to the element type, in 16-bit floats too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tilewright.core.asking import FunctionFailure, ask, place_of
from tilewright.core.code import code_of
from tilewright.expr import dtypes
from tilewright.expr.build import cast, maximum, select
from tilewright.expr.dtypes import DType
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import (
    Add,
    And,
    BitAnd,
    BitOr,
    BitXor,
    Div,
    Eq,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Max,
    Min,
    Mod,
    Mul,
    Ne,
    Not,
    Or,
    Rem,
    Shl,
    Shr,
    Sub,
    Var,
    binary,
    call,
)
from tilewright.expr.work import Work, work_of
from tilewright.graph.op import Arrays, Attributes, Op, Pattern, TypeContext, register
from tilewright.loops.build import Builder, load_broadcast
from tilewright.loops.nodes import Buffer
from tilewright.ops.checks import broadcast_shapes, check_count, check_kind, check_same_dtype
from tilewright.types.tensor import TensorType


@dataclass(frozen=True, slots=True)
class Row:
    """An element-wise operator: its name, number of operands, expression builder, law, the kinds of element type it
    takes, whether it answers truth values, and whether it subtracts."""

    name: str
    arity: int
    build: Callable[..., Expr]
    law: str
    kinds: str = "iuf"
    truth: bool = False
    subtracts: bool = False


class Elementwise(Op):
    """An operator whose output element is `expression` of the broadcast input elements. `kinds` are those of the
    element types that it takes (letters of b, i, u, f); it answers `truth` values, or elements of the inputs' type."""

    pattern = Pattern.MAP
    elementwise = True
    name = "elementwise"
    arity = 1
    kinds = "f"
    truth = False

    def expression(self, elements: tuple[Expr, ...], attrs: Any) -> Expr:
        """The output element as an expression of the input elements."""
        raise AssertionError(f"{self.name} has no expression")

    def result(self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: Any) -> DType:
        """The element type of the output; raises for element types that the operator does not take."""
        for type in inputs:
            check_kind(context, type, self.kinds)
        check_same_dtype(context, inputs)
        return dtypes.bool_ if self.truth else inputs[0].dtype

    def work(self, inputs: tuple[TensorType, ...], attrs: Any) -> Work:
        return _work(self, tuple([x.dtype for x in inputs]), attrs)

    def infer(self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: Any) -> tuple[TensorType, ...]:
        check_count(context, inputs, self.arity)
        dtype = self.result(context, inputs, attrs)
        return (TensorType(dtype, broadcast_shapes(context, inputs)),)

    def meaning(self, inputs: Arrays, attrs: Any) -> Arrays:
        elements = tuple(Var("x", _dtype(x), None) for x in inputs)
        root = self.expression(elements, attrs)
        values = evaluate(root, dict(zip(elements, np.broadcast_arrays(*inputs), strict=True)))
        return (np.array(values, root.dtype.numpy),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (out,) = outputs

        def element(*at: Expr) -> Expr:
            return self.expression(tuple(load_broadcast(x, at, out.shape) for x in inputs), attrs)

        build.compute(self.name, out, element)


@lru_cache(maxsize=1 << 10)
def _work(op: Elementwise, types: tuple[DType, ...], attrs: Any) -> Work:
    """What the expression of an operator takes."""
    return work_of(op.expression(tuple([Var(f"x{n}", dtype, None) for n, dtype in enumerate(types)]), attrs))


class RowOp(Elementwise):
    """The operator of one table row; its docstring is the row's law."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.name = row.name
        self.arity = row.arity
        self.kinds, self.truth, self.subtracts = row.kinds, row.truth, row.subtracts
        self.__doc__ = row.law

    def expression(self, elements: tuple[Expr, ...], attrs: Any) -> Expr:
        return self.row.build(*elements)


class Expression(RowOp):
    """The operator of an expression that a program gives, which is checked to be one of the type promised."""

    def place(self) -> str | None:
        return place_of(self.row.build) or None

    def code(self) -> str:
        return code_of(self.row.build, self.kinds, self.truth)

    def expression(self, elements: tuple[Expr, ...], attrs: Any) -> Expr:
        given = ask(f"the expression of the operator {self.name}", self.row.build, *elements)
        promised = dtypes.bool_ if self.truth else elements[0].dtype
        if isinstance(given, Expr) and given.dtype is promised:
            return given
        came = f"one of {given.dtype}" if isinstance(given, Expr) else f"a {type(given).__name__}"
        raise FunctionFailure(
            f"the expression of the operator {self.name} cannot be used",
            where=self.place(),
            why=f"{came} came, and it is an expression of {promised} for elements of {elements[0].dtype}",
            fix=f"cast it: tilewright.expr.build.cast(…, {'dtypes.bool_' if self.truth else 'x.dtype'})",
        )


class SelectOp(Elementwise):
    """`a` where the condition holds, else `b`: inputs cond (bool), a, b."""

    name = "select"
    arity = 3

    def expression(self, elements: tuple[Expr, ...], attrs: Any) -> Expr:
        return select(*elements)

    def result(self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: Any) -> DType:
        check_kind(context, inputs[0], "b", "the condition")
        check_same_dtype(context, inputs[1:])
        return inputs[1].dtype


class CastAttributes(Attributes):
    """`dtype`: the element type to convert to."""

    dtype: DType


class CastOp(Elementwise):
    """The elements as another type: to a float rounded to nearest even; float to integer towards zero, saturating, NaN
    to 0; between integers wrapping; to bool: not equal to zero."""

    name = "cast"
    attributes = CastAttributes

    def expression(self, elements: tuple[Expr, ...], attrs: CastAttributes) -> Expr:
        return cast(elements[0], attrs.dtype)

    def result(self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: CastAttributes) -> DType:
        return attrs.dtype


class BitcastOp(Elementwise):
    """The bits of each element as one of another type of the same width; a truth value is the byte 0 or 1."""

    name = "bitcast"
    attributes = CastAttributes
    reads_bits = True

    def expression(self, elements: tuple[Expr, ...], attrs: CastAttributes) -> Expr:
        (x,), to = elements, attrs.dtype
        if x.dtype.is_float or x.dtype.code is not None:
            bits = call("bits", x)
        else:
            bits = cast(x, _BITS[x.dtype.bits])
        if x.dtype.width < x.dtype.bits:
            bits = binary(BitAnd, bits, (1 << x.dtype.width) - 1)
        if to is dtypes.bf16 or to.code is not None:
            return call(f"from_bits.{to}", bits)
        return call("from_bits", bits) if to.is_float else cast(bits, to)

    def result(self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: CastAttributes) -> DType:
        source, target = inputs[0].dtype, attrs.dtype
        if target.is_bool or source.width != target.width:
            raise context.error(f"{source} and {target} have other numbers of bits")
        return target


_BITS = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}


def _dtype(array: np.ndarray[Any, Any]) -> DType:
    found = dtypes.from_numpy(array.dtype)
    assert found is not None, f"arrays of {array.dtype} are no tensors"
    return found


def _relu(x: Expr) -> Expr:
    return maximum(x, 0)


def _operator(name: str, cls: Any, law: str, kinds: str = "iuf", truth: bool = False) -> Row:
    return Row(name, 2, partial(binary, cls), law, kinds, truth)


def _function(name: str, law: str, kinds: str = "f", arity: int = 1, truth: bool = False) -> Row:
    return Row(name, arity, partial(call, name), law, kinds, truth)


ROWS = (
    _operator("add", Add, "a + b; integers wrap around; of truth values, either.", "biuf"),
    Row("sub", 2, partial(binary, Sub), "a - b; integers wrap around.", subtracts=True),
    _operator("mul", Mul, "a * b; integers wrap around; of truth values, both.", "biuf"),
    _operator("div", Div, "a / b; of integers towards zero, with x / 0 = 0."),
    _operator("floordiv", FloorDiv, "a / b of integers, rounded towards minus infinity, with x / 0 = 0.", "iu"),
    _operator("mod", Mod, "The remainder with the sign of b; 0 for an integer modulo 0."),
    _operator("rem", Rem, "The remainder with the sign of a; 0 for an integer divided by 0."),
    _operator("min", Min, "The lesser; NaN when either is NaN.", "biuf"),
    _operator("max", Max, "The greater; NaN when either is NaN.", "biuf"),
    _operator("bit_and", BitAnd, "Bitwise and.", "iu"),
    _operator("bit_or", BitOr, "Bitwise or.", "iu"),
    _operator("bit_xor", BitXor, "Bitwise exclusive or.", "iu"),
    _operator("shl", Shl, "a shifted left by b bits; 0 when b is not within the width.", "iu"),
    _operator("shr", Shr, "a shifted right by b bits; the sign (or 0) when b is not within the width.", "iu"),
    Row("and", 2, And, "Both hold.", "b"),
    Row("or", 2, Or, "Either holds.", "b"),
    Row("xor", 2, partial(binary, BitXor), "One holds and the other does not.", "b"),
    Row("not", 1, Not, "It does not hold.", "b"),
    _operator("eq", Eq, "a == b; false with NaN.", "biuf", truth=True),
    _operator("ne", Ne, "a != b; true with NaN.", "biuf", truth=True),
    _operator("lt", Lt, "a < b; false with NaN.", "biuf", truth=True),
    _operator("le", Le, "a <= b; false with NaN.", "biuf", truth=True),
    _function("pow", "a to the power b.", "iuf", arity=2),
    _function("copysign", "The magnitude of a with the sign of b.", arity=2),
    _function("fma", "a*b + c; fused code may round once.", arity=3),
    _function("neg", "-x; the least integer stays as it is.", "iuf"),
    _function("abs", "The magnitude; the least integer stays as it is.", "iuf"),
    _function("sign", "-1, 0 or 1; NaN stays.", "iuf"),
    _function("invert", "All bits inverted.", "iu"),
    _function("popcount", "The number of bits of the magnitude that are set.", "iu"),
    _function("floor", "The greatest integral value not above x."),
    _function("ceil", "The least integral value not below x."),
    _function("trunc", "The integral value next to x towards zero."),
    _function("round", "The nearest integral value, ties to even."),
    _function("sqrt", "The square root; NaN below zero."),
    _function("exp", "e to the power x."),
    _function("log", "The natural logarithm; -inf at 0, NaN below."),
    _function("log1p", "log(1 + x), exact near 0."),
    _function("expm1", "exp(x) - 1, exact near 0."),
    _function("sin", "The sine of x radians."),
    _function("cos", "The cosine of x radians."),
    _function("tan", "The tangent of x radians."),
    _function("asin", "The arc sine in radians; NaN outside [-1, 1]."),
    _function("acos", "The arc cosine in radians; NaN outside [-1, 1]."),
    _function("atan", "The arc tangent in radians."),
    _function("sinh", "The hyperbolic sine."),
    _function("cosh", "The hyperbolic cosine."),
    _function("tanh", "The hyperbolic tangent."),
    _function("asinh", "The inverse hyperbolic sine."),
    _function("acosh", "The inverse hyperbolic cosine; NaN below 1."),
    _function("atanh", "The inverse hyperbolic tangent; NaN outside [-1, 1]."),
    _function("erf", "The error function."),
    _function("sigmoid", "1 / (1 + exp(-x)), without overflow for any x."),
    _function("isnan", "Whether x is not a number.", truth=True),
    _function("isinf", "Whether x is one of the infinities.", truth=True),
    Row("relu", 1, _relu, "x where it is above 0, else 0; NaN stays."),
)
"""The element-wise operators that have no attributes and whose operands are all of one type."""

for _row in ROWS:
    register(RowOp(_row))
register(SelectOp())
register(CastOp())
register(BitcastOp())
