"""Circular functions, in basic operations.

sin, cos, tan    x = n*(pi/2) + r with |r| <= pi/4, pi/2 in three parts (Cody and Waite, 1980): up to the bound
                 FAR of expr/intrinsics.py the products with n are exact. Beyond, the intrinsics `sin_far` … take
                 the C library's value.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

from tilewright.expr import dtypes
from tilewright.expr.build import cast, equal, select
from tilewright.expr.functions.real import Real
from tilewright.expr.nodes import Expr, call

# pi/2: products of the first two parts and an integer below 2^20 are exact
HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)

# (sin(x)/x - 1) / z, z = x^2, for |x| <= pi/4; error 2^-28.05 before rounding
SIN_32 = (
    -0.16666655242443085,
    0.008332177996635437,
    -0.00019517271721269935,
)

# (sin(x)/x - 1) / z, z = x^2, for |x| <= pi/4; error 2^-58.01 before rounding
SIN_64 = (
    -0.16666666666666632,
    0.00833333333332242,
    -0.00019841269829813326,
    2.75573136939176e-06,
    -2.5050758440462016e-08,
    1.5896815148262845e-10,
)

# (cos(x) - 1 + z/2) / z^2, z = x^2, for |x| <= pi/4; error 2^-33.28 before rounding
COS_32 = (
    0.04166664555668831,
    -0.001388736767694354,
    2.4438440959784202e-05,
)

# (cos(x) - 1 + z/2) / z^2, z = x^2, for |x| <= pi/4; error 2^-64.22 before rounding
COS_64 = (
    0.0416666666666666,
    -0.0013888888888874133,
    2.4801587289488114e-05,
    -2.7557314354118284e-07,
    2.0875723525099915e-09,
    -1.135966128907446e-11,
)


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
    shifted = wide.fma(x, 2 / pi, wide.rounder)
    n = shifted - wide.rounder
    turns = wide.mask(wide.bits(shifted), 3)
    first, second, third = HALF_PI
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
    sine_tail = m.polynomial(z, SIN_64 if m.is_double else SIN_32)
    cosine_tail = m.polynomial(z, COS_64 if m.is_double else COS_32)
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
