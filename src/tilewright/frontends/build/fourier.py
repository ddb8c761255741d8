"""Fourier transforms as products with the matrix of roots of unity. Complex numbers are pairs in the last dimension."""

from __future__ import annotations

import math

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor


def roots(b: Emit, rows: Expr, columns: Expr, period: Expr) -> tuple[Tensor, Tensor]:
    """cos and sin, in f64, of 2*pi*k*t/period for k below rows and t below columns; k*t is reduced exactly."""
    k, t = b.align(b.iota((rows,), 0), 0, 2), b.align(b.iota((columns,), 0), 1, 2)
    turn = b.cast(b.map("mod", k * t, b.of_size(period)), dtypes.f64) / b.of_size(period, dtypes.f64)
    angle = turn * (2 * math.pi)
    return b.map("cos", angle), b.map("sin", angle)


def _resized(b: Emit, x: Tensor, axis: int, extent: Expr) -> Tensor:
    """Cut off or filled with zeros behind."""
    zeros: list[Expr | int] = [0] * x.rank
    high = list(zeros)
    high[axis] = simplify(extent - x.shape[axis])
    return b.pad(x, zeros, high)


def transform(b: Emit, x: Tensor, length: Expr | None, inverse: bool, onesided: bool, scaled: bool = True) -> Tensor:
    """The transform of [..., n, 1 or 2] along its last dimension but one; the inverse, where it is `scaled`, is
    divided by the number of elements. Sums are kept in f64: they have as many terms as the signal has elements."""
    axis = x.rank - 2
    parts = x.shape[-1]
    if not isinstance(parts, Const) or parts.value not in (1, 2):
        raise b.error("the last dimension of a signal must be 1 (real) or 2 (complex)")
    halved = inverse and onesided
    period = length if length is not None else x.shape[axis] * 2 - 2 if halved else x.shape[axis]
    taken = simplify(period // 2 + 1) if halved else period
    source = b.cast(_resized(b, x, axis, taken), dtypes.f64)
    real = b.reshape(b.narrow(source, axis + 1, 0, 1), source.shape[:-1])
    imaginary = None if parts.value == 1 else b.reshape(b.narrow(source, axis + 1, 1, 1), source.shape[:-1])
    rows = simplify(period // 2 + 1) if onesided and not inverse else period
    cos, sin = roots(b, rows, taken, period)
    if halved:
        signal = _real_inverse(b, real, imaginary, cos, sin, period)
        signal = signal / b.of_size(period, dtypes.f64) if scaled else signal
        return b.unsqueeze(b.cast(signal, x.dtype), [x.rank - 1])
    if inverse:
        sin = -sin
    re, im = _times(b, real, cos), -_times(b, real, sin)
    if imaginary is not None:
        re, im = re + _times(b, imaginary, sin), im + _times(b, imaginary, cos)
    both = b.concat([b.unsqueeze(re, [re.rank]), b.unsqueeze(im, [im.rank])], re.rank)
    return b.cast(both / b.of_size(period, dtypes.f64) if inverse and scaled else both, x.dtype)


def _times(b: Emit, x: Tensor, matrix: Tensor) -> Tensor:
    """The product along the last dimension with each row of the matrix."""
    letters = "abcdefghij"[: x.rank - 1]
    return b.contract(f"{letters}t,kt->{letters}k", x, matrix)


def _real_inverse(b: Emit, real: Tensor, imaginary: Tensor | None, cos: Tensor, sin: Tensor, period: Expr) -> Tensor:
    """The real signal whose transform's first half is given: the other half is its mirror image, so all but the first
    and (of an even period) the last count twice."""
    k = b.iota((cos.shape[1],), 0)
    single = b.map("or", b.map("eq", k, 0), b.map("eq", k * 2, b.of_size(period)))
    weight = b.select(single, b.scalar(1, real.dtype), b.scalar(2, real.dtype))
    total = _times(b, real * weight, cos)
    return total if imaginary is None else total - _times(b, imaginary * weight, sin)
