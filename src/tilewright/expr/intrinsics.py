"""The named scalar functions: one row each, with what they mean in NumPy.

The meaning is the oracle. How a function becomes machine code is a row in code generation's own table, or a rule of
the math-expansion pass; a function without either cannot be reached by a program, and a test holds the tables together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType


@dataclass(frozen=True, slots=True, eq=False)
class Intrinsic:
    """A scalar function: `name`, number of arguments, NumPy `meaning` and `result` type.

    `result` is "same" (the type of the first argument), "bool", "bits" (the unsigned integer of the same width),
    "float" (the IEEE float of the same width) or a type. `kinds` lists the kinds of element type it takes.
    """

    name: str
    arity: int
    meaning: Callable[..., Any]
    result: str | DType = "same"
    kinds: str = "f"

    def result_dtype(self, first: DType) -> DType:
        match self.result:
            case "bool":
                return dtypes.bool_
            case "bits":
                return _UNSIGNED[first.bits]
            case "float":
                return _FLOATS.get(first.bits, first)
            case DType() as dtype:
                return dtype
        return first

    def takes(self, dtype: DType) -> bool:
        """Whether an argument may have this type."""
        same_size = not isinstance(self.result, DType) or dtype.bits == self.result.bits
        return dtype.kind in self.kinds and same_size


_UNSIGNED = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}
_FLOATS = {16: dtypes.f16, 32: dtypes.f32, 64: dtypes.f64}


def _erf(x: Any) -> Any:
    """The error function, element by element in double precision (math.erf), rounded back to the type of x."""
    a = np.asarray(x)
    out = np.frompyfunc(math.erf, 1, 1)(a.astype(np.float64))
    return np.asarray(out, np.float64).astype(a.dtype)


def _sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), from exp(-|x|), which does not overflow: exact also where exp(-x) would be infinite."""
    a = np.asarray(x)
    wide = a.astype(np.float64) if a.dtype.itemsize < 4 else a
    tail = np.exp(-np.abs(wide))
    return (np.where(wide < 0, tail, 1) / (tail + 1)).astype(a.dtype)


def _round_even(x: Any) -> Any:
    return np.rint(x)


def _invert(x: Any) -> Any:
    return np.invert(x)


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """(a + b rounded, the error), exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _halves(a: Any) -> tuple[Any, Any]:
    """An f64 as a sum of two numbers of 26 bits (Veltkamp)."""
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a*b + c rounded once. 16-bit floats are computed in f32, and rounded."""
    if type(a) is type(b) is type(c) is np.float32:
        return np.float32(_fma_of_f32(float(a), float(b), float(c)))
    dtype = np.asarray(a).dtype
    if dtype.itemsize == 2:
        return _fma(*(np.asarray(v).astype(np.float32) for v in (a, b, c))).astype(dtype)
    x, y, z = (np.asarray(v).astype(np.float64) for v in (a, b, c))
    if dtype == np.float64:
        return _fma_of_f64(x, y, z)
    total, rest = _two_sum(x * y, z)  # two numbers of 24 bits: the product is exact
    return np.where(np.isfinite(total), _to_odd(total, rest), total).astype(dtype)


def _fma_of_f32(x: float, y: float, z: float) -> float:
    """What the array of one f32 gives, rounded to odd in f64: in plain numbers, for evaluators that run one by one."""
    product = x * y
    total = product + z
    if not total or not math.isfinite(total):
        return total
    part = total - product
    rest = (product - (total - part)) + (z - part)
    if not rest or int(math.frexp(total)[0] * 2**53) & 1:
        return total
    return math.nextafter(total, math.copysign(math.inf, rest))


def _fma_of_f64(x: Any, y: Any, z: Any) -> Any:
    """The exact product and sum as pairs of f64, the smaller parts rounded to odd before the last sum (Boldo and
    Melquiond, 2008). Where the pairs could over- or underflow, rational numbers."""
    product = x * y
    (xh, xl), (yh, yl) = _halves(x), _halves(y)
    lost = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
    total, rest = _two_sum(product, z)
    small, error = _two_sum(lost, rest)
    exact = total + _to_odd(small, error)
    size = np.abs(product)
    safe = np.isfinite(exact) & (size < 1e290) & (size > 1e-250) & (np.abs(x) < 1e290) & (np.abs(y) < 1e290)
    unsafe = ~safe & np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & (x != 0) & (y != 0)
    result = np.where(safe, exact, product + z)
    if unsafe.any():
        finite = [np.where(unsafe, v, 0.0) for v in (x, y, z)]
        result = np.where(unsafe, np.frompyfunc(_rational_fma, 3, 1)(*finite), result).astype(np.float64)
    return result


def _rational_fma(x: float, y: float, z: float) -> float:
    from fractions import Fraction

    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(exact) if exact else x * y + z
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _to_odd(near: Any, error: Any) -> Any:
    """near + error with the last bit set where that is inexact, for a `near` that is the sum rounded to nearest."""
    bits = np.asarray(near).view(np.int64)
    away = (error > 0) == (near > 0)
    odd = np.where(away, bits, bits - 1) | 1
    return np.where((error != 0) & (near != 0), odd, bits).view(np.float64)


