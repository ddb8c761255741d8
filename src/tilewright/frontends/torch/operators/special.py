"""Special functions, computed in f64 and rounded once: eager's own, in the type of the operands, are less exact.

`special_erfcx` and `special_log_ndtr` have no handler: gradients that take what eager gives of them in f32 are off by
4e-6, more than PyTorch's tests allow."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from tilewright.expr import dtypes
from tilewright.frontends.build.special.bessel import (
    airy_ai,
    bessel_j,
    bessel_y,
    modified_i,
    modified_k,
    scaled_i,
    spherical_j0,
)
from tilewright.frontends.build.special.gamma import digamma, log_gamma, log_multigamma, polygamma, trigamma, zeta
from tilewright.frontends.build.special.incomplete_gamma import incomplete_gamma
from tilewright.frontends.build.special.normal import erfc, inverse_erf, normal_quantile
from tilewright.frontends.build.special.orthogonal import (
    CHEBYSHEV,
    HERMITE_H,
    HERMITE_HE,
    LAGUERRE_L,
    LEGENDRE_P,
    Family,
    orthogonal,
)
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import handles

_FUNCTIONS: dict[str, Callable[[TorchEmit, Tensor], Tensor]] = {
    "i0": partial(modified_i, order=0),
    "special_i0e": partial(scaled_i, order=0),
    "special_i1": partial(modified_i, order=1),
    "special_i1e": partial(scaled_i, order=1),
    "special_modified_bessel_i0": partial(modified_i, order=0),
    "special_modified_bessel_i1": partial(modified_i, order=1),
    "special_modified_bessel_k0": partial(modified_k, order=0),
    "special_modified_bessel_k1": partial(modified_k, order=1),
    "special_scaled_modified_bessel_k0": partial(modified_k, order=0, scaled=True),
    "special_scaled_modified_bessel_k1": partial(modified_k, order=1, scaled=True),
    "special_bessel_j0": partial(bessel_j, order=0),
    "special_bessel_j1": partial(bessel_j, order=1),
    "special_bessel_y0": partial(bessel_y, order=0),
    "special_bessel_y1": partial(bessel_y, order=1),
    "special_spherical_bessel_j0": spherical_j0,
    "special_airy_ai": airy_ai,
    "erfc": erfc,
    "erfinv": inverse_erf,
    "special_ndtri": normal_quantile,
    "lgamma": log_gamma,
    "digamma": digamma,
}


def _in_doubles(function: Callable[[TorchEmit, Tensor], Tensor]) -> Callable[[TorchEmit, Tensor], Tensor]:
    return lambda b, x: b.done(function(b, b.cast(x, dtypes.f64)))


for _name, _function in _FUNCTIONS.items():
    handles(f"aten.{_name}.default")(_in_doubles(_function))


@handles("aten.polygamma.default")
def derivative_of_digamma(b: TorchEmit, x: Tensor, *, n: int) -> Tensor:
    """The first one takes the sine of pi x in the type that eager computes in, whose rounding counts near the poles."""
    if n == 1:
        (own,) = b.operands(x)
        sine = b.cast(b.map("sin", own * math.pi), dtypes.f64)
        return b.done(trigamma(b, b.cast(x, dtypes.f64), sine))
    return b.done(polygamma(b, n, b.cast(x, dtypes.f64)))


@handles("aten.mvlgamma.default")
def multigamma(b: TorchEmit, x: Tensor, *, p: int) -> Tensor:
    return b.done(log_multigamma(b, b.cast(x, dtypes.f64), p))


@handles("aten.special_zeta.default", "aten.special_zeta.self_scalar", "aten.special_zeta.other_scalar")
def hurwitz_zeta(b: TorchEmit, s: Tensor, q: Tensor) -> Tensor:
    return b.done(zeta(b, b.cast(s, dtypes.f64), b.cast(q, dtypes.f64)))


@handles("aten.igamma.default")
def lower_gamma(b: TorchEmit, a: Tensor, x: Tensor) -> Tensor:
    return b.done(incomplete_gamma(b, b.cast(a, dtypes.f64), b.cast(x, dtypes.f64), upper=False))


@handles("aten.igammac.default")
def upper_gamma(b: TorchEmit, a: Tensor, x: Tensor) -> Tensor:
    return b.done(incomplete_gamma(b, b.cast(a, dtypes.f64), b.cast(x, dtypes.f64), upper=True))


_FAMILIES = {
    "hermite_polynomial_h": HERMITE_H,
    "hermite_polynomial_he": HERMITE_HE,
    "laguerre_polynomial_l": LAGUERRE_L,
    "legendre_polynomial_p": LEGENDRE_P,
    **{f"chebyshev_polynomial_{kind}": family for kind, family in CHEBYSHEV.items()},
}


def _polynomial(family: Family, shifted: bool) -> Callable[[TorchEmit, Tensor, Tensor], Tensor]:
    def handler(b: TorchEmit, x: Tensor, n: Tensor) -> Tensor:
        """The polynomial of degree n at x, or, `shifted`, at 2x - 1."""
        x, n = (b.cast(t, dtypes.f64) for t in b.operands(x, n))
        return b.done(orthogonal(b, family, x + x - 1 if shifted else x, n))

    return handler


def _register(name: str, family: Family, shifted: bool = False) -> None:
    overloads = [f"aten.special_{name}.{overload}" for overload in ("default", "x_scalar", "n_scalar")]
    handles(*overloads)(_polynomial(family, shifted))


for _name, _family in _FAMILIES.items():
    _register(_name, _family)
for _kind, _family in CHEBYSHEV.items():
    _register(f"shifted_chebyshev_polynomial_{_kind}", _family, shifted=True)
