"""Casts from and to narrow types, in integer arithmetic on their codes and the bits of an f32 or f64.

    f32(a)         =>   select(c == 255, nan, from_bits(c << 23)) where c = u32(bits(a))          a: f8e8m0, but for 0
    f8e5m2(x)      =>   from_bits.f8e5m2(u8(min((m + 2^20 - 1 + (m >> 21 & 1) >> 21) - (112 << 2), 123) | sign)) …

A number is rounded to nearest by adding just below half of the last place that stays, and that place itself where it is
odd; below the normal numbers, by adding the float whose last place is the least number of the type, which rounds as f32
or f64 do. What is beyond the range becomes its end, NaN in a type without one 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.build import cast, equal, less, less_equal, minimum, select
from tilewright.expr.dtypes import Code, DType
from tilewright.expr.functions.real import Real
from tilewright.expr.nodes import (
    Add,
    Binary,
    BitAnd,
    BitOr,
    BitXor,
    Broadcast,
    Cast,
    Expr,
    Mul,
    Ne,
    Number,
    Shl,
    Shr,
    binary,
    call,
)
from tilewright.expr.nodes import const as scalar

_NAN = 0x7FC00000
"""A quiet NaN of f32."""


def expand_cast(e: Cast) -> Expr:
    """A cast with a narrow type on either side in basic operations; any other cast as it is."""
    source, to = e.a.dtype, e.dtype
    if source.code is None and to.code is None:
        return e
    made = _Lanes(e.lanes)
    x = e.a if source.code is None else made.number_of(e.a)
    if to.code is None:
        return binary(Ne, x, made.const(0, x.dtype)) if to.is_bool else cast(x, to)
    return made.whole(x, to) if to.is_int else made.rounded(x, to)


def _bits_of(value: float, dtype: DType) -> int:
    """The bits of a number of f32 or f64."""
    return int(np.asarray(value, dtype.numpy).view(f"u{dtype.bytes}"))


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Casts of scalars, or of vectors of `count` lanes."""

    count: int

    def const(self, value: Number, dtype: DType) -> Expr:
        number = scalar(value, dtype)
        return number if self.count == 1 else Broadcast(number, self.count)

    def _with(self, operator: type[Binary], x: Expr, value: Number) -> Expr:
        return binary(operator, x, self.const(value, x.dtype))

    def number_of(self, x: Expr) -> Expr:
        """The number of a narrow type, an integer as i8 or u8, a float as f32."""
        code = x.dtype.code
        assert code is not None
        byte = self._with(BitAnd, call("bits", x), code.mask) if code.width < 8 else call("bits", x)
        if x.dtype.is_int:
            if not code.signed:
                return byte
            flipped = cast(self._with(BitXor, byte, code.sign), dtypes.i8)
            return self._with(Add, flipped, -code.sign)  # the sign, flipped and subtracted, is in all bits above
        c = cast(byte, dtypes.u32)
        return self._power_of_two(c, code) if not code.signed else self._float_of(c, code)

    def _power_of_two(self, c: Expr, code: Code) -> Expr:
        assert code.nan is not None
        least = self.const(_bits_of(code.smallest, dtypes.f32), dtypes.u32)
        bits = select(equal(c, self.const(0, dtypes.u32)), least, self._with(Shl, c, 23))
        nan = equal(c, self.const(code.nan, dtypes.u32))
        return call("from_bits", select(nan, self.const(_NAN, dtypes.u32), bits))

    def _float_of(self, c: Expr, code: Code) -> Expr:
        """The f32 with this code (u32): that of a normal number moves into place, a subnormal one counts the least
        numbers."""
        size = self._with(BitAnd, c, code.sign - 1)
        moved = self._with(Shl, size, 23 - code.fraction)
        normal = self._with(Add, moved, 127 - code.bias << 23)
        count = cast(cast(size, dtypes.i32), dtypes.f32)
        small = call("bits", self._with(Mul, count, code.smallest))
        bits = select(less(size, self.const(1 << code.fraction, dtypes.u32)), small, normal)
        if code.infinity is not None:  # its exponent of all ones is that of f32
            special = less_equal(self.const(code.infinity, dtypes.u32), size)
            bits = select(special, self._with(BitOr, moved, 0x7F800000), bits)
        elif code.nan is not None:
            compared = c if code.one_zero else size
            bits = select(equal(compared, self.const(code.nan, dtypes.u32)), self.const(_NAN, dtypes.u32), bits)
        sign = self._with(Shl, self._with(Shr, c, code.width - 1), 31)
        return call("from_bits", binary(BitOr, bits, sign))

    def whole(self, x: Expr, to: DType) -> Expr:
        """A number as a narrow integer: of floats the nearest in its range towards zero, of others the low bits."""
        assert to.code is not None
        if x.dtype.is_float:
            byte = cast(x, dtypes.i8 if to.signed else dtypes.u8)
            byte = minimum(byte, self.const(to.max, byte.dtype))
            x = select(less(byte, self.const(to.min, byte.dtype)), self.const(to.min, byte.dtype), byte)
        return self._of_code(self._with(BitAnd, cast(x, dtypes.u8), to.code.mask), to)

    def _of_code(self, byte: Expr, to: DType) -> Expr:
        return call(f"from_bits.{to}", byte)

    def rounded(self, x: Expr, to: DType) -> Expr:
        """A number as a narrow float. Integers of more than 24 bits that f32 rounds are beyond all ranges but that of
        powers of two, which are found in f64."""
        code = to.code
        assert code is not None
        wide = x.dtype is dtypes.f64 or (x.dtype.is_int and x.dtype.bits >= 32 and not to.signed)
        m = Real(dtypes.f64 if wide else dtypes.f32, fused=False)
        bits = call("bits", cast(x, m.dtype))
        size = self._with(BitAnd, bits, (1 << (m.dtype.bits - 1)) - 1)
        negative = self._with(Shr, bits, m.dtype.bits - 1)
        nan = less(self.const(_bits_of(np.inf, m.dtype), m.unsigned), size)
        if not to.signed:
            return self._of_code(cast(self._exponent(m, size, negative, nan, code), dtypes.u8), to)
        found = self._fields(m, size, code)
        signed = binary(BitOr, found, self._with(Shl, negative, code.width - 1))
        if code.one_zero:
            signed = select(equal(found, self.const(0, m.unsigned)), self.const(0, m.unsigned), signed)
        if code.nan is None or code.one_zero:
            signed = select(nan, self.const(code.nan or 0, m.unsigned), signed)
        else:
            marked = binary(BitOr, self.const(code.nan, m.unsigned), self._with(Shl, negative, code.width - 1))
            signed = select(nan, marked, signed)
        return self._of_code(cast(signed, dtypes.u8), to)

    def _fields(self, m: Real, size: Expr, code: Code) -> Expr:
        """The exponent and the fraction of a number of this size, as bits."""
        lost = m.fraction_bits - code.fraction
        odd = self._with(BitAnd, self._with(Shr, size, lost), 1)
        up = self._with(Add, binary(Add, size, odd), (1 << (lost - 1)) - 1)
        normal = self._with(Add, self._with(Shr, up, lost), -(m.bias - code.bias << code.fraction))
        magic = code.smallest * 2.0**m.fraction_bits
        sum_ = call("bits", binary(Add, call("from_bits", size), self.const(magic, m.dtype)))
        small = self._with(Add, sum_, -_bits_of(magic, m.dtype))
        least_normal = self.const(_bits_of(2.0 ** (1 - code.bias), m.dtype), m.unsigned)
        return minimum(select(less(size, least_normal), small, normal), self.const(code.greatest, m.unsigned))

    def _exponent(self, m: Real, size: Expr, negative: Expr, nan: Expr, code: Code) -> Expr:
        """The exponent of the nearest power of two, of two as near the greater."""
        assert code.nan is not None
        up = self._with(Shr, self._with(Add, size, 1 << (m.fraction_bits - 1)), m.fraction_bits)
        nearest = self._with(Add, up, code.bias - m.bias)
        least = self.const(_bits_of(1.5 * code.smallest, m.dtype), m.unsigned)
        found = select(less(size, least), self.const(0, m.unsigned), nearest)
        found = minimum(found, self.const(code.greatest, m.unsigned))
        below = binary(BitAnd, negative, cast(less(self.const(0, m.unsigned), size), m.unsigned))
        found = select(equal(below, self.const(0, m.unsigned)), found, self.const(code.nan, m.unsigned))
        return select(nan, self.const(code.nan, m.unsigned), found)
