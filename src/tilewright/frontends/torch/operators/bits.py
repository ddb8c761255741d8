"""Operators that are told by the bits of their elements."""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import handles


@handles("aten.view.dtype")
def bitcast(b: TorchEmit, x: Tensor, *, dtype: DType) -> Tensor:
    """The bits of each element as one of another type of the same width."""
    if x.dtype.bits != dtype.bits or dtype.is_bool:
        raise Unsupported(f"the bits of {x.dtype} as {dtype} are not supported")
    return x if x.dtype is dtype else b.op("bitcast", x, dtype=dtype)


@handles("aten.frexp.Tensor")
def fraction_and_exponent(b: TorchEmit, x: Tensor) -> tuple[Tensor, Tensor]:
    """A fraction in [1/2, 1) and a power of two; 0, infinities and NaN have the exponent 0. By the bits of f64, in
    which what is subnormal in narrower types is not."""
    wide = b.cast(x, dtypes.f64)
    subnormal = b.map("lt", b.map("abs", wide), 2.0**-1022)
    scaled = b.select(subnormal, wide * 2.0**54, wide)
    bits = b.op("bitcast", scaled, dtype=dtypes.i64)
    power = b.map("bit_and", b.map("shr", bits, 52), 0x7FF) - b.select(subnormal, b.scalar(1076, dtypes.i64), 1022)
    rest = b.map("bit_or", b.map("bit_and", bits, ~(0x7FF << 52)), 1022 << 52)
    plain = b.map("or", b.map("eq", wide, 0), b.map("or", b.map("isinf", wide), b.map("isnan", wide)))
    fraction = b.select(plain, wide, b.op("bitcast", rest, dtype=dtypes.f64))
    return b.done(fraction, 0), b.done(b.select(plain, b.scalar(0, dtypes.i64), power), 1)


_INTEGERS = {16: dtypes.i16, 32: dtypes.i32, 64: dtypes.i64}


@handles("aten.nextafter.default")
def next_after(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    """The number next to x in the direction of y: floats of one sign are ordered as their bits are."""
    dtype = b.result.dtype
    x, y = b.cast(x, dtype), b.cast(y, dtype)
    integer = _INTEGERS[dtype.bits]
    bits, least = (b.op("bitcast", t, dtype=integer) for t in (x, b.map("copysign", b.scalar(0, dtype), y)))
    away = b.map("eq", b.map("lt", x, y), b.map("lt", 0, x))
    moved = bits + b.select(away, b.scalar(1, integer), -1)
    chosen = b.select(b.map("eq", x, 0), b.map("bit_or", least, 1), moved)
    found = b.select(b.map("eq", x, y), y, b.op("bitcast", chosen, dtype=dtype))
    none = b.map("or", b.map("isnan", x), b.map("isnan", y))
    return b.select(none, b.scalar(float("nan"), dtype), found)
