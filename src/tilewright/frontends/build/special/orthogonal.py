"""Orthogonal polynomials whose degrees are data, by their recurrences (Abramowitz and Stegun, table 22.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.expr import dtypes
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.loop import Repeat
from tilewright.frontends.build.values import Tensor


@dataclass(frozen=True)
class Family:
    """Polynomials P: P0 = 1, P1 = `first`(x), and P(k+1) = `next`(x, Pk, P(k-1), k). `most` is the greatest degree that
    there is, None without end. Inside (-1, 1), `closed` is the polynomial of degree n of the cosine of an angle."""

    first: Callable[[Tensor], Tensor]
    next: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    most: int | None = None
    closed: Callable[[Emit, Tensor, Tensor], Tensor] | None = None


def _chebyshev(first: Callable[[Tensor], Tensor], wave: str, shift: float, part: float) -> Family:
    """Of first polynomial, and, over the cosine x of an angle, wave((n + shift) * angle) / wave(part * angle)."""

    def closed(b: Emit, angle: Tensor, n: Tensor) -> Tensor:
        found = b.map(wave, (n + shift) * angle)
        return found / b.map(wave, angle * part) if part else found

    return Family(first, lambda x, p, before, k: (x + x) * p - before, None, closed)


CHEBYSHEV = {
    "t": _chebyshev(lambda x: x, "cos", 0.0, 0.0),
    "u": _chebyshev(lambda x: x + x, "sin", 1.0, 1.0),
    "v": _chebyshev(lambda x: x + x - 1, "cos", 0.5, 0.5),
    "w": _chebyshev(lambda x: x + x + 1, "sin", 0.5, 0.5),
}
"""Those of the first to the fourth kind."""

LOW = 8
"""Up to this degree recurrences are exact enough where there is a closed form, too."""

HERMITE_H = Family(lambda x: x + x, lambda x, p, before, k: (x + x) * p - (k + k) * before, 128)
HERMITE_HE = Family(lambda x: x, lambda x, p, before, k: x * p - k * before, 128)
LAGUERRE_L = Family(lambda x: 1 - x, lambda x, p, before, k: ((k + k + 1 - x) * p - k * before) / (k + 1))
LEGENDRE_P = Family(lambda x: x, lambda x, p, before, k: ((k + k + 1) * x * p - k * before) / (k + 1))


def orthogonal(b: Emit, family: Family, x: Tensor, n: Tensor) -> Tensor:
    """The polynomials of the degrees n, rounded towards zero, at x, both f64: 0 below degree 0."""
    shape = (x + n).shape
    x, degree = b.broadcast(x, shape), b.broadcast(b.map("trunc", n), shape)
    known = b.select(b.map("isnan", degree), b.scalar(-1.0, x.dtype), degree)
    counted = known if family.most is None else b.map("min", known, float(family.most))
    one = b.broadcast(b.scalar(1.0, x.dtype), shape)
    if family.closed is not None:
        inside = b.map("and", b.map("lt", float(LOW), known), b.map("lt", b.map("abs", x), 1))
        counted = b.select(inside, one, counted)
    found = _repeated(b, family, x, counted)
    if family.closed is not None:
        found = b.select(inside, family.closed(b, b.map("acos", x), known), found)
    found = b.select(b.map("lt", degree, 1), one, found)
    if family.most is not None:
        found = b.select(b.map("lt", float(family.most), degree), b.scalar(float("nan"), x.dtype), found)
    return b.select(b.map("lt", known, 0), b.scalar(0.0, x.dtype), found)


def _repeated(b: Emit, family: Family, x: Tensor, degree: Tensor) -> Tensor:
    """The polynomials by as many steps of the recurrence as the greatest degree has; those that are NaN end."""

    def goes_on(emit: Emit, k: Tensor, degrees: Tensor, now: Tensor) -> Tensor:
        left = emit.map("and", emit.map("lt", k, degrees), emit.map("eq", now, now))
        return emit.reduce("any", left, range(left.rank))

    first, one = b.scalar(1.0, dtypes.f64), b.broadcast(b.scalar(1.0, x.dtype), x.shape)
    start = [first, one, family.first(x), x, degree]
    loop = Repeat(b, "polynomials", goes_on(b, first, degree, start[2]), start, [{}] * len(start), None)
    k, before, now, at, degrees = loop.states
    made = loop.b.select(loop.b.map("lt", k, degrees), family.next(at, now, before, k), now)
    last, _ = loop.finish(goes_on(loop.b, k + 1, degrees, made), [k + 1, now, made, at, degrees], [])
    return last[2]
