"""Exponentials, logarithms and what is made of them, in basic operations.

    exp     x = n*ln(2) + r with |r| <= ln(2)/2 (Cody and Waite, 1980), exp(x) = 2^n * (1 + r + r^2*P(r))
    log     x = 2^e * (1 + f), f in sqrt(1/2) - 1 .. sqrt(2) - 1, log(1 + f) = 2*atanh(s), s = f / (2 + f) (Tang, 1990)
    log1p   log(u + c), where u = 1 + x rounded and c is what rounding lost (Knuth's two-sum), as log(u) + c/u
    tanh    -t / (t + 2) with t = expm1(-2|x|); in f32, x + x^3*P(x^2) up to 0.55, then 1 - 2/(s + 1)
            with s = exp(2|x|)
    sigmoid 1 / (exp(-x) + 1), both scaled by a power of two
    erf     x + x*P(x^2) up to 1; beyond, 1 - exp(Q(|x|)) where Q is log(erfc), in f32 1 - Q(|x|)^4
    erf + 1 in f32, 1 - (1 - t)^8 with t = |x|/8 + |x|*P(|x|), by 1 - (1 - t)^2 = 2t - t^2 three times

Adding 1.5*2^p rounds to an integer and leaves it in the low bits, which become exponents of powers of two: no
conversions, and no branches. Each function is right for zeros, infinities, NaN, subnormal numbers and results.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr.build import equal, less, maximum, minimum, select
from tilewright.expr.nodes import BitOr, Expr, binary, call
from tilewright.lower.loops import polynomials as table
from tilewright.lower.loops.real import Real

INFINITY = float("inf")
NAN = float("nan")


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
    terms = [c * sign**k for k, c in enumerate(table.EXP_64 if m.is_double else table.EXP_32)]
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
    small = m.fma(size * square, m.polynomial(square, table.TANH_32), size)
    large = 1.0 - 2.0 / (m.fma(scale, power.rest, scale) + 1.0)
    return call("copysign", select(less(size, 0.55), small, large), x)


def expand_erf(m: Real, x: Expr) -> Expr:
    size = minimum(call("abs", x), 6.0 if m.is_double else 4.0)
    small = m.fma(size, m.polynomial(size * size, table.ERF_64 if m.is_double else table.ERF_32), size)
    large = _erf_of_large_double(m, size) if m.is_double else _erf_of_large_single(m, size)
    return call("copysign", select(less(size, 1.0), small, large), x)


def _erf_of_large_double(m: Real, size: Expr) -> Expr:
    power = split_exp(m, m.polynomial(size, table.LOG_ERFC_64), m.bias)
    scale = two_to(m, power.exponent)
    return 1.0 - m.fma(scale, power.rest, scale)


def _erf_of_large_single(m: Real, size: Expr) -> Expr:
    root = m.horner(size, table.ROOT_ERFC_32)
    square = root * root
    return m.fma(-square, square, 1.0)


def expand_erf_plus_one(m: Real, x: Expr) -> Expr:
    """erf(x) + 1 by one polynomial; squares of 1 - t would lose the digits of a small t, 2t - t^2 keeps them. Exactly 0
    or 2 from where erf rounds to -1 or 1, so that x*(erf(x) + 1) does not grow there."""
    size = minimum(call("abs", x), 4.0)
    t = m.fma(size, m.polynomial(size, table.ROOT_ERF_32), size * 0.125)
    for _ in range(3):
        t = m.fma(-t, t, t + t)
    return call("copysign", t, x) + 1.0


def log_of_sum(m: Real, u: Expr, lost: Expr | None, subnormal: bool) -> Expr:
    """log(u + c) for positive finite u, `lost` being c/u, much smaller than 1. Without `subnormal`, u is normal."""
    extra: Expr | None = None
    if subnormal:
        tiny = less(u, m.least_normal)
        u = select(tiny, u * 2.0**54, u)
        extra = select(tiny, m.number(54.0), m.number(0.0))
    root = 0x3FE6A09E667F3BCD if m.is_double else 0x3F3504F3  # sqrt(1/2)
    moved = m.bits(u) + ((m.bias << m.fraction_bits) - root)
    raised = binary(
        BitOr, m.shift_right(moved, m.fraction_bits), m.integer((m.bias + m.fraction_bits) << m.fraction_bits)
    )
    e = m.from_bits(raised) - (2.0**m.fraction_bits + m.bias)
    if extra is not None:
        e = e - extra
    f = m.from_bits(m.mask(moved, (1 << m.fraction_bits) - 1) + root) - 1.0
    s = f / (f + 2.0)
    z = s * s
    tail = z * m.polynomial(z, table.LOG_64 if m.is_double else table.LOG_32)
    half_square = f * f * 0.5
    high, low = m.ln2
    correction = e * low if lost is None else m.fma(e, low, lost)
    return m.fma(e, high, f - (half_square - m.fma(s, half_square + tail, correction)))


def log_everywhere(m: Real, u: Expr, value: Expr) -> Expr:
    """`value`, the logarithm of a positive finite u, and what it is for other u."""
    inside = select(less(u, INFINITY), value, u)
    return select(less(m.number(0.0), u), inside, select(equal(u, 0.0), m.number(-INFINITY), m.number(NAN)))


def expand_log(m: Real, x: Expr) -> Expr:
    return log_everywhere(m, x, log_of_sum(m, x, None, subnormal=True))


def two_sum(a: Expr | float, b: Expr) -> tuple[Expr, Expr]:
    """(a + b rounded, what rounding lost), exactly."""
    total = b + a
    part = total - a
    return total, (a - (total - part)) + (b - part)


def expand_log1p(m: Real, x: Expr) -> Expr:
    u, c = two_sum(1.0, x)
    value = log_everywhere(m, u, log_of_sum(m, u, c / u, subnormal=False))
    return select(equal(x, 0.0), x, value)


def expand_asinh(m: Real, x: Expr) -> Expr:
    """log1p(a + a^2/(1 + sqrt(a^2 + 1))); where a^2 + 1 is a^2, log(2) + log(a)."""
    size = call("abs", x)
    square = size * size
    small = size + square / (call("sqrt", square + 1.0) + 1.0)
    return call("copysign", _log1p_or_log_of_double(m, small, size), x)


def expand_acosh(m: Real, x: Expr) -> Expr:
    """log1p(t + sqrt(2t + t^2)) with t = x - 1; for large x, log(2) + log(x)."""
    t = x - 1.0
    value = _log1p_or_log_of_double(m, t + call("sqrt", m.fma(t, t, t * 2.0)), x)
    return select(less(x, 1.0), m.number(NAN), value)


def _log1p_or_log_of_double(m: Real, small: Expr, x: Expr) -> Expr:
    """log1p(small), or log(2*x) for x beyond 2^28; one logarithm is computed."""
    large = less(m.number(2.0**28), x)
    u, c = two_sum(1.0, small)
    argument = select(large, x, u)
    lost = select(large, m.number(0.0), c / u)
    value = log_of_sum(m, argument, lost, subnormal=False)
    doubled = value + select(large, m.number(0.6931471805599453), m.number(0.0))
    result = select(less(argument, INFINITY), doubled, argument)
    return select(equal(small, 0.0), small, result)


def expand_atanh(m: Real, x: Expr) -> Expr:
    """log1p(2a / (1 - a)) / 2."""
    size = call("abs", x)
    value = expand_log1p(m, size * 2.0 / (1.0 - size)) * 0.5
    return select(less(size, 4 * m.least_normal), x, call("copysign", value, x))


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
