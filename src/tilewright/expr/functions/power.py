"""Powers, in basic operations.

floats      exp(y * log(|x|)) in a type with bits to spare; a product of few factors for the exponents 2, 3 and 4
integers    repeated squaring
"""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.build import cast, equal, less, select
from tilewright.expr.functions.exponential import expand_exp
from tilewright.expr.functions.logarithm import INFINITY, NAN, expand_log
from tilewright.expr.functions.real import Real
from tilewright.expr.nodes import BitAnd, Const, Expr, Shr, binary, call, const


def power(x: Expr, y: Expr, fused: bool) -> Expr | None:
    """x to the power of y, of any type; None for f64, whose powers nothing is exact enough for but the C library."""
    if x.dtype.is_int:
        return integer_power(x, y)
    if isinstance(y, Const) and y.value in (2, 3, 4):
        wide = cast(x, dtypes.f32) if x.dtype.bits < 32 else x
        square = wide * wide
        return cast(square if y.value == 2 else square * wide if y.value == 3 else square * square, x.dtype)
    if x.dtype is dtypes.f64:
        return None
    double = Real(dtypes.f64, fused)
    return cast(expand_pow(double, cast(x, dtypes.f64), cast(y, dtypes.f64)), x.dtype)


def expand_pow(m: Real, x: Expr, y: Expr) -> Expr:
    """exp(y * log(|x|)) in a type with bits to spare, and the special cases of C's pow."""
    size = call("abs", x)
    value = expand_exp(m, y * expand_log(m, size))
    whole = equal(call("trunc", y), y)
    half = y * 0.5
    odd = select(equal(call("trunc", half), half), m.number(0.0), select(whole, m.number(1.0), m.number(0.0)))
    negative = less(call("copysign", m.number(1.0), x), 0.0)
    signed = select(negative, select(equal(odd, 1.0), -value, value), value)
    broken = select(
        less(x, 0.0), select(less(m.number(-INFINITY), x), select(whole, signed, m.number(NAN)), signed), signed
    )
    one = m.number(1.0)
    unit = select(equal(size, 1.0), select(equal(call("abs", y), INFINITY), one, broken), broken)
    return select(equal(y, 0.0), one, select(equal(x, 1.0), one, unit))


def integer_power(x: Expr, y: Expr) -> Expr:
    """Repeated squaring, a bit of the exponent at a time, wrapping around. For a negative exponent 1 and -1 have their
    powers, and all others 0."""
    dtype = x.dtype
    bits = dtype.bits - (dtype.kind == "i")
    if isinstance(y, Const):
        bits = max(int(y.value), 1).bit_length()
    one = const(1, dtype)
    result: Expr = one
    square = x
    for bit in range(bits):
        chosen = binary(BitAnd, binary(Shr, y, const(bit, dtype)), one)
        factor = select(equal(chosen, 1), square, one)
        result = result * factor
        if bit + 1 < bits:
            square = square * square
    if dtype.kind == "u":
        return result
    alternating = select(equal(binary(BitAnd, y, one), 1), const(-1, dtype), one)
    unit = select(equal(x, 1), one, select(equal(x, -1), alternating, const(0, dtype)))
    return select(less(y, 0), unit, result)
