"""Circular functions and their inverses, in basic operations.

sin, cos, tan    x = n*(pi/2) + r with |r| <= pi/4, pi/2 in three parts (Cody and Waite, 1980): up to the
                 bound FAR of expr/intrinsics.py the
                 products with n are exact. Beyond, the intrinsics `sin_far` … take the C library's value.
atan             |x| at most tan(pi/8), or (|x| - 1)/(|x| + 1) + pi/4, or -1/|x| + pi/2
asin, acos       x + x^3*P(x^2) up to 1/2; beyond, pi/2 - 2*asin(sqrt((1 - |x|)/2))
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr import dtypes
from tilewright.expr.build import cast, equal, less, less_equal, select
from tilewright.expr.nodes import Expr, call
from tilewright.lower.loops import polynomials as table
from tilewright.lower.loops.real import Real

HALF_PI = 1.5707963267948966
HALF_PI_LOW = 6.123233995736766e-17
QUARTER_PI_LOW = HALF_PI_LOW / 2
PI = 2 * HALF_PI


@dataclass(frozen=True, slots=True)
class Angle:
    """x less a multiple of pi/2: `r` + `low`, and the number of quarter turns in the low bits of `turns`."""

    turns: Expr
    r: Expr
    low: Expr | None


def reduce_angle(m: Real, x: Expr) -> Angle:
    """The angle in -pi/4 .. pi/4. An f32 is reduced in f64, where two parts of pi/2 are enough."""
    wide = Real(dtypes.f64, m.fused)
    x = cast(x, dtypes.f64)
    shifted = wide.fma(x, 2 / PI, wide.rounder)
    n = shifted - wide.rounder
    turns = wide.mask(wide.bits(shifted), 3)
    first, second, third = table.HALF_PI
    near = wide.fma(n, -first, x)
    if not m.is_double:
        return Angle(turns, cast(wide.fma(n, -second, near), m.dtype), None)
    part = n * second
    r = near - part
    low = wide.fma(n, -third, (near - r) - part)
    total = r + low
    return Angle(turns, total, (r - total) + low)


def sin_and_cos(m: Real, angle: Angle) -> tuple[Expr, Expr]:
    """The sine and the cosine of the reduced angle."""
    r = angle.r
    z = r * r
    sine_tail = m.polynomial(z, table.SIN_64 if m.is_double else table.SIN_32)
    cosine_tail = m.polynomial(z, table.COS_64 if m.is_double else table.COS_32)
    if angle.low is None:
        return m.fma(r * z, sine_tail, r), m.fma(z * z, cosine_tail, m.fma(z, -0.5, 1.0))
    half = z * 0.5
    near = 1.0 - half
    sine = r + m.fma(r * z, sine_tail, m.fma(-half, angle.low, angle.low))
    cosine = near + (((1.0 - near) - half) + m.fma(z * z, cosine_tail, -(r * angle.low)))
    return sine, cosine


def expand_sin(m: Real, x: Expr) -> Expr:
    angle = reduce_angle(m, x)
    sine, cosine = sin_and_cos(m, angle)
    near = m.flip_sign(select(_is_odd(angle.turns), cosine, sine), angle.turns)
    return call("sin_far", x, select(equal(x, 0.0), x, near))


def expand_cos(m: Real, x: Expr) -> Expr:
    angle = reduce_angle(m, x)
    sine, cosine = sin_and_cos(m, angle)
    near = m.flip_sign(select(_is_odd(angle.turns), sine, cosine), angle.turns + 1)
    return call("cos_far", x, near)


def expand_tan(m: Real, x: Expr) -> Expr:
    angle = reduce_angle(m, x)
    sine, cosine = sin_and_cos(m, angle)
    odd = _is_odd(angle.turns)
    near = select(odd, -cosine, sine) / select(odd, sine, cosine)
    return call("tan_far", x, select(equal(x, 0.0), x, near))


def _is_odd(turns: Expr) -> Expr:
    wide = Real(dtypes.f64, True)
    return equal(wide.mask(turns, 1), 1)


def expand_atan(m: Real, x: Expr) -> Expr:
    """One quotient: a, (a - 1)/(a + 1) or -1/a, and the angle that it is away from."""
    size = call("abs", x)
    small = less_equal(size, 0.41421356237309503)
    large = less(m.number(2.414213562373095), size)
    one, zero = m.number(1.0), m.number(0.0)
    above = select(small, size, select(large, -one, size - 1.0))
    below = select(small, one, select(large, size, size + 1.0))
    q = above / below
    z = q * q
    tail = m.polynomial(z, table.ATAN_64) * z
    high = select(small, zero, select(large, m.number(HALF_PI), m.number(HALF_PI / 2)))
    low = select(small, zero, select(large, m.number(HALF_PI_LOW), m.number(QUARTER_PI_LOW)))
    value = high + (q + m.fma(q, tail, low))
    return select(less(size, 2.0**-30), x, call("copysign", value, x))


def _asin_tail(m: Real, z: Expr) -> Expr:
    """asin(s)/s - 1 for z = s^2 <= 1/4."""
    return m.polynomial(z, table.ASIN_64) * z


def expand_asin(m: Real, x: Expr) -> Expr:
    size = call("abs", x)
    small = less_equal(size, 0.5)
    far = (1.0 - size) * 0.5
    z = select(small, size * size, far)
    s = select(small, size, call("sqrt", far))
    value = m.fma(s, _asin_tail(m, z), s)
    beyond = HALF_PI - m.fma(value, 2.0, -HALF_PI_LOW)
    return select(less(size, 2.0**-30), x, call("copysign", select(small, value, beyond), x))


def expand_acos(m: Real, x: Expr) -> Expr:
    size = call("abs", x)
    small = less_equal(size, 0.5)
    far = (1.0 - size) * 0.5
    z = select(small, size * size, far)
    s = select(small, x, call("sqrt", far))
    value = m.fma(s, _asin_tail(m, z), s)
    middle = HALF_PI - (value - HALF_PI_LOW)
    turned = PI - m.fma(value, 2.0, -2 * HALF_PI_LOW)
    return select(small, middle, select(less(x, 0.0), turned, value * 2.0))
