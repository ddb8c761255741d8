"""Exponentials and what is made of them, in basic operations.

    exp     x = n*ln(2) + r with |r| <= ln(2)/2 (Cody and Waite, 1980), exp(x) = 2^n * (1 + r + r^2*P(r))
    tanh    -t / (t + 2) with t = expm1(-2|x|); in f32, x + x^3*P(x^2) up to 0.55, then 1 - 2/(s + 1)
            with s = exp(2|x|)
    sigmoid 1 / (exp(-x) + 1), both scaled by a power of two

Adding 1.5*2^p rounds to an integer and leaves it in the low bits, which become exponents of powers of two: no
conversions, and no branches. Each function is right for zeros, infinities, NaN, subnormal numbers and results.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr.build import less, maximum, minimum, select
from tilewright.expr.functions.real import Real
from tilewright.expr.nodes import Expr, call

# (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2; error 2^-28.28 before rounding
EXP_32 = (
    0.4999999403953552,
    0.1666652113199234,
    0.04166838899254799,
    0.008368711918592453,
    0.0013814610429108143,
)

# (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2; error 2^-57.6 before rounding
EXP_64 = (
    0.5000000000000004,
    0.1666666666666643,
    0.041666666666572386,
    0.008333333333494628,
    0.001388888893414189,
    0.00019841269489890567,
    2.4801501794992143e-05,
    2.7557611775192922e-06,
    2.7627443810503736e-07,
    2.4989522577491258e-08,
)

# (tanh(x)/x - 1) / z, z = x^2, for |x| <= 0.55; error 2^-29.9 before rounding
TANH_32 = (
    -0.33333319425582886,
    0.13332602381706238,
    -0.05385385826230049,
    0.021077757701277733,
    -0.006282471586018801,
)


@dataclass(frozen=True, slots=True)
class Power:
    """exp(x) in parts: the low bits of `exponent` are an integer n plus what split_exp added, `rest` is exp(r) - 1."""

    exponent: Expr
    rest: Expr


def split_exp(m: Real, x: Expr, added: int, sign: int = 1) -> Power:
    """The parts of exp(x), or of exp(-x) where `sign` is -1, for |x| up to a little more than the greatest logarithm,
    with `added` on the exponent."""
    rounder = m.rounder + added
    shifted = m.fma(x, sign * 1.4426950408889634, rounder)
    n = shifted - rounder
    high, low = m.ln2
    r = m.fma(n, -sign * low, m.fma(n, -sign * high, x))
    terms = [c * sign**k for k, c in enumerate(EXP_64 if m.is_double else EXP_32)]
    return Power(m.bits(shifted), m.fma(r * r, m.polynomial(r, terms), r if sign > 0 else -r))


def two_to(m: Real, exponent: Expr) -> Expr:
    """2^(e - bias), e being the low bits of the integer: the result is a normal number."""
    return m.from_bits(m.shift_left(exponent, m.fraction_bits))


def two_halves(m: Real, power: Power) -> tuple[Expr, Expr]:
    """Two factors whose product is 2^(e - 2*bias), e being the low bits of the exponent: normal numbers even where the
    product is none."""
    half = m.shift_right(power.exponent, 1)
    return two_to(m, half), two_to(m, power.exponent - half)


def clamp(x: Expr, low: float, high: float) -> Expr:
    """x moved into the range; NaN stays."""
    return minimum(maximum(x, low), high)


def expand_exp(m: Real, x: Expr) -> Expr:
    power = split_exp(m, clamp(x, -746.0, 710.0) if m.is_double else clamp(x, -104.0, 89.0), 2 * m.bias)
    first, second = two_halves(m, power)
    return m.fma(power.rest, first, first) * second


def expand_expm1(m: Real, x: Expr) -> Expr:
    """2 * (2^(n-1)*(exp(r) - 1) + (2^(n-1) - 1/2)): half the value does not overflow before the value does."""
    power = split_exp(m, clamp(x, -50.0, 710.0 if m.is_double else 89.0), m.bias - 1)
    scale = two_to(m, power.exponent)
    value = m.fma(scale, power.rest, scale - 0.5) * 2.0
    return select(less(call("abs", x), 4 * m.least_normal), x, value)


def expand_sigmoid(m: Real, x: Expr) -> Expr:
    """c / (c*exp(-x) + c), c a power of two that keeps c*exp(-x) a normal number: where it is less than c by more than
    a rounding, it may be anything, and where the result is zero it is finite."""
    digits = m.fraction_bits + 1
    inside = clamp(x, -746.0, 40.0) if m.is_double else clamp(x, -104.0, 20.0)
    power = split_exp(m, inside, m.bias - digits, sign=-1)
    scale, unit = two_to(m, power.exponent), 2.0**-digits
    return unit / (m.fma(scale, power.rest, unit) + scale)


def expand_sinh(m: Real, x: Expr) -> Expr:
    """(t + t/(t + 1)) / 2 with t = expm1(|x|); exp(|x|)/2 where that is the same."""
    size = call("abs", x)
    power = split_exp(m, minimum(size, 712.0), 2 * m.bias - 1)
    first, second = two_halves(m, power)
    scale = first * second
    half_exp = m.fma(power.rest, first, first) * second
    half = m.fma(scale, power.rest, scale - 0.5)
    small = half + half / (half_exp * 2.0)
    value = select(less(size, 40.0), small, half_exp)
    return select(less(size, 4 * m.least_normal), x, call("copysign", value, x))


def expand_cosh(m: Real, x: Expr) -> Expr:
    """exp(|x|)/2 + 1/(4 * exp(|x|)/2)."""
    power = split_exp(m, minimum(call("abs", x), 712.0), 2 * m.bias - 1)
    first, second = two_halves(m, power)
    half_exp = m.fma(power.rest, first, first) * second
    return half_exp + 0.25 / half_exp


def expand_tanh(m: Real, x: Expr) -> Expr:
    """By expm1 and one quotient; in f32 small arguments have a polynomial, which loses less."""
    size = call("abs", x)
    power = split_exp(m, minimum(size, 22.0) * (-2.0 if m.is_double else 2.0), m.bias)
    scale = two_to(m, power.exponent)
    if m.is_double:
        t = m.fma(scale, power.rest, scale - 1.0)
        return call("copysign", t / (t + 2.0), x)
    square = size * size
    small = m.fma(size * square, m.polynomial(square, TANH_32), size)
    large = 1.0 - 2.0 / (m.fma(scale, power.rest, scale) + 1.0)
    return call("copysign", select(less(size, 0.55), small, large), x)
