"""Numbers of f32 that are rounded to nearest and made integers of at most 16 bits, as quantization does.

    u8(round(x) + z)                   =>    u8(bits(c + 1.5*2^23) + z)      c = x, but at least 0 - z, at most 255 - z
    f32(i32(u8(round(x) + z)) - z)     =>    (c + 1.5*2^23) - 1.5*2^23

The ends of a range are integers, so a number may be moved into it before it is rounded. The sum with 1.5*2^23 has no
digits behind the point: it is rounded to nearest, ties to even, and the integer is in its low bits. What is left when
1.5*2^23 is subtracted is an integer, and +0 for what was rounded to zero from either side.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr import dtypes
from tilewright.expr.build import cast, equal, less, select
from tilewright.expr.dtypes import DType
from tilewright.expr.functions.real import Real
from tilewright.expr.nodes import Add, Call, Cast, Const, Expr, Sub, binary

_REAL = Real(dtypes.f32, fused=False)
_LARGEST_ZERO = 1 << 16
"""Zero points up to here leave ends of ranges that `Real.rounder` rounds beside."""


@dataclass(frozen=True, slots=True)
class _Rounded:
    """round(x) + zero as an integer of a type that has few bits."""

    x: Expr
    zero: int
    dtype: DType

    @property
    def sum(self) -> Expr:
        """c + 1.5*2^23. NaN, which is the integer 0, is the end of the range where that is 0."""
        x, low, high = self.x, *(_REAL.number(end - self.zero) for end in (self.dtype.min, self.dtype.max))
        if self.dtype.min:
            x = select(equal(x, x), x, _REAL.number(-self.zero))
        x = select(less(low, x), x, low)
        return binary(Add, select(less(x, high), x, high), _REAL.number(_REAL.rounder))

    @property
    def integer(self) -> Expr:
        bits = _REAL.bits(self.sum)
        moved = binary(Add, bits, _REAL.integer(self.zero % (1 << 32))) if self.zero else bits
        return cast(moved, self.dtype)

    @property
    def number(self) -> Expr:
        """The integer less the zero point, as f32."""
        return binary(Sub, self.sum, _REAL.number(_REAL.rounder))


def expand_nearest(e: Expr) -> Expr:
    """round(x) + z as an integer of few bits in basic operations; any other expression as it is."""
    found = _rounded(e)
    return e if found is None else found.integer


def expand_nearest_number(e: Expr) -> Expr:
    """Such an integer less z as f32 in basic operations; any other expression as it is."""
    match e:
        case Cast(Sub(Cast(made, dtypes.i32), Const(zero)), dtypes.f32):
            pass
        case Cast(Cast(made, dtypes.i32), dtypes.f32):
            zero = 0
        case _:
            return e
    found = _rounded(made)
    return e if found is None or found.zero != zero else found.number


def _rounded(e: Expr) -> _Rounded | None:
    if not isinstance(e, Cast) or e.lanes != 1 or e.a.dtype is not dtypes.f32:
        return None
    if not e.dtype.is_int or e.dtype.bits > 16 or e.dtype.code is not None:
        return None
    match e.a:
        case Call(fn, (x,)) if fn.name == "round":
            return _Rounded(x, 0, e.dtype)
        case Add(Call(fn, (x,)), Const(zero)) if fn.name == "round" and abs(zero) <= _LARGEST_ZERO:
            return _Rounded(x, int(zero), e.dtype) if zero == int(zero) else None
    return None
