"""Random operators: tensors of draws of a counter-based generator.

Element n (in row-major order) of draw number d of a model is made of the 64 bits `random_bits(n, key)`, where `key` is
`random_bits(d, seed)`; d counts the nodes that draw, in their order. A node with a seed of its own has the bits of that
number, as f64, for a key. In step s of a loop the key is `random_bits(s, key)`. So a program gives the same numbers in
each call, on each machine, and other ones in each step.

A uniform number in [0, 1) has the upper 24 bits of the first word, for f64 the upper 53 of all 64. A normal number is
sqrt(-2*log(u)) * cos(2*pi*v) (Box and Muller, 1958) of one word each: u = (word + 1/2) / 2**32, which is never 0, and
v = the upper 24 bits of the other. Draws of f16 and bf16 are rounded from f32.
"""

from __future__ import annotations

import math
import struct
from functools import reduce
from operator import mul

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const
from tilewright.frontends.build.emit import Shape
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.operators.elementwise import dtype_of
from tilewright.frontends.onnx.registry import AnyInt, Ints, handles
from tilewright.types.tensor import dim, shape_of


@handles("RandomUniform")
def random_uniform(
    b: OnnxEmit, *, shape: Ints, dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Tensor:
    return scaled_uniform(b, shape_of(shape), dtype_of(dtype), low, high, seed)


@handles("RandomUniformLike")
def random_uniform_like(
    b: OnnxEmit, x: Tensor, *, dtype: int = 0, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Tensor:
    return scaled_uniform(b, x.shape, dtype_of(dtype) if dtype else x.dtype, low, high, seed)


@handles("RandomNormal")
def random_normal(
    b: OnnxEmit, *, shape: Ints, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return scaled_normal(b, shape_of(shape), dtype_of(dtype), mean, scale, seed)


@handles("RandomNormalLike")
def random_normal_like(
    b: OnnxEmit, x: Tensor, *, dtype: int = 0, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return scaled_normal(b, x.shape, dtype_of(dtype) if dtype else x.dtype, mean, scale, seed)


@handles("Bernoulli")
def bernoulli(b: OnnxEmit, x: Tensor, *, dtype: int = 0, seed: float | None = None) -> Tensor:
    """1 with the probability that the input says at each place, else 0."""
    wide = dtypes.f64 if x.dtype is dtypes.f64 else dtypes.f32
    drawn = b.map("lt", uniform(b, x.shape, wide, seed), b.cast(x, wide))
    return b.cast(drawn, dtype_of(dtype) if dtype else x.dtype)


@handles("Multinomial")
def multinomial(b: OnnxEmit, x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Tensor:
    """[batch, sample_size] classes by their unnormalized log-probabilities [batch, class]: a uniform number's place
    among the sums of the probabilities up to each class."""
    if x.rank != 2:
        raise b.error(f"Multinomial takes [batch, class], not {x.rank} dimensions")
    wide = dtypes.f64 if x.dtype is dtypes.f64 else dtypes.f32
    logits = b.cast(x, wide)
    weights = b.map("exp", logits - b.reduce("max", logits, [1], keepdims=True))
    sums = b.cumulative("sum", weights, 1)
    drawn = uniform(b, (x.shape[0], *shape_of([sample_size])), wide, seed)
    threshold = drawn * b.reduce("sum", weights, [1], keepdims=True)
    passed = b.map("le", b.unsqueeze(sums, [1]), b.unsqueeze(threshold, [2]))
    place = b.reduce("sum", b.cast(passed, dtypes.i64), [2])
    return b.cast(b.map("min", place, b.of_size(x.shape[1] - 1)), dtype_of(dtype))


@handles("Dropout", since=12)
def dropout(
    b: OnnxEmit, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None, *, seed: AnyInt | None = None
) -> tuple[Tensor | None, ...]:
    """At inference the tensor itself, and a mask of ones. In training mode elements are zero with the probability
    `ratio` (0.5 without one), and the others are divided by 1 - ratio."""
    on = _known(training)
    if training is None or on is False:
        return x, b.full(x.shape, True, dtypes.bool_) if b.wants(1) else None
    wide = dtypes.f64 if x.dtype is dtypes.f64 else dtypes.f32
    part = b.scalar(0.5, wide) if ratio is None else b.cast(b.reshape(ratio, ()), wide)
    kept = b.map("le", part, uniform(b, x.shape, wide, seed))
    scaled = b.cast(b.cast(x, wide) * (1 / (1 - part)), x.dtype)
    result = b.select(kept, scaled, b.scalar(0, x.dtype))
    if on is None:
        flag = b.cast(b.reshape(training, ()), dtypes.bool_)
        result, kept = b.select(flag, result, x), b.map("or", kept, b.map("not", flag))
    return result, kept


def _known(flag: Tensor | None) -> bool | None:
    """A truth value that is known while the model is read."""
    if flag is None or flag.content is None or flag.content.size != 1:
        return None
    element = flag.content.reshape(-1)[0]
    return bool(element.value) if isinstance(element, Const) else None


def scaled_uniform(b: OnnxEmit, shape: Shape, dtype: DType, low: float, high: float, seed: float | None) -> Tensor:
    """Numbers of [low, high), of which rounding may give the upper end."""
    wide = _wide(dtype)
    return b.cast(uniform(b, shape, wide, seed) * (high - low) + low, dtype)


def scaled_normal(b: OnnxEmit, shape: Shape, dtype: DType, mean: float, scale: float, seed: float | None) -> Tensor:
    """Normal numbers of this mean and standard deviation."""
    wide = _wide(dtype)
    bits = _bits(b, shape, seed)
    low, high = b.map("bit_and", bits, (1 << 32) - 1), b.map("shr", bits, 32)
    radius = b.map("sqrt", b.map("log", (b.cast(low, wide) + 0.5) * 2.0**-32) * -2)
    angle = b.cast(b.map("shr", high, 8), wide) * (2 * math.pi * 2.0**-24)
    return b.cast(radius * b.map("cos", angle) * scale + mean, dtype)


def uniform(b: OnnxEmit, shape: Shape, dtype: DType, seed: float | None) -> Tensor:
    """Numbers of [0, 1), f32 or f64."""
    bits, kept = _bits(b, shape, seed), 53 if dtype is dtypes.f64 else 24
    word = bits if dtype is dtypes.f64 else b.map("bit_and", bits, (1 << 32) - 1)
    width = 64 if dtype is dtypes.f64 else 32
    return b.cast(b.map("shr", word, width - kept), dtype) * 2.0**-kept


def _wide(dtype: DType) -> DType:
    """The type that draws are computed in."""
    if not dtype.is_float:
        raise Unsupported(f"draws of {dtype} are not supported", "draw floats, and cast them")
    return dtypes.f64 if dtype is dtypes.f64 else dtypes.f32


def _bits(b: OnnxEmit, shape: Shape, seed: float | None) -> Tensor:
    """64 random bits for each element."""
    count = reduce(mul, shape, dim(1))
    place = b.reshape(b.iota([count], 0, dtypes.u64), shape)
    number = None if seed is None else int.from_bytes(struct.pack("<d", float(seed)), "little")
    return b.op("random_bits", place, b.key_of_draw(number))
