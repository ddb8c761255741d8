"""Logarithms and what is made of them, in basic operations.

    log     x = 2^e * (1 + f), f in sqrt(1/2) - 1 .. sqrt(2) - 1, log(1 + f) = 2*atanh(s), s = f / (2 + f) (Tang, 1990)
    log1p   log(u + c), where u = 1 + x rounded and c is what rounding lost (Knuth's two-sum), as log(u) + c/u

Each function is right for zeros, infinities, NaN, subnormal numbers and results.
"""

from __future__ import annotations

from tilewright.expr.build import equal, less, select
from tilewright.expr.functions.real import Real
from tilewright.expr.nodes import BitOr, Expr, binary, call

# (2*atanh(s)/s - 2) / z, z = s^2, for |s| <= 3 - 2*sqrt(2); error 2^-29.2 before rounding
LOG_32 = (
    0.6666677594184875,
    0.3997753858566284,
    0.29871848225593567,
)

# (2*atanh(s)/s - 2) / z, z = s^2, for |s| <= 3 - 2*sqrt(2); error 2^-58.49 before rounding
LOG_64 = (
    0.6666666666666734,
    0.3999999999941435,
    0.28571428742470156,
    0.22222198563898166,
    0.18183564846361616,
    0.1531403635869265,
    0.14796099996844575,
)

INFINITY = float("inf")
NAN = float("nan")


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
    tail = z * m.polynomial(z, LOG_64 if m.is_double else LOG_32)
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
