"""Normalizations and softmax, computed in f32 where the elements are 16-bit floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.expr.nodes import Const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.composed import log_softmax_along, moments, product, softmax_along
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import Sizes, handles


def _softmax(along: Callable[[Emit, Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def handler(b: TorchEmit, x: Tensor, *, dim: int, half_to_float: bool = False) -> Tensor:
        if not x.rank:
            raise Unsupported("a softmax of one number is not supported")
        return b.done(along(b, b.wide(x), b.axis(dim, x.rank)))

    return handler


handles("aten._softmax.default")(_softmax(softmax_along))
handles("aten._log_softmax.default")(_softmax(log_softmax_along))


def _inverse_root(b: Emit, x: Tensor, eps: float) -> Tensor:
    return 1 / b.map("sqrt", x + eps)


@handles("aten.native_layer_norm.default")
def layer_norm(
    b: TorchEmit,
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    normalized_shape: Sizes,
    eps: float,
) -> tuple[Tensor, ...]:
    """The last dimensions normalised; with the mean, and one over the standard deviation."""
    axes = range(x.rank - len(normalized_shape), x.rank)
    mean, apart, variance = moments(b, b.wide(x), axes)
    inverse = _inverse_root(b, variance, eps)
    y = apart * inverse
    if weight is not None:
        y = y * b.wide(weight)
    if bias is not None:
        y = y + b.wide(bias)
    return b.done(y, 0), b.done(mean, 1), b.done(inverse, 2)


@handles("aten.native_group_norm.default")
def group_norm(
    b: TorchEmit,
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    eps: float,
) -> tuple[Tensor, ...]:
    """Groups of channels normalised over channels and space; with means and inverse deviations [batch, group]."""
    channels = x.shape[1]
    split = b.reshape(b.wide(x), (x.shape[0], group, simplify(channels // group), *x.shape[2:]))
    mean, apart, variance = moments(b, split, range(2, split.rank))
    inverse = _inverse_root(b, variance, eps)
    y = b.reshape(apart * inverse, x.shape)
    if weight is not None:
        y = y * b.align(b.wide(weight), 1, x.rank)
    if bias is not None:
        y = y + b.align(b.wide(bias), 1, x.rank)
    flat = (x.shape[0], group)
    return b.done(y, 0), b.done(b.reshape(mean, flat), 1), b.done(b.reshape(inverse, flat), 2)


def _applied(
    b: TorchEmit,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    inverse: Tensor,
) -> Tensor:
    """Each channel less its mean, times the inverse deviation and the weight, plus the bias; the moments lie along the
    channels of `x`."""
    factor = inverse if weight is None else inverse * b.align(b.wide(weight), 1, x.rank)
    y = (b.wide(x) - mean) * factor
    return b.done(y if bias is None else y + b.align(b.wide(bias), 1, x.rank), 0)


@handles("aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    b: TorchEmit,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """By the running moments."""
    mean, variance = (b.align(b.wide(moment), 1, x.rank) for moment in (running_mean, running_var))
    y = _applied(b, x, weight, bias, mean, _inverse_root(b, variance, eps))
    return y, *_nothing(b)


def _nothing(b: TorchEmit) -> Sequence[Tensor]:
    """The moments that are not saved."""
    return [b.broadcast(b.scalar(0, t.dtype), t.shape) for t in b.results[1:3] if t is not None]


@handles("aten._native_batch_norm_legit_functional.default")
def batch_norm_in_training(
    b: TorchEmit,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """By the moments of the batch, which also move the running ones; with means and inverse deviations."""
    if not training:
        kept = batch_norm(b, x, weight, bias, running_mean, running_var, momentum=momentum, eps=eps)
        return *kept, b.done(running_mean, 3), b.done(running_var, 4)
    y, mean, inverse, variance = _by_batch(b, x, weight, bias, eps)
    count = product([d for a, d in enumerate(x.shape) if a != 1])
    if isinstance(count, Const) and count.value == 1:
        raise Unsupported("the variance of one element a channel is not supported")
    size = b.of_size(count, variance.dtype)
    moved = [
        b.align(b.wide(old), 1, x.rank) * (1 - momentum) + new * momentum
        for old, new in ((running_mean, mean), (running_var, variance * (size / (size - 1))))
    ]
    return y, *(b.done(_flat(b, moment), n) for n, moment in enumerate((mean, inverse, *moved), 1))


@handles("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_running(
    b: TorchEmit,
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    y, mean, inverse, _ = _by_batch(b, x, weight, bias, eps)
    return y, b.done(_flat(b, mean), 1), b.done(_flat(b, inverse), 2)


def _by_batch(
    b: TorchEmit, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(normalised, mean, inverse deviation, variance) by the moments of the batch, which lie along the channels."""
    mean, _, variance = moments(b, b.wide(x), [a for a in range(x.rank) if a != 1])
    inverse = _inverse_root(b, variance, eps)
    return _applied(b, x, weight, bias, mean, inverse), mean, inverse, variance


def _flat(b: TorchEmit, moment: Tensor) -> Tensor:
    """A moment of each channel, one after the other. What is computed of moments is computed along the channels of `x`:
    views in between would keep it in kernels of its own."""
    return b.squeeze(moment, [a for a in range(moment.rank) if a != 1])
