"""Arithmetic, comparison, logic, casts and activations, element by element.

Operands are cast to what eager kernels compute in (`TorchEmit.computed`), and the result to the type that PyTorch gives
it: operators of integers that answer floats (`sqrt`, `/`) need nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import handles

FUNCTIONS = {
    "abs": "abs", "neg": "neg", "sqrt": "sqrt", "exp": "exp", "log": "log", "log1p": "log1p", "expm1": "expm1",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf",
    "special_erf": "erf", "sigmoid": "sigmoid", "relu": "relu",
}  # fmt: skip
"""Functions of one operand. Those of `_WHOLE` leave integers as they are."""

_WHOLE = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round"}

_BINARY = {
    "mul": "mul", "maximum": "max", "minimum": "min", "fmod": "rem", "copysign": "copysign",
}  # fmt: skip

_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le"}

_BITS = {"bitwise_and": ("bit_and", "and"), "bitwise_or": ("bit_or", "or"), "bitwise_xor": ("bit_xor", "xor")}
"""Operators of integers, and what they are of truth values."""


def _unary(op: str) -> Callable[[TorchEmit, Tensor], Tensor]:
    return lambda b, x: b.done(b.map(op, *b.operands(x)))


def _whole(op: str) -> Callable[[TorchEmit, Tensor], Tensor]:
    return lambda b, x: b.done(b.map(op, *b.operands(x))) if x.dtype.is_float else x


def _binary(op: str) -> Callable[[TorchEmit, Tensor, Tensor], Tensor]:
    return lambda b, x, y: b.done(b.map(op, *b.operands(x, y)))


def _swapped(op: str) -> Callable[[TorchEmit, Tensor, Tensor], Tensor]:
    return lambda b, x, y: b.done(b.map(op, *b.operands(y, x)))


def _of_bits(integers: str, truths: str) -> Callable[[TorchEmit, Tensor, Tensor], Tensor]:
    return lambda b, x, y: b.map(truths if b.result.dtype.is_bool else integers, *b.operands(x, y))


def _logical(op: str) -> Callable[[TorchEmit, Tensor, Tensor], Tensor]:
    return lambda b, x, y: b.map(op, b.truth(x), b.truth(y))


for _name, _op in FUNCTIONS.items():
    handles(f"aten.{_name}.default")(_unary(_op))
for _name, _op in _WHOLE.items():
    handles(f"aten.{_name}.default")(_whole(_op))
for _name, _op in _BINARY.items():
    _several = () if _op in ("max", "min") else (f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")
    handles(f"aten.{_name}.default", *_several)(_binary(_op))
handles("prims.mul.default")(_binary("mul"))
for _name, _op in _COMPARISONS.items():
    handles(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_binary(_op))
for _name, _ops in _BITS.items():
    handles(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", f"aten.{_name}.Scalar_Tensor")(_of_bits(*_ops))
for _name, _op in {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}.items():
    handles(f"aten.{_name}.default")(_logical(_op))
handles("aten.gt.Tensor", "aten.gt.Scalar")(_swapped("lt"))
handles("aten.ge.Tensor", "aten.ge.Scalar")(_swapped("le"))


@handles("aten.add.Tensor", "aten.add.Scalar")
def add(b: TorchEmit, x: Tensor, y: Tensor, *, alpha: Number = 1) -> Tensor:
    x, y = b.operands(x, y)
    return b.done(x + (y if alpha == 1 else y * alpha))


@handles("aten.sub.Tensor", "aten.sub.Scalar")
def subtract(b: TorchEmit, x: Tensor, y: Tensor, *, alpha: Number = 1) -> Tensor:
    x, y = b.operands(x, y)
    return b.done(x - (y if alpha == 1 else y * alpha))


@handles("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "prims.div.default")
def divide(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    x, y = b.operands(x, y)
    return b.done(x / y)


@handles("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def divide_and_round(b: TorchEmit, x: Tensor, y: Tensor, *, rounding_mode: str | None) -> Tensor:
    """The quotient, rounded towards zero (`trunc`) or down (`floor`); an integer divided by 0 gives 0."""
    x, y = b.operands(x, y)
    if rounding_mode is None:
        return b.done(x / y)
    if rounding_mode == "trunc":
        return b.done(b.map("trunc", x / y) if x.dtype.is_float else x / y)
    return b.done(_floor_quotient(b, x, y))


@handles("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    return b.done(_floor_quotient(b, *b.operands(x, y)))


def _floor_quotient(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    """x / y rounded down, exactly, as PyTorch does: from the remainder. By zero the quotient itself."""
    if not x.dtype.is_float:
        return b.map("floordiv", x, y)
    rest = b.map("rem", x, y)
    other = b.map("xor", b.map("lt", y, 0), b.map("lt", rest, 0))
    exact = (x - rest) / y - b.select(b.map("and", other, b.map("ne", rest, 0)), b.scalar(1, x.dtype), 0)
    down = b.map("floor", exact)
    near = b.select(b.map("lt", 0.5, exact - down), down + 1, down)
    nothing = b.map("copysign", b.scalar(0, x.dtype), x / y)
    return b.select(b.map("eq", y, 0), x / y, b.select(b.map("eq", exact, 0), nothing, near))


@handles("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    """The remainder with the sign of y."""
    x, y = b.operands(x, y)
    if not x.dtype.is_float:
        return b.done(b.map("mod", x, y))
    rest = b.map("rem", x, y)
    other = b.map("xor", b.map("lt", y, 0), b.map("lt", rest, 0))
    return b.done(b.select(b.map("and", other, b.map("ne", rest, 0)), rest + y, rest))


@handles("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    return b.done(b.map("pow", *b.operands(x, y)))


@handles("aten.pow.Tensor_Scalar")
def power_of_number(b: TorchEmit, x: Tensor, *, exponent: Number) -> Tensor:
    """The exponents that eager kernels compute by products and roots are computed so here. In bf16, but not in f16,
    they round a square that they go on with."""
    (x,) = b.operands(x)
    between = dtypes.bf16 if b.result.dtype is dtypes.bf16 else x.dtype
    match exponent:
        case 1:
            found = x
        case 2:
            found = x * x
        case 3:
            found = b.cast(b.cast(x * x, between), x.dtype) * x
        case 0.5 if x.dtype.is_float:
            found = b.map("sqrt", x)
        case -0.5 if x.dtype.is_float:
            found = 1 / b.map("sqrt", x)
        case -1 if x.dtype.is_float:
            found = 1 / x
        case -2 if x.dtype.is_float:
            found = 1 / b.cast(b.cast(x * x, between), x.dtype)
        case _:
            found = b.map("pow", x, exponent)
    return b.done(found)


@handles("aten.reciprocal.default")
def reciprocal(b: TorchEmit, x: Tensor) -> Tensor:
    (x,) = b.operands(x)
    return b.done(1 / x)


@handles("aten.rsqrt.default")
def inverse_root(b: TorchEmit, x: Tensor) -> Tensor:
    (x,) = b.operands(x)
    return b.done(1 / b.map("sqrt", x))


@handles("aten.exp2.default")
def exp2(b: TorchEmit, x: Tensor) -> Tensor:
    (x,) = b.operands(x)
    return b.done(b.map("pow", b.scalar(2, x.dtype), x))


def _log_by(base: float) -> Callable[[TorchEmit, Tensor], Tensor]:
    def handler(b: TorchEmit, x: Tensor) -> Tensor:
        (x,) = b.operands(x)
        return b.done(b.map("log", x) * (1 / math.log(base)))

    return handler


handles("aten.log2.default")(_log_by(2))
handles("aten.log10.default")(_log_by(10))


@handles("aten.sign.default", "aten.sgn.default")
def sign(b: TorchEmit, x: Tensor) -> Tensor:
    """-1, 0 or 1; of NaN 0."""
    if x.dtype.is_bool:
        return x
    if not x.dtype.is_float:
        return b.map("sign", x)
    return b.select(b.map("isnan", x), b.scalar(0, x.dtype), b.map("sign", x))


def _extreme_number(op: str) -> Callable[[TorchEmit, Tensor, Tensor], Tensor]:
    def handler(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
        """The extreme of two, of which NaN is none unless both are."""
        x, y = b.operands(x, y)
        found = b.map(op, x, y)
        if not x.dtype.is_float:
            return b.done(found)
        return b.done(b.select(b.map("isnan", x), y, b.select(b.map("isnan", y), x, found)))

    return handler


handles("aten.fmax.default")(_extreme_number("max"))
handles("aten.fmin.default")(_extreme_number("min"))


@handles("aten.atan2.default")
def atan2(b: TorchEmit, y: Tensor, x: Tensor) -> Tensor:
    """The angle of the point (x, y), in (-pi, pi]: of infinite ones that of their signs."""
    y, x = b.operands(y, x)
    both = b.map("and", b.map("isinf", x), b.map("isinf", y))
    one = b.scalar(1, x.dtype)
    rise, run = (b.select(both, b.map("copysign", one, t), t) for t in (y, x))
    origin = b.map("and", b.map("eq", rise, 0), b.map("eq", run, 0))
    slope = b.select(origin, b.map("copysign", b.scalar(0, x.dtype), rise), rise / run)
    left = b.map("lt", b.map("copysign", one, run), 0)
    turned = b.map("atan", b.select(b.map("and", origin, left), b.map("neg", slope), slope))
    return b.done(b.select(left, turned + b.map("copysign", b.scalar(math.pi, x.dtype), rise), turned))


@handles("aten.hypot.default")
def hypot(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    """The root of the sum of squares, without overflow: infinite where either is."""
    x, y = [b.map("abs", t) for t in b.operands(x, y)]
    large, small = b.map("max", x, y), b.map("min", x, y)
    ratio = b.select(b.map("eq", large, 0), b.scalar(0, x.dtype), small / large)
    found = large * b.map("sqrt", ratio * ratio + 1)
    infinite = b.map("or", b.map("isinf", x), b.map("isinf", y))
    return b.done(b.select(infinite, b.scalar(float("inf"), x.dtype), found))


@handles("aten.signbit.default")
def signbit(b: TorchEmit, x: Tensor) -> Tensor:
    """Whether the sign is minus, also of zero and NaN."""
    if not x.dtype.is_float:
        return b.broadcast(b.scalar(False, dtypes.bool_), x.shape) if x.dtype.is_bool else b.map("lt", x, 0)
    return b.map("lt", b.map("copysign", b.scalar(1, x.dtype), x), 0)


@handles("aten.angle.default")
def angle(b: TorchEmit, x: Tensor) -> Tensor:
    """Pi below zero, 0 elsewhere; NaN stays."""
    (x,) = b.operands(x)
    return b.done(b.select(b.map("lt", x, 0), b.scalar(math.pi, x.dtype), b.select(b.map("isnan", x), x, 0)))


@handles("aten.round.decimals")
def round_to_decimals(b: TorchEmit, x: Tensor, *, decimals: int) -> Tensor:
    """Rounded after so many decimals, or, below zero, to powers of ten; ties to even."""
    if not x.dtype.is_float:
        raise Unsupported("rounding integers to decimals is not supported")
    (x,) = b.operands(x)
    scale = 10.0 ** abs(decimals)
    if decimals < 0:
        return b.done(b.map("round", x / scale) * scale)
    return b.done(b.map("round", x * scale) / scale if decimals else b.map("round", x))


@handles("aten.isnan.default")
def is_nan(b: TorchEmit, x: Tensor) -> Tensor:
    return b.map("isnan", x) if x.dtype.is_float else b.full(x.shape, False, dtypes.bool_)


@handles("aten.isinf.default")
def is_infinite(b: TorchEmit, x: Tensor) -> Tensor:
    return b.map("isinf", x) if x.dtype.is_float else b.full(x.shape, False, dtypes.bool_)


@handles("aten.logical_not.default")
def logical_not(b: TorchEmit, x: Tensor) -> Tensor:
    return b.map("not", b.truth(x))


@handles("aten.bitwise_not.default")
def bitwise_not(b: TorchEmit, x: Tensor) -> Tensor:
    return b.map("not" if x.dtype.is_bool else "invert", x)


def _shift(op: str) -> Callable[[TorchEmit, Tensor, Tensor], Tensor]:
    def handler(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
        return b.done(b.map(op, *b.operands(x, y)))

    return handler


for _name, _op in {"bitwise_left_shift": "shl", "bitwise_right_shift": "shr"}.items():
    handles(f"aten.{_name}.Tensor", f"aten.{_name}.Tensor_Scalar")(_shift(_op))


@handles("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(b: TorchEmit, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    dtype = b.result.dtype
    return b.select(b.truth(condition), b.cast(x, dtype), b.cast(y, dtype))


@handles("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(b: TorchEmit, x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    return b.select(mask, b.cast(value, x.dtype), x)


@handles("aten.clamp.default", "aten.clamp.Tensor")
def clamp(b: TorchEmit, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """min(max(x, low), high): where low exceeds high, high. NaN stays."""
    dtype = b.result.dtype
    x = b.cast(x, dtype)
    if low is not None:
        x = b.map("max", x, b.cast(low, dtype))
    return x if high is None else b.map("min", x, b.cast(high, dtype))


@handles("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(b: TorchEmit, x: Tensor, low: Tensor) -> Tensor:
    return clamp(b, x, low)


@handles("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(b: TorchEmit, x: Tensor, high: Tensor) -> Tensor:
    return clamp(b, x, None, high)


@handles("aten.gelu.default")
def gelu(b: TorchEmit, x: Tensor, *, approximate: str = "none") -> Tensor:
    """x times the normal distribution's share below x, or its approximation by a tangent."""
    (x,) = b.operands(x)
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return b.done(x * 0.5 * (b.map("tanh", inner) + 1))
    return b.done(x * 0.5 * (b.map("erf", x * math.sqrt(0.5)) + 1))


@handles("aten.fma.default", "aten.prims_fma.default", "prims.fma.default")
def fma(b: TorchEmit, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return b.done(b.map("fma", *b.operands(x, y, z)))


@handles("aten._to_copy.default", "prims.convert_element_type.default")
def converted(b: TorchEmit, x: Tensor, *, dtype: DType | None = None) -> Tensor:
    """The tensor in another type. Floats that do not fit an integer type are undefined in PyTorch; eight
    and sixteen bits take the last ones of more."""
    to = b.result.dtype
    if x.dtype.is_float and to.is_int and to.bits < dtypes.i32.bits:
        return b.cast(b.cast(x, dtypes.i64), to)
    return b.cast(x, to)
