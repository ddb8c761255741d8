"""The error function, in basic operations.

erf     x + x*P(x^2) up to 1; beyond, 1 - exp(Q(|x|)) where Q is log(erfc), in f32 1 - Q(|x|)^4
erf + 1 in f32, 1 - (1 - t)^8 with t = |x|/8 + |x|*P(|x|), by 1 - (1 - t)^2 = 2t - t^2 three times
"""

from __future__ import annotations

from tilewright.expr.build import less, minimum, select
from tilewright.expr.functions.exponential import split_exp, two_to
from tilewright.expr.functions.real import Real
from tilewright.expr.nodes import Expr, call

# erf(x)/x - 1, z = x^2, for |x| <= 1; error 2^-29.66 before rounding
ERF_32 = (
    0.12837916612625122,
    -0.3761262595653534,
    0.11283600330352783,
    -0.026854444295167923,
    0.005189535208046436,
    -0.0008020841050893068,
    7.889117841841653e-05,
)

# erf(x)/x - 1, z = x^2, for |x| <= 1; error 2^-56.97 before rounding
ERF_64 = (
    0.12837916709551256,
    -0.3761263890318355,
    0.11283791670945253,
    -0.026866170643276233,
    0.005223977607423621,
    -0.0008548325989705853,
    0.00012055295320815185,
    -1.4924744670342449e-05,
    1.6447517773201075e-06,
    -1.6209176697240427e-07,
    1.3722979850269634e-08,
    -7.801195822297999e-10,
)

# erfc(a)^(1/4) for 1 <= a <= 4; error 2^-25.33 before rounding
ROOT_ERFC_32 = (
    1.0039771795272827,
    -0.3025723993778229,
    -0.07408472150564194,
    -0.040531404316425323,
    0.06067018583416939,
    -0.020460166037082672,
    0.002927976194769144,
    -0.00015709608851466328,
)

# (1 - erfc(a)^(1/8)) / a - 1/8 for a <= 4; error 2^-27.05 before rounding
ROOT_ERF_32 = (
    0.016047395765781403,
    0.06963036954402924,
    0.002089042915031314,
    -0.006589266937226057,
    -0.00018649363482836634,
    0.0005128363845869899,
    -8.887233707355335e-05,
    4.800370334123727e-06,
)

# log(erfc(a)) for 1 <= a <= 6; error 2^-55.78 before rounding
LOG_ERFC_64 = (
    -1.5606876945050189e-07,
    -1.1283775424852385,
    -0.6366276055543584,
    -0.10274946354684618,
    0.019081867368633883,
    0.0002761254471391733,
    -0.001765399694422348,
    0.0006392100406223072,
    -4.4323685189271324e-05,
    -7.014930584301889e-05,
    4.4717908436038964e-05,
    -1.632141358801158e-05,
    4.25093186649837e-06,
    -8.291466114583822e-07,
    1.2134809718767655e-07,
    -1.2998329575323865e-08,
    9.645562736821394e-10,
    -4.43558609543915e-11,
    9.523313813056952e-13,
)


def expand_erf(m: Real, x: Expr) -> Expr:
    size = minimum(call("abs", x), 6.0 if m.is_double else 4.0)
    small = m.fma(size, m.polynomial(size * size, ERF_64 if m.is_double else ERF_32), size)
    large = _erf_of_large_double(m, size) if m.is_double else _erf_of_large_single(m, size)
    return call("copysign", select(less(size, 1.0), small, large), x)


def _erf_of_large_double(m: Real, size: Expr) -> Expr:
    power = split_exp(m, m.polynomial(size, LOG_ERFC_64), m.bias)
    scale = two_to(m, power.exponent)
    return 1.0 - m.fma(scale, power.rest, scale)


def _erf_of_large_single(m: Real, size: Expr) -> Expr:
    root = m.horner(size, ROOT_ERFC_32)
    square = root * root
    return m.fma(-square, square, 1.0)


def expand_erf_plus_one(m: Real, x: Expr) -> Expr:
    """erf(x) + 1 by one polynomial; squares of 1 - t would lose the digits of a small t, 2t - t^2 keeps them. Exactly 0
    or 2 from where erf rounds to -1 or 1, so that x*(erf(x) + 1) does not grow there."""
    size = minimum(call("abs", x), 4.0)
    t = m.fma(size, m.polynomial(size, ROOT_ERF_32), size * 0.125)
    for _ in range(3):
        t = m.fma(-t, t, t + t)
    return call("copysign", t, x) + 1.0
