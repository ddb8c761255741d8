"""The gamma function and its relatives, of f64 tensors."""

from __future__ import annotations

import math
from fractions import Fraction

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.loop import Repeat
from tilewright.frontends.build.special.series import below, polynomial
from tilewright.frontends.build.values import Tensor

# The gamma function by Lanczos' series with g = 7 (P. Godfrey, 2001): the first number, and those over z, z + 1, …
LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip

BERNOULLI = (Fraction(1, 6), Fraction(-1, 30), Fraction(1, 42), Fraction(-1, 30), Fraction(5, 66), Fraction(-691, 2730),
             Fraction(7, 6), Fraction(-3617, 510), Fraction(43867, 798), Fraction(-174611, 330))  # fmt: skip
"""Bernoulli's numbers B2, B4, …"""

SHIFT = 10
"""From where on the series of Bernoulli's numbers are exact to f64: sums over what is below are added."""

NOTHING, ENDLESS = float("nan"), float("inf")


def _from_integer(b: Emit, x: Tensor) -> Tensor:
    """pi times the distance from the nearest integer, with its sign: sines and tangents of it are exact."""
    return (x - b.map("round", x)) * math.pi


def log_gamma(b: Emit, x: Tensor) -> Tensor:
    """log |gamma(x)|: infinite at 0, -1, …; below 1/2 by gamma(x) gamma(1 - x) = pi / sin(pi x)."""
    mirrored = b.map("lt", x, 0.5)
    z = b.select(mirrored, -x, x - 1)
    series: Tensor | None = None
    for n, c in enumerate(LANCZOS[1:], start=1):
        term = c / (z + float(n))
        series = term if series is None else series + term
    assert series is not None
    t = z + 7.5
    right = (z + 0.5) * b.map("log", t) - t + b.map("log", series + LANCZOS[0]) + 0.5 * math.log(2 * math.pi)
    left = b.map("log", math.pi / b.map("abs", b.map("sin", _from_integer(b, x)))) - right
    found = b.select(mirrored, left, right)
    return b.select(b.map("isinf", x), b.scalar(ENDLESS, x.dtype), found)


def digamma(b: Emit, x: Tensor) -> Tensor:
    """The derivative of log gamma: infinite at 0, NaN at -1, -2, …; below 0 mirrored."""
    negative = b.map("lt", x, 0)
    z = b.select(negative, 1 - x, x)
    y = z + float(SHIFT)
    inverse = 1 / (y * y)
    terms = [float(n / (2 * k)) for k, n in enumerate(BERNOULLI, start=1)]
    found = b.map("log", y) - 0.5 / y - polynomial(b, inverse, terms[::-1]) * inverse
    for n in range(SHIFT):
        found = found - 1 / (z + float(n))
    turn = _from_integer(b, x)
    found = b.select(negative, found - math.pi / b.map("tan", turn), found)
    pole = b.map("and", negative, b.map("eq", turn, 0))
    found = b.select(pole, b.scalar(NOTHING, x.dtype), found)
    return b.select(b.map("eq", x, 0), b.map("copysign", b.scalar(ENDLESS, x.dtype), -x), found)


def zeta(b: Emit, s: Tensor, q: Tensor) -> Tensor:
    """Hurwitz's zeta function, the sum of (q + n)^-s: by Euler and Maclaurin's formula from q + n > 9 on. Infinite for
    s = 1 and at the poles q = 0, -1, …; NaN for s < 1, and where a power of a number below 0 is none."""
    shape = (s + q).shape
    s, q = b.broadcast(s, shape), b.broadcast(q, shape)
    axes = range(len(shape))
    whole_s, whole_q = (b.map("eq", t, b.map("floor", t)) for t in (s, q))
    below_zero = b.map("le", q, 0)
    none = b.map("and", below_zero, b.map("not", whole_s))
    pole = b.map("and", below_zero, whole_q)
    start = b.select(b.map("or", none, pole), b.scalar(1.0, q.dtype), q)

    def waits(emit: Emit, a: Tensor) -> Tensor:
        return emit.reduce("any", emit.map("le", a, 9), axes)

    total = b.map("pow", start, -s)
    loop = Repeat(b, "zeta", waits(b, start), [start, total, s], [{}, {}, {}], None)
    a, sums, power = loop.states
    now = loop.b.map("le", a, 9)
    next = a + loop.b.select(now, loop.b.scalar(1.0, a.dtype), 0.0)
    more = loop.b.select(now, sums + loop.b.map("pow", next, -power), sums)
    (last, total, _), _ = loop.finish(waits(loop.b, next), [next, more, power], [])
    found = total + _remainder(b, s, last)
    found = below(b, s, 1, NOTHING, b.select(none, b.scalar(NOTHING, q.dtype), found))
    infinite = b.map("or", b.map("eq", s, 1), b.map("and", pole, b.map("le", 1, s)))
    return b.select(infinite, b.scalar(ENDLESS, q.dtype), found)


def _remainder(b: Emit, s: Tensor, a: Tensor) -> Tensor:
    """The sum of (a + n)^-s from n = 1 on: the integral, half a term less, and derivatives by Bernoulli's numbers."""
    last = b.map("pow", a, -s)
    found = last * a / (s - 1) - last * 0.5
    rising, power = s, last / a
    for k, n in enumerate(BERNOULLI, start=1):
        found = found + rising * power * float(n / math.factorial(2 * k))
        rising = rising * (s + float(2 * k - 1)) * (s + float(2 * k))
        power = power / (a * a)
    return found


def polygamma(b: Emit, n: int, x: Tensor) -> Tensor:
    """The derivative number n of digamma: (-1)^(n+1) n! zeta(n + 1, x)."""
    if n == 0:
        return digamma(b, x)
    order = b.scalar(float(n + 1), x.dtype)
    return zeta(b, order, x) * ((-1.0) ** (n + 1) * math.factorial(n))


def trigamma(b: Emit, x: Tensor, sine: Tensor) -> Tensor:
    """The second derivative of log gamma; below 1/2 mirrored, by the sine of pi x."""
    mirrored = b.map("lt", x, 0.5)
    z = b.select(mirrored, 1 - x, x)
    y = z + float(SHIFT)
    inverse = 1 / (y * y)
    terms = [float(n) for n in BERNOULLI]
    found = (1 + polynomial(b, inverse, terms[::-1]) * inverse) / y + inverse * 0.5
    for n in range(SHIFT):
        shifted = z + float(n)
        found = found + 1 / (shifted * shifted)
    return b.select(mirrored, math.pi**2 / (sine * sine) - found, found)


def log_multigamma(b: Emit, x: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions: pi^(p(p-1)/4) gamma(x) gamma(x - 1/2) …"""
    found = log_gamma(b, x) + p * (p - 1) / 4 * math.log(math.pi)
    for n in range(1, p):
        found = found + log_gamma(b, x - n / 2)
    return found
