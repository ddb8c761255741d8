"""Normalizations, composed of reductions and element-wise operators."""

from __future__ import annotations

from tilewright.frontends.build.composed import mean_over, moments
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.operators.elementwise import dtype_of
from tilewright.frontends.onnx.operators.pooling import norm_of, powers
from tilewright.frontends.onnx.registry import Ints, handles


def _inverse_root(b: Emit, x: Tensor, epsilon: float) -> Tensor:
    return 1 / b.map("sqrt", x + epsilon)


@handles("BatchNormalization", since=7)
def batch_normalization(
    b: Emit,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> tuple[Tensor | None, ...]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias for each channel; in training mode with the moments of the
    batch, whose running means are the other outputs."""
    if not spatial:
        raise Unsupported("BatchNormalization with spatial=0 is not supported")
    if x.rank < 2:
        raise b.error(f"BatchNormalization of {x.rank} dimensions: it needs batch and channels")
    channel = 1
    if training_mode:
        axes = [a for a in range(x.rank) if a != channel]
        batch_mean, _, batch_variance = moments(b, b.cast(x, mean.dtype), axes)
        flat_mean, flat_variance = b.squeeze(batch_mean, axes), b.squeeze(batch_variance, axes)
        running = (
            mean * momentum + flat_mean * (1 - momentum),
            variance * momentum + flat_variance * (1 - momentum),
        )
        return _normalised(b, x, scale, bias, flat_mean, flat_variance, epsilon), *running
    if any(b.wanted[1:]):
        raise Unsupported("the running moments are outputs of training only")
    return (_normalised(b, x, scale, bias, mean, variance, epsilon),)


def _normalised(
    b: Emit, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float
) -> Tensor:
    """One multiplication and one addition for each element: scale and bias take mean and variance in."""
    factor = b.cast(scale, variance.dtype) * _inverse_root(b, variance, epsilon)
    shift = b.cast(bias, variance.dtype) - mean * factor
    wide = b.cast(x, variance.dtype)
    return b.cast(wide * b.align(factor, 1, x.rank) + b.align(shift, 1, x.rank), x.dtype)


@handles("InstanceNormalization")
def instance_normalization(b: Emit, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """Each channel of each sample normalised over its space."""
    _, deviation, variance = moments(b, x, range(2, x.rank))
    factor = _inverse_root(b, variance, epsilon) * b.align(scale, 1, x.rank)
    return deviation * factor + b.align(bias, 1, x.rank)


@handles("GroupNormalization")
def group_normalization(
    b: OnnxEmit, x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """Groups of channels normalised over channels and space; before opset 21 scale and bias are for each group."""
    if num_groups < 1:
        raise b.error(f"num_groups is {num_groups}")
    n, channels, *space = x.shape
    split = b.reshape(b.cast(x, dtype_of(stash_type)), (n, num_groups, channels // num_groups, *space))
    _, deviation, variance = moments(b, split, range(2, split.rank))
    normal = b.cast(deviation * _inverse_root(b, variance, epsilon), x.dtype)
    if b.opset >= 21:
        return b.reshape(normal, x.shape) * b.align(scale, 1, x.rank) + b.align(bias, 1, x.rank)
    return b.reshape(normal * b.align(scale, 1, split.rank) + b.align(bias, 1, split.rank), x.shape)


@handles("LayerNormalization")
def layer_normalization(
    b: Emit,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor | None, ...]:
    """Normalised over all dimensions from `axis` on; also the mean, and one over the standard deviation."""
    wide = b.cast(x, dtype_of(stash_type))
    mean, deviation, variance = moments(b, wide, range(b.axis(axis, x.rank), x.rank))
    inverse = _inverse_root(b, variance, epsilon)
    scaled = b.cast(deviation * inverse, x.dtype) * scale
    return scaled if bias is None else scaled + bias, mean, inverse


@handles("RMSNormalization")
def rms_normalization(
    b: Emit, x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """Divided by the root of the mean square over all dimensions from `axis` on."""
    wide = b.cast(x, dtype_of(stash_type))
    square = mean_over(b, wide * wide, range(b.axis(axis, x.rank), x.rank), True)
    return b.cast(wide * _inverse_root(b, square, epsilon), scale.dtype) * scale


@handles("LpNormalization")
def lp_normalization(b: Emit, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divided by the p-norm along one axis; zero where that is zero."""
    if p not in (1, 2):
        raise Unsupported(f"LpNormalization with p={p} is not supported, only 1 and 2")
    norm = norm_of(b, b.reduce("sum", powers(b, x, p), [b.axis(axis, x.rank)], keepdims=True), p)
    zero = b.map("eq", norm, 0)
    return b.select(zero, b.scalar(0, x.dtype), x / b.select(zero, b.scalar(1, x.dtype), norm))


@handles("MeanVarianceNormalization", since=9)
def mean_variance_normalization(b: Emit, x: Tensor, *, axes: Ints = (0, 2, 3)) -> Tensor:
    _, deviation, variance = moments(b, x, b.axes(axes, x.rank))
    return deviation / (b.map("sqrt", variance) + 1e-9)


@handles("LRN")
def lrn(b: Emit, x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """x / (bias + alpha/size * sum of the squares of `size` neighbouring channels) ** beta"""
    if size < 1:
        raise b.error(f"size is {size}")
    before = (size - 1) // 2
    rest = [0] * (x.rank - 2)
    wide = b.pad(x * x, [0, before, *rest], [0, size - 1 - before, *rest])
    ones = [1] * (x.rank - 2)
    total = b.window("sum", wide, [1, size, *ones], [1] * x.rank, [1] * x.rank)
    return x / b.map("pow", total * (alpha / size) + bias, beta)
