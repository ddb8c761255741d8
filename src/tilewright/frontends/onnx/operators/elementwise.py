"""Arithmetic, comparison, logic and casts, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.operators.narrow import converted
from tilewright.frontends.onnx.registry import AnyInt, AnyInts, Floats, handles
from tilewright.frontends.onnx.tensors import ELEMENTS

if TYPE_CHECKING:
    from onnx import SparseTensorProto, TensorProto

_UNARY = {
    "Abs": "abs", "Neg": "neg", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sqrt": "sqrt", "Exp": "exp",
    "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan",
    "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf",
    "Not": "not", "BitwiseNot": "invert", "IsNaN": "isnan", "Relu": "relu", "Sigmoid": "sigmoid",
}  # fmt: skip

_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "and", "Or": "or", "Xor": "xor", "Equal": "eq",
    "Less": "lt", "LessOrEqual": "le", "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor",
}  # fmt: skip


def _unary(op: str) -> Callable[[Emit, Tensor], Tensor]:
    return lambda b, x: b.map(op, x)


def _binary(op: str) -> Callable[[Emit, Tensor, Tensor], Tensor]:
    return lambda b, x, y: b.map(op, x, y)


for _name, _op in _UNARY.items():
    handles(_name)(_unary(_op))
for _name, _op in _BINARY.items():
    handles(_name, since=7)(_binary(_op))


@handles("Greater", since=7)
def greater(b: Emit, x: Tensor, y: Tensor) -> Tensor:
    return b.map("lt", y, x)


@handles("GreaterOrEqual")
def greater_or_equal(b: Emit, x: Tensor, y: Tensor) -> Tensor:
    return b.map("le", y, x)


@handles("Sign")
def sign(b: Emit, x: Tensor) -> Tensor:
    return b.map("sign", x)


@handles("Reciprocal")
def reciprocal(b: Emit, x: Tensor) -> Tensor:
    return 1 / x


@handles("Identity")
def identity(b: Emit, x: Tensor) -> Tensor:
    return x


@handles("Pow", since=7)
def power(b: Emit, x: Tensor, y: Tensor) -> Tensor:
    """x to the power y, in the type of x. It is computed in a type that holds both, as far as there is one: a rounded
    exponent may be even where it was odd. Integers to integer powers are computed modulo 2^bits of the wider type."""
    if x.dtype.holds(y.dtype) or _holds_all(x.dtype, y):
        return b.map("pow", x, b.cast(y, x.dtype))
    if x.dtype.is_int and y.dtype.is_int:
        kept = max(y.dtype, x.dtype, key=lambda t: t.bits)
    else:
        kept = dtypes.f32 if dtypes.f32.holds(x.dtype) and dtypes.f32.holds(y.dtype) else dtypes.f64
    return b.cast(b.map("pow", b.cast(x, kept), b.cast(y, kept)), x.dtype)


def _holds_all(dtype: DType, y: Tensor) -> bool:
    """Whether all elements of an integer tensor are known, and numbers of a type."""
    if y.content is None or not y.dtype.is_int:
        return False
    most = int(dtype.max) if dtype.is_int else 1 << dtype.significant
    least = int(dtype.min) if dtype.is_int else -most
    return all(isinstance(e, Const) and least <= e.value <= most for e in y.content.reshape(-1))


@handles("Mod", since=10)
def modulo(b: Emit, x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    """The remainder with the sign of y; with fmod, of x."""
    return b.map("rem" if fmod else "mod", x, y)


@handles("BitShift")
def bit_shift(b: Emit, x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    if direction not in ("LEFT", "RIGHT"):
        raise Unsupported(f"the direction is {direction!r}, not 'LEFT' or 'RIGHT'")
    return b.map("shl" if direction == "LEFT" else "shr", x, y)


@handles("Where")
def where(b: Emit, cond: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return b.select(cond, x, y)


def _folded(op: str) -> Callable[..., Tensor]:
    def fold(b: Emit, first: Tensor, *rest: Tensor) -> Tensor:
        total = first
        for x in rest:
            total = b.map(op, total, x)
        return total

    return fold


handles("Sum")(_folded("add"))
handles("Max")(_folded("max"))
handles("Min")(_folded("min"))


@handles("Mean")
def mean(b: Emit, first: Tensor, *rest: Tensor) -> Tensor:
    return _folded("add")(b, first, *rest) / (1 + len(rest))


@handles("BitCast")
def bit_cast(b: Emit, x: Tensor, *, to: int) -> Tensor:
    """The bits of each element as one of another type of the same width."""
    dtype = dtype_of(to)
    return x if dtype is x.dtype else b.op("bitcast", x, dtype=dtype)


@handles("Clip", until=10)
def clip_by_attributes(
    b: Emit, x: Tensor, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38
) -> Tensor:
    return b.map("min", b.map("max", x, min), max)


@handles("Clip", since=11)
def clip(b: Emit, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """min(max(x, low), high): where low exceeds high, high."""
    raised = x if low is None else b.map("max", x, _scalar(b, low))
    return raised if high is None else b.map("min", raised, _scalar(b, high))


def _scalar(b: Emit, x: Tensor) -> Tensor:
    return b.reshape(x, ())


@handles("IsInf")
def is_inf(b: Emit, x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    infinite = b.map("isinf", x)
    if detect_negative and detect_positive:
        return infinite
    if detect_positive:
        return b.map("and", infinite, b.map("lt", b.scalar(0, x.dtype), x))
    if detect_negative:
        return b.map("and", infinite, b.map("lt", x, 0))
    return b.broadcast(b.scalar(False, dtypes.bool_), x.shape)


def dtype_of(number: int) -> DType:
    """The element type with this TensorProto.DataType."""
    element = ELEMENTS.get(number)
    found = dtypes.from_numpy(element.dtype) if element is not None else None
    if found is None:
        from onnx import TensorProto

        names = {n: name.lower() for name, n in TensorProto.DataType.items()}
        raise Unsupported(f"the element type {names.get(number, number)} is not supported")
    return found


@handles("Cast", since=6)
def cast(b: Emit, x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return converted(b, x, dtype_of(to), bool(saturate), round_mode)


@handles("CastLike")
def cast_like(b: Emit, x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return converted(b, x, like.dtype, bool(saturate), round_mode)


@handles("Constant")
def constant(
    b: OnnxEmit,
    *,
    value: TensorProto | None = None,
    sparse_value: SparseTensorProto | None = None,
    value_float: float | None = None,
    value_floats: Floats | None = None,
    value_int: AnyInt | None = None,
    value_ints: AnyInts | None = None,
) -> Tensor:
    if value is not None:
        return b.of_array(b.model.tensor_data(value), "constant")
    if sparse_value is not None:
        return b.of_array(b.model.dense_data(sparse_value), "constant")
    numbers = [
        (value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64),
    ]  # fmt: skip
    given = [np.array(v, t) for v, t in numbers if v is not None]
    if len(given) != 1:
        raise Unsupported("it must have one attribute with its value, a tensor or numbers")
    return b.of_array(given[0])
