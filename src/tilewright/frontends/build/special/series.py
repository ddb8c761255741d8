"""Series with known coefficients, those of the highest power or polynomial first, and choices between functions."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Number, Tensor


def polynomial(b: Emit, x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The sum of c * x^n, by Horner's scheme."""
    found: Tensor | None = None
    for c in coefficients[1:]:
        found = b.map("fma", coefficients[0] if found is None else found, x, c)
    return found if found is not None else b.scalar(coefficients[0], x.dtype)


def rational(b: Emit, x: Tensor, above: Sequence[float], below: Sequence[float]) -> Tensor:
    """The quotient of two polynomials."""
    return polynomial(b, x, above) / polynomial(b, x, below)


def chebyshev(b: Emit, x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The sum of c * T_n(x / 2), of which the last coefficient counts by half, by Clenshaw's recurrence."""
    before: Tensor | Number = 0.0
    last: Tensor | Number = 0.0
    now: Tensor = b.scalar(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        before, last = last, now
        now = b.map("fma", x, last, c - before)
    return (now - before) * 0.5


def below(b: Emit, x: Tensor, limit: Number, a: Tensor | Number, c: Tensor | Number) -> Tensor:
    """a where x is below the limit, else c."""
    first = a if isinstance(a, Tensor) else b.scalar(a, x.dtype)
    return b.select(b.map("lt", x, limit), first, c)


def with_sign_of(b: Emit, x: Tensor, y: Tensor) -> Tensor:
    """An odd function, of which y is the value at |x|, at x."""
    return below(b, x, 0, -y, y)