def _bits(x: Any) -> Any:
    a = np.asarray(x)
    return a.view(f"u{a.itemsize}")


def _from_bits(x: Any) -> Any:
    a = np.asarray(x)
    return a.view(f"f{a.itemsize}")


def _as_bits_of(dtype: DType) -> Callable[[Any], Any]:
    """The function that reads bits as those of a type that is not the IEEE float of its width."""
    return lambda x: np.asarray(x).view(dtype.numpy)


FAR = 823549.0
"""The functions `sin_far` … replace values of arguments greater than this: 2^19 quarter turns, rounded down."""


def _far(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The function of x where |x| is greater than FAR, elsewhere y."""

    def meaning(x: Any, y: Any) -> Any:
        return np.where(np.abs(x) > FAR, function(x), y)

    return meaning


def _power(a: Any, b: Any) -> Any:
    """a**b; integers wrap around, and the truncated reciprocal stands for a negative exponent (0**-1 is 0)."""
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    negative = y < 0
    unit = np.where((x == 1) | (x == -1 if x.dtype.kind == "i" else False), x, 0).astype(x.dtype)
    return np.power(np.where(negative, unit, x), np.where(negative, y & 1 | 2, y).astype(y.dtype)).astype(x.dtype)


def _popcount(x: Any) -> Any:
    """The number of bits of the magnitude that are set."""
    return np.bitwise_count(x).astype(np.asarray(x).dtype)


def _dot_bytes(total: Any, a: Any, b: Any) -> Any:
    """`total` plus the products of the bytes of a, unsigned, by those of b, signed, as 32 bits that wrap around."""
    sums = np.asarray(total).astype(np.int64)
    for place in (0, 8, 16, 24):
        first, second = (np.asarray(v) >> np.uint32(place) & np.uint32(255) for v in (a, b))
        sums = sums + first.astype(np.int64) * second.astype(np.uint8).astype(np.int8)
    return (sums & 0xFFFFFFFF).astype(np.uint32)


_ROWS = (
    Intrinsic("neg", 1, np.negative, kinds="iuf"),
    Intrinsic("abs", 1, np.abs, kinds="iuf"),
    Intrinsic("sign", 1, np.sign, kinds="iuf"),
    Intrinsic("invert", 1, _invert, kinds="iu"),
    Intrinsic("popcount", 1, _popcount, kinds="iu"),
    Intrinsic("floor", 1, np.floor),
    Intrinsic("ceil", 1, np.ceil),
    Intrinsic("trunc", 1, np.trunc),
    Intrinsic("round", 1, _round_even),
    Intrinsic("sqrt", 1, np.sqrt),
    Intrinsic("exp", 1, np.exp),
    Intrinsic("log", 1, np.log),
    Intrinsic("log1p", 1, np.log1p),
    Intrinsic("expm1", 1, np.expm1),
    Intrinsic("sin", 1, np.sin),
    Intrinsic("cos", 1, np.cos),
    Intrinsic("tan", 1, np.tan),
    Intrinsic("asin", 1, np.arcsin),
    Intrinsic("acos", 1, np.arccos),
    Intrinsic("atan", 1, np.arctan),
    Intrinsic("sinh", 1, np.sinh),
    Intrinsic("cosh", 1, np.cosh),
    Intrinsic("tanh", 1, np.tanh),
    Intrinsic("asinh", 1, np.arcsinh),
    Intrinsic("acosh", 1, np.arccosh),
    Intrinsic("atanh", 1, np.arctanh),
    Intrinsic("erf", 1, _erf),
    Intrinsic("sigmoid", 1, _sigmoid),
    Intrinsic("isnan", 1, np.isnan, result="bool"),
    Intrinsic("isinf", 1, np.isinf, result="bool"),
    Intrinsic("pow", 2, _power, kinds="iuf"),
    Intrinsic("copysign", 2, np.copysign),
    Intrinsic("fma", 3, _fma),
    Intrinsic("dot_bytes", 3, _dot_bytes, result=dtypes.u32, kinds="u"),
    Intrinsic("bits", 1, _bits, result="bits", kinds="fn"),
    Intrinsic("from_bits", 1, _from_bits, result="float", kinds="u"),
    *(Intrinsic(f"from_bits.{d}", 1, _as_bits_of(d), result=d, kinds="u") for d in (dtypes.bf16, *dtypes.NARROW)),
    Intrinsic("sin_far", 2, _far(np.sin)),
    Intrinsic("cos_far", 2, _far(np.cos)),
    Intrinsic("tan_far", 2, _far(np.tan)),
)

INTRINSICS: dict[str, Intrinsic] = {row.name: row for row in _ROWS}

FREE = frozenset(row.name for row in _ROWS if row.name == "bits" or row.name.startswith("from_bits"))
"""The functions that leave the bits as they are: they take no instruction."""

_OF_BITS = ["neg", "abs", "sign", "copysign", "isnan", "isinf", "invert", "popcount", "dot_bytes", *FREE]

BRIEF = frozenset([*_OF_BITS, "floor", "ceil", "trunc", "round", "sqrt", "fma"])
"""The functions of a few instructions. Others become so many that a scalar takes about as long as a vector."""
