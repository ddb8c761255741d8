"""Bessel and Airy functions of f64 tensors, by the approximations of the Cephes library."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.special import bessel_coefficients as table
from tilewright.frontends.build.special.series import below, chebyshev, polynomial, rational, with_sign_of
from tilewright.frontends.build.values import Tensor

NOTHING, ENDLESS = float("nan"), float("inf")

ZEROS = ((5.78318596294678452118, 30.4712623436620863991), (14.6819706421238932572, 49.2184563216946036703))
"""The squares of the first two positive zeros of J0 and J1."""


def scaled_i(b: Emit, x: Tensor, order: int) -> Tensor:
    """exp(-|x|) I(x), the modified Bessel function of the first kind, of order 0 or 1."""
    size = b.map("abs", x)
    small = chebyshev(b, size * 0.5 - 2, (table.I0_SMALL, table.I1_SMALL)[order])
    large = chebyshev(b, 32 / size - 2, (table.I0_LARGE, table.I1_LARGE)[order]) / b.map("sqrt", size)
    found = b.select(b.map("le", size, 8), small * size if order else small, large)
    return with_sign_of(b, x, found) if order else found


def modified_i(b: Emit, x: Tensor, order: int) -> Tensor:
    """I(x), the modified Bessel function of the first kind."""
    return b.map("exp", b.map("abs", x)) * scaled_i(b, x, order)


def modified_k(b: Emit, x: Tensor, order: int, scaled: bool = False) -> Tensor:
    """K(x), the modified Bessel function of the second kind, times exp(x) where it is `scaled`; infinite at 0."""
    own = chebyshev(b, x * x - 2, (table.K0_SMALL, table.K1_SMALL)[order])
    logarithm = b.map("log", x * 0.5) * modified_i(b, x, order)
    small = own / x + logarithm if order else own - logarithm
    large = chebyshev(b, 8 / x - 2, (table.K0_LARGE, table.K1_LARGE)[order]) / b.map("sqrt", x)
    if scaled:
        small = small * b.map("exp", x)
    else:
        large = large * b.map("exp", -x)
    found = b.select(b.map("le", x, 2), small, large)
    return b.select(b.map("eq", x, 0), b.scalar(ENDLESS, x.dtype), below(b, x, 0, NOTHING, found))


def _waves(b: Emit, x: Tensor, order: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What J and Y are made of for x > 5: the factors of the cosine and sine of the phase, and these."""
    tables: Sequence[Sequence[float]] = (
        (table.J0_PP, table.J0_PQ, table.J0_QP, table.J0_QQ) if order == 0
        else (table.J1_PP, table.J1_PQ, table.J1_QP, table.J1_QQ)
    )  # fmt: skip
    part = 5 / x
    scale = math.sqrt(2 / math.pi) / b.map("sqrt", x)
    even = rational(b, part * part, *tables[:2]) * scale
    odd = rational(b, part * part, *tables[2:]) * part * scale
    phase = x - (0.25 + 0.5 * order) * math.pi
    return even, odd, b.map("cos", phase), b.map("sin", phase)


def _j_near_zero(b: Emit, x: Tensor, order: int) -> Tensor:
    square = x * x
    above, divisor = ((table.J0_RP, table.J0_RQ), (table.J1_RP, table.J1_RQ))[order]
    near = rational(b, square, above, divisor) * (square - ZEROS[order][0]) * (square - ZEROS[order][1])
    return near * x if order else near


def bessel_j(b: Emit, x: Tensor, order: int) -> Tensor:
    """J(x), the Bessel function of the first kind, of order 0 or 1."""
    size = b.map("abs", x)
    even, odd, cos, sin = _waves(b, size, order)
    found = b.select(b.map("le", size, 5), _j_near_zero(b, size, order), even * cos - odd * sin)
    return with_sign_of(b, x, found) if order else found


def bessel_y(b: Emit, x: Tensor, order: int) -> Tensor:
    """Y(x), the Bessel function of the second kind, of order 0 or 1; minus infinity at 0, NaN below."""
    even, odd, cos, sin = _waves(b, x, order)
    tables = ((table.Y0_YP, table.Y0_YQ), (table.Y1_YP, table.Y1_YQ))[order]
    own = rational(b, x * x, *tables)
    product = _j_near_zero(b, x, order) * b.map("log", x)
    if order:
        near = own * x + (product - 1 / x) * (2 / math.pi)
    else:
        near = own + product * (2 / math.pi)
    found = b.select(b.map("le", x, 5), near, even * sin + odd * cos)
    return b.select(b.map("eq", x, 0), b.scalar(-ENDLESS, x.dtype), below(b, x, 0, NOTHING, found))


def spherical_j0(b: Emit, x: Tensor) -> Tensor:
    """sin(x) / x, 1 at 0 and 0 at infinity."""
    found = b.select(b.map("eq", x, 0), b.scalar(1.0, x.dtype), b.map("sin", x) / x)
    return b.select(b.map("isinf", x), b.scalar(0.0, x.dtype), found)


TERMS = 16
"""How many terms of the power series of Ai, in cubes, are summed: up to |x| = 2.09 those left out are below 1e-20."""


def airy_ai(b: Emit, x: Tensor) -> Tensor:
    """Ai(x): by its power series between -2.09 and 2.09; NaN at infinity."""
    cube = x * x * x
    first, second = [1.0], [1.0]
    for n in range(1, TERMS):
        first.append(first[-1] / (3 * n * (3 * n - 1)))
        second.append(second[-1] / (3 * n * (3 * n + 1)))
    middle = polynomial(b, cube, first[::-1]) * 0.355028053887817239260
    middle = middle - polynomial(b, cube, second[::-1]) * x * 0.258819403792806798405
    size = b.map("abs", x)
    root = b.map("sqrt", size)
    z = size * root * (2 / 3)
    scale = (1 / math.sqrt(math.pi)) / b.map("sqrt", root)
    inverse = 1 / z
    right = rational(b, inverse, table.AIRY_N, table.AIRY_D) * scale * 0.5 * b.map("exp", -z)
    square, phase = inverse * inverse, z + 0.25 * math.pi
    sine = rational(b, square, table.AIRY_FN, table.AIRY_FD) * square + 1
    cosine = rational(b, square, table.AIRY_GN, table.AIRY_GD) * inverse
    left = (b.map("sin", phase) * sine - b.map("cos", phase) * cosine) * scale
    found = below(b, x, -2.09, left, below(b, x, 2.09, middle, right))
    return b.select(b.map("isinf", x), b.scalar(NOTHING, x.dtype), found)
