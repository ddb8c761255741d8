"""Activation functions, composed of element-wise operators."""

from __future__ import annotations

import math

from tilewright.expr import dtypes
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.registry import handles


@handles("LeakyRelu")
def leaky_relu(b: Emit, x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return b.select(b.map("lt", x, 0), x * alpha, x)


@handles("PRelu", since=7)
def p_relu(b: Emit, x: Tensor, slope: Tensor) -> Tensor:
    """x, or slope*x where x is negative; the slope broadcasts to x."""
    return b.select(b.map("lt", x, 0), x * slope, x)


@handles("Elu")
def elu(b: Emit, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x, or alpha*(exp(x) - 1) where x is negative."""
    return b.select(b.map("lt", x, 0), b.map("expm1", x) * alpha, x)


@handles("Celu")
def celu(b: Emit, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """max(0, x) + min(0, alpha*(exp(x/alpha) - 1))"""
    return b.map("relu", x) + b.map("min", b.map("expm1", x / alpha) * alpha, 0)


@handles("Selu", since=6)
def selu(
    b: Emit, x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return b.select(b.map("lt", x, 0), b.map("expm1", x) * alpha, x) * gamma


@handles("ThresholdedRelu")
def thresholded_relu(b: Emit, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return b.select(b.map("lt", b.scalar(alpha, x.dtype), x), x, 0)


@handles("HardSigmoid")
def hard_sigmoid(b: Emit, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return b.map("max", b.map("min", x * alpha + beta, 1), 0)


@handles("HardSwish")
def hard_swish(b: Emit, x: Tensor) -> Tensor:
    return x * hard_sigmoid(b, x, alpha=1 / 6, beta=0.5)


@handles("Swish")
def swish(b: Emit, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * b.map("sigmoid", x if alpha == 1 else x * alpha)


@handles("Softplus")
def softplus(b: Emit, x: Tensor) -> Tensor:
    """log(exp(x) + 1), from exp(-|x|), which does not overflow."""
    return b.map("relu", x) + b.map("log1p", b.map("exp", -b.map("abs", x)))


@handles("Softsign")
def softsign(b: Emit, x: Tensor) -> Tensor:
    return x / (b.map("abs", x) + 1)


@handles("Mish")
def mish(b: Emit, x: Tensor) -> Tensor:
    return x * b.map("tanh", softplus(b, x))


@handles("Gelu")
def gelu(b: Emit, x: Tensor, *, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x, by erf, or by the tanh formula."""
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (b.map("tanh", inner) + 1)
    if approximate != "none":
        raise Unsupported(f"approximate is {approximate!r}, not 'none' or 'tanh'")
    return x * 0.5 * (b.map("erf", x * math.sqrt(0.5)) + 1)


@handles("Shrink")
def shrink(b: Emit, x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """x + bias below -lambd, x - bias above lambd, 0 between. Of integers in double precision, rounded towards zero;
    what is beyond their type wraps around."""
    number = b.cast(x, dtypes.f64) if x.dtype.is_int else x
    above = b.select(b.map("lt", b.scalar(lambd, number.dtype), number), number - bias, 0)
    shrunk = b.select(b.map("lt", number, -lambd), number + bias, above)
    return b.cast(b.cast(shrunk, dtypes.i64) if x.dtype.is_int and x.dtype.bits < 64 else shrunk, x.dtype)


@handles("Dropout", until=11)
def dropout_by_attributes(b: Emit, x: Tensor, *, ratio: float = 0.5) -> tuple[Tensor | None, ...]:
    """At inference the tensor itself, and a mask of ones."""
    return x, b.full(x.shape, True, dtypes.bool_) if b.wants(1) else None
