"""The complementary error function and what the normal distribution has to do with it, of f64 tensors."""

from __future__ import annotations

import math

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.special.series import below, rational
from tilewright.frontends.build.values import Tensor

# exp(x^2) erfc(x) for 1 <= x < 8, and for x >= 8 (Cephes, ndtr.c)
ERFC_P = (
    2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687, 48.6371970985681366614,
    196.520832956077098242, 526.445194995477358631, 934.528527171957607540, 1027.55188689515710272,
    557.535335369399327526,
)  # fmt: skip
ERFC_Q = (
    1.0, 13.2281951154744992508, 86.7072140885989742329, 354.937778887819891062, 975.708501743205489753,
    1823.90916687909736289, 2246.33760818710981792, 1656.66309194161350182, 557.535340817727675546,
)  # fmt: skip
ERFC_R = (
    0.564189583547755073984, 1.27536670759978104416, 5.01905042251180477414, 6.16021097993053585195,
    7.40974269950448939160, 2.97886665372100240670,
)  # fmt: skip
ERFC_S = (
    1.0, 2.26052863220117276590, 9.39603524938001434673, 12.0489539808096656605, 17.0814450747565897222,
    9.60896809063285878198, 3.36907645100081516050,
)  # fmt: skip

# erfinv(y) / y up to |y| = 0.7 of y^2, and beyond, of sqrt(-log((1 - |y|) / 2)) (G. L. Pavlis, 1996): first guesses
ERFINV_NEAR = (
    (-0.140543331, 0.914624893, -1.645349621, 0.886226899),
    (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0),
)
ERFINV_FAR = ((1.641345311, 3.429567803, -1.624906493, -1.970840454), (1.637067800, 3.543889200, 1.0))

# The quantile of the normal distribution (Cephes, ndtri.c): (q - y) / y^3 of y^2, where y is the distance from 1/2, and
# z times a quotient of z = 1/x, where x = sqrt(-2 log(y)) is below 8 and above
NDTRI_P0 = (
    -59.96335010141079, 98.00107541859997, -56.67628574690703, 13.931260938727968, -1.2391658386738125,
)  # fmt: skip
NDTRI_Q0 = (
    1.0, 1.9544885833814176, 4.676279128988815, 86.36024213908905, -225.46268785411937, 200.26021238006066,
    -82.03722561683334, 15.90562251262117, -1.1833162112133,
)  # fmt: skip
NDTRI_P1 = (
    4.0554489230596245, 31.525109459989388, 57.16281922464213, 44.08050738932008, 14.684956192885803,
    2.1866330685079025, -0.1402560791713545, -0.03504246268278482, -0.0008574567851546854,
)  # fmt: skip
NDTRI_Q1 = (
    1.0, 15.779988325646675, 45.39076351288792, 41.3172038254672, 15.04253856929075, 2.504649462083094,
    -0.14218292285478779, -0.03808064076915783, -0.0009332594808954574,
)  # fmt: skip
NDTRI_P2 = (
    3.2377489177694603, 6.915228890689842, 3.9388102529247444, 1.3330346081580755, 0.20148538954917908,
    0.012371663481782003, 0.00030158155350823543, 2.6580697468673755e-06, 6.239745391849833e-09,
)  # fmt: skip
NDTRI_Q2 = (
    1.0, 6.02427039364742, 3.6798356385616087, 1.3770209948908132, 0.21623699359449663, 0.013420400608854318,
    0.00032801446468212774, 2.8924786474538068e-06, 6.790194080099813e-09,
)  # fmt: skip


def scaled_erfc(b: Emit, x: Tensor) -> Tensor:
    """exp(x^2) erfc(x), infinite where that is."""
    square = b.map("exp", x * x)
    size = b.map("abs", x)
    far = below(b, size, 8, rational(b, size, ERFC_P, ERFC_Q), _asymptotic(b, size))
    right = below(b, size, 1, square * (1 - b.map("erf", size)), far)
    return below(b, x, 0, square * 2 - right, right)


def _asymptotic(b: Emit, x: Tensor) -> Tensor:
    """exp(x^2) erfc(x) from 8 on; from 10^7 on the first term of its series, as the powers of x overflow."""
    return below(b, x, 1e7, rational(b, x, ERFC_R, ERFC_S), ERFC_R[0] / x)


def erfc(b: Emit, x: Tensor) -> Tensor:
    """1 - erf(x), exact where that is small."""
    return below(b, x, 1, 1 - b.map("erf", x), scaled_erfc(b, b.map("max", x, 1)) * b.map("exp", -(x * x)))


def inverse_erf(b: Emit, y: Tensor) -> Tensor:
    """The x whose erf is y: a first guess and two steps of Newton's method; infinite at -1 and 1, NaN beyond."""
    size = b.map("abs", y)
    near = rational(b, y * y, *ERFINV_NEAR) * size
    far = rational(b, b.map("sqrt", -b.map("log", (1 - size) * 0.5)), *ERFINV_FAR)
    x = b.select(b.map("le", size, 0.7), near, far)
    for _ in range(2):
        slope = b.map("exp", -(x * x)) * (2 / math.sqrt(math.pi))
        x = x + (erfc(b, x) - (1 - size)) / slope
    x = b.select(b.map("eq", size, 1), b.scalar(float("inf"), y.dtype), x)
    x = b.select(b.map("lt", 1, size), b.scalar(float("nan"), y.dtype), x)
    return b.map("copysign", x, y)


def normal_quantile(b: Emit, y: Tensor) -> Tensor:
    """The x below which a share y of the normal distribution lies; infinite at 0 and 1, NaN outside."""
    tail = b.map("min", y, 1 - y)
    apart = y - 0.5
    square = apart * apart
    middle = (rational(b, square, NDTRI_P0, NDTRI_Q0) * square * apart + apart) * math.sqrt(2 * math.pi)
    x = b.map("sqrt", b.map("log", tail) * -2)
    z = 1 / x
    less = z * below(b, x, 8, rational(b, z, NDTRI_P1, NDTRI_Q1), rational(b, z, NDTRI_P2, NDTRI_Q2))
    far = b.map("copysign", x - b.map("log", x) / x - less, apart)
    found = below(b, tail, math.exp(-2), far, middle)
    end = b.map("copysign", b.scalar(float("inf"), y.dtype), apart)
    return b.select(b.map("eq", tail, 0), end, below(b, tail, 0, float("nan"), found))
