"""Complex numbers and Fourier transforms: handlers that take and give pairs in a last dimension (`pairs.py`)."""

from __future__ import annotations

import math

from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.fourier import transform
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.operators.elementwise import atan2, hypot
from tilewright.frontends.torch.pairs import joined, pairs, parts
from tilewright.frontends.torch.registry import Ints, Sizes
from tilewright.types.tensor import dim as dim_of


@pairs("aten.view_as_real.default", "aten.view_as_complex.default")
def same(b: TorchEmit, x: Tensor) -> Tensor:
    return x


@pairs("aten.complex.default")
def of_parts(b: TorchEmit, real: Tensor, imaginary: Tensor) -> Tensor:
    shape = b.extents[:-1]
    return joined(b, b.broadcast(real, shape), b.broadcast(imaginary, shape))


@pairs("aten.polar.default")
def of_angle(b: TorchEmit, size: Tensor, angle: Tensor) -> Tensor:
    return joined(b, size * b.map("cos", angle), size * b.map("sin", angle))


@pairs("aten._conj.default", "aten._conj_physical.default", "aten.resolve_conj.default")
def conjugate(b: TorchEmit, x: Tensor) -> Tensor:
    real, imaginary = parts(b, x)
    return joined(b, real, -imaginary)


@pairs("aten._to_copy.default", "prims.convert_element_type.default")
def converted(b: TorchEmit, x: Tensor, *, dtype: DType | None = None) -> Tensor:
    """As pairs of another type; a real number has an imaginary part of 0, which is left out where numbers are real."""
    if b.is_pair(x) and b.gives_pairs:
        return b.cast(x, b.result.dtype)
    if b.is_pair(x):
        return b.cast(parts(b, x)[0], b.result.dtype)
    real = b.cast(x, b.result.dtype)
    return joined(b, real, b.broadcast(b.scalar(0, real.dtype), real.shape))


@pairs("aten.mul.Scalar")
def multiply_by_number(b: TorchEmit, x: Tensor, *, other: complex) -> Tensor:
    if not other.imag:
        return x * other.real
    real, imaginary = parts(b, x)
    return joined(b, real * other.real - imaginary * other.imag, real * other.imag + imaginary * other.real)


@pairs("aten.mul.Tensor")
def multiply(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    if not (b.is_pair(x) and b.is_pair(y)):
        pair, real = (x, y) if b.is_pair(x) else (y, x)
        return pair * b.unsqueeze(b.cast(real, pair.dtype), [real.rank])
    (a, c), (d, e) = parts(b, x), parts(b, y)
    return joined(b, a * d - c * e, a * e + c * d)


@pairs("aten.div.Tensor", "aten.div.Scalar")
def divide(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    if b.is_pair(y):
        raise Unsupported("a complex divisor is not supported")
    return x / b.unsqueeze(b.cast(y, x.dtype), [y.rank])


@pairs("aten.abs.default")
def absolute(b: TorchEmit, x: Tensor) -> Tensor:
    return hypot(b, *parts(b, x))


@pairs("aten.angle.default")
def angle(b: TorchEmit, x: Tensor) -> Tensor:
    real, imaginary = parts(b, x)
    return atan2(b, imaginary, real)


@pairs("aten.sgn.default")
def direction(b: TorchEmit, x: Tensor) -> Tensor:
    """x / |x|, 0 for 0."""
    real, imaginary = parts(b, x)
    size = b.map("sqrt", real * real + imaginary * imaginary)
    nothing = b.map("eq", size, 0)
    found = [b.select(nothing, b.scalar(0, p.dtype), p / size) for p in (real, imaginary)]
    return joined(b, *found)


@pairs("aten.constant_pad_nd.default")
def constant_pad(b: TorchEmit, x: Tensor, *, pad: Sizes, value: Number = 0) -> Tensor:
    """The last dimensions first, each with what comes before and behind."""
    if value:
        raise Unsupported(f"padding complex numbers with {value} is not supported")
    low: list[Size] = [0] * x.rank
    high: list[Size] = [0] * x.rank
    for n in range(len(pad) // 2):
        low[x.rank - 2 - n], high[x.rank - 2 - n] = pad[2 * n], pad[2 * n + 1]
    return b.pad(x, low, high)


LONGEST = 256
"""The longest transform that is a product with the matrix of its roots: of longer ones, eager's algorithm, which takes
n log n steps in place of n^2, is faster."""


def _transformed(b: TorchEmit, x: Tensor, axis: int, inverse: bool, onesided: bool, length: Size | None) -> Tensor:
    """The transform, not scaled, of [..., 1 or 2] along an axis."""
    period = x.shape[axis] if length is None else length
    size = dim_of(period)
    if not isinstance(size, Const) or size.value > LONGEST:
        raise Unsupported(f"a Fourier transform of {size} elements is not supported: {LONGEST} at most")
    order = [a for a in range(x.rank - 1) if a != axis]
    order += [axis, x.rank - 1]
    made = transform(b, b.transpose(x, order), size, inverse, onesided, scaled=False)
    return b.transpose(made, [order.index(a) for a in range(x.rank)])


def _scaled(b: TorchEmit, x: Tensor, sizes: Ints, normalization: int) -> Tensor:
    """Divided by nothing (0), the root of the number of elements (1), or that number (2)."""
    if not normalization:
        return x
    count = math.prod(sizes)
    return x / (math.sqrt(count) if normalization == 1 else count)


def _lengths(x: Tensor, axes: list[int]) -> Ints:
    extents = [x.shape[a] for a in axes]
    if not all(isinstance(e, Const) for e in extents):
        raise Unsupported(f"a Fourier transform of {product(extents)} elements is not supported")
    return tuple([int(e.value) for e in extents if isinstance(e, Const)])


@pairs("aten._fft_c2c.default")
def complex_transform(b: TorchEmit, x: Tensor, *, dim: Ints, normalization: int, forward: bool) -> Tensor:
    axes = b.axes(dim, x.rank - 1)
    found = x
    for axis in axes:
        found = _transformed(b, found, axis, not forward, False, None)
    return _scaled(b, found, _lengths(x, axes), normalization)


@pairs("aten._fft_r2c.default")
def real_transform(b: TorchEmit, x: Tensor, *, dim: Ints, normalization: int, onesided: bool) -> Tensor:
    """The transform of real numbers: the last of the dimensions first, which `onesided` leaves half of."""
    axes = b.axes(dim, x.rank)
    found = _transformed(b, b.unsqueeze(x, [x.rank]), axes[-1], False, onesided, None)
    for axis in axes[:-1]:
        found = _transformed(b, found, axis, False, False, None)
    return _scaled(b, found, _lengths(x, axes), normalization)


@pairs("aten._fft_c2r.default")
def inverse_real_transform(b: TorchEmit, x: Tensor, *, dim: Ints, normalization: int, last_dim_size: int) -> Tensor:
    """The real numbers of which half of a transform is given."""
    axes = b.axes(dim, x.rank - 1)
    found = x
    for axis in axes[:-1]:
        found = _transformed(b, found, axis, True, False, None)
    found = _transformed(b, found, axes[-1], True, True, last_dim_size)
    sizes = (*_lengths(x, axes[:-1]), last_dim_size)
    return _scaled(b, b.squeeze(found, [found.rank - 1]), sizes, normalization)
