"""The regularized incomplete gamma functions of f64 tensors (Numerical Recipes, 6.2): a series where x is below a + 1,
a continued fraction beyond."""

from __future__ import annotations

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.loop import Repeat
from tilewright.frontends.build.special.gamma import log_gamma
from tilewright.frontends.build.special.series import below
from tilewright.frontends.build.values import Tensor

EXACT = 2.0**-53
"""Terms are summed until all are below this share of the sum."""

CLOSE = 2.0**-48
"""How close to 1 a factor of the fraction is when all are multiplied: rounding leaves the last bits open."""

TINY = 1e-300
"""What stands for 0 where it is divided by (Lentz's method)."""


def incomplete_gamma(b: Emit, a: Tensor, x: Tensor, upper: bool) -> Tensor:
    """The share of gamma(a) that the integral up to x has, or, `upper`, that from x on. NaN below 0, for a = x = 0 and
    where both are infinite."""
    shape = (a + x).shape
    a, x = b.broadcast(a, shape), b.broadcast(x, shape)
    zero, one = b.scalar(0.0, a.dtype), b.scalar(1.0, a.dtype)
    usual = b.map("and", b.map("lt", 0, a), b.map("lt", 0, x))
    usual = b.map("and", usual, b.map("not", b.map("or", b.map("isinf", a), b.map("isinf", x))))
    own, at = b.select(usual, a, one), b.select(usual, x, one)
    near = b.map("lt", at, own + 1)
    scale = b.map("exp", own * b.map("log", at) - at - log_gamma(b, own))
    lower_part = scale / own * _series(b, own, b.select(near, at, zero))
    upper_part = scale * _fraction(b, b.select(near, one, own), b.select(near, one + 1, at))
    if upper:
        found, nothing, whole = b.select(near, 1 - lower_part, upper_part), one, zero
    else:
        found, nothing, whole = b.select(near, lower_part, 1 - upper_part), zero, one
    ends = b.map("or", b.map("eq", x, 0), b.map("isinf", a))
    found = b.select(usual, found, b.select(ends, nothing, whole))
    undefined = b.map("or", b.map("lt", a, 0), b.map("lt", x, 0))
    for kind, value in (("eq", (0,)), ("isinf", ())):
        undefined = b.map("or", undefined, b.map("and", b.map(kind, a, *value), b.map(kind, x, *value)))
    undefined = b.map("or", undefined, b.map("or", b.map("isnan", a), b.map("isnan", x)))
    return b.select(undefined, b.scalar(float("nan"), a.dtype), found)


def _series(b: Emit, a: Tensor, x: Tensor) -> Tensor:
    """1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + …"""

    def goes_on(emit: Emit, term: Tensor, total: Tensor) -> Tensor:
        return emit.reduce("any", emit.map("lt", total * EXACT, term), range(term.rank))

    one = b.broadcast(b.scalar(1.0, a.dtype), a.shape)
    loop = Repeat(b, "series", goes_on(b, one, one), [one, one, a, x], [{}] * 4, None)
    term, total, below, above = loop.states
    divisor = below + 1
    next = term * above / divisor
    made = total + next
    (_, total, _, _), _ = loop.finish(goes_on(loop.b, next, made), [next, made, divisor, above], [])
    return total


def _fraction(b: Emit, a: Tensor, x: Tensor) -> Tensor:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - …))), by Lentz's method."""

    def goes_on(emit: Emit, change: Tensor) -> Tensor:
        return emit.reduce("any", emit.map("lt", CLOSE, emit.map("abs", change - 1)), range(change.rank))

    first = x + 1 - a
    far = b.broadcast(b.scalar(1 / TINY, a.dtype), a.shape)
    start = [b.scalar(1.0, a.dtype), first, far, 1 / first, 1 / first, a]
    loop = Repeat(b, "fraction", goes_on(b, far), start, [{}] * 6, None)
    k, divisor, c, d, product, shape = loop.states
    above, next = k * (shape - k), divisor + 2
    d = 1 / _apart_from_zero(loop.b, above * d + next)
    c = _apart_from_zero(loop.b, next + above / c)
    change = c * d
    (_, _, _, _, found, _), _ = loop.finish(goes_on(loop.b, change), [k + 1, next, c, d, product * change, shape], [])
    return found


def _apart_from_zero(b: Emit, x: Tensor) -> Tensor:
    return below(b, b.map("abs", x), TINY, TINY, x)
