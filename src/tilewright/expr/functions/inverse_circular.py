"""Inverses of circular functions, in basic operations.

atan          |x| at most tan(pi/8), or (|x| - 1)/(|x| + 1) + pi/4, or -1/|x| + pi/2
asin, acos    x + x^3*P(x^2) up to 1/2; beyond, pi/2 - 2*asin(sqrt((1 - |x|)/2))
"""

from __future__ import annotations

from math import pi

from tilewright.expr.build import less, less_equal, select
from tilewright.expr.functions.real import Real
from tilewright.expr.nodes import Expr, call

# (atan(x)/x - 1) / z, z = x^2, for |x| <= tan(pi/8); error 2^-59.48 before rounding
ATAN_64 = (
    -0.333333333333332,
    0.19999999999954068,
    -0.14285714280246922,
    0.11111110786051323,
    -0.0909089783379395,
    0.07692061587402335,
    -0.06663119794579137,
    0.05848004473775423,
    -0.050398248725435656,
    0.03807778225453858,
    -0.017921674935761276,
)

# (asin(x)/x - 1) / z, z = x^2, for |x| <= 1/2; error 2^-55.87 before rounding
ASIN_64 = (
    0.16666666666665383,
    0.07500000000343011,
    0.044642856823501706,
    0.030381959330573877,
    0.02237175353950732,
    0.017359770846666386,
    0.013884601243586236,
    0.012173259827724329,
    0.006510942578334057,
    0.019573649718762673,
    -0.01629365404379135,
    0.03195866760657824,
)

HALF_PI, HALF_PI_LOW = pi / 2, 6.123233995736766e-17
"""pi/2 in two parts of f64."""


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
    tail = m.polynomial(z, ATAN_64) * z
    high = select(small, zero, select(large, m.number(HALF_PI), m.number(HALF_PI / 2)))
    low = select(small, zero, select(large, m.number(HALF_PI_LOW), m.number(HALF_PI_LOW / 2)))
    value = high + (q + m.fma(q, tail, low))
    return select(less(size, 2.0**-30), x, call("copysign", value, x))


def _asin_tail(m: Real, z: Expr) -> Expr:
    """asin(s)/s - 1 for z = s^2 <= 1/4."""
    return m.polynomial(z, ASIN_64) * z


def _asin_of_half(m: Real, size: Expr, near: Expr) -> tuple[Expr, Expr]:
    """(whether |x| = `size` is at most 1/2, asin(near) if so and asin(sqrt((1 - size) / 2)) otherwise)."""
    small = less_equal(size, 0.5)
    far = (1.0 - size) * 0.5
    z = select(small, size * size, far)
    s = select(small, near, call("sqrt", far))
    return small, m.fma(s, _asin_tail(m, z), s)


def expand_asin(m: Real, x: Expr) -> Expr:
    size = call("abs", x)
    small, value = _asin_of_half(m, size, size)
    beyond = HALF_PI - m.fma(value, 2.0, -HALF_PI_LOW)
    return select(less(size, 2.0**-30), x, call("copysign", select(small, value, beyond), x))


def expand_acos(m: Real, x: Expr) -> Expr:
    small, value = _asin_of_half(m, call("abs", x), x)
    middle = HALF_PI - (value - HALF_PI_LOW)
    turned = pi - m.fma(value, 2.0, -2 * HALF_PI_LOW)
    return select(small, middle, select(less(x, 0.0), turned, value * 2.0))
