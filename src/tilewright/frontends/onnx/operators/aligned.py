"""The operator sets 1 to 6, whose operators of two tensors do not broadcast as NumPy does: with `broadcast`, the second
tensor stands for dimensions of the first from `axis` on, or for its last ones.

    Add(x: f32[2, 3, 4], y: f32[3], broadcast=1, axis=1)      y[None, :, None]
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.activation import p_relu
from tilewright.frontends.onnx.operators.elementwise import power
from tilewright.frontends.onnx.operators.matmul import gemm
from tilewright.frontends.onnx.operators.normalization import batch_normalization
from tilewright.frontends.onnx.registry import handles

_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "and", "Or": "or", "Xor": "xor", "Equal": "eq",
    "Less": "lt",
}  # fmt: skip

Binary = Callable[[Emit, Tensor, Tensor], Tensor]


def _along(b: Emit, x: Tensor, y: Tensor, axis: int | None) -> Tensor:
    """The second tensor with dimensions of extent one behind those that it has from the axis on."""
    if axis is None or not y.rank or y.rank > x.rank:
        return y
    first = b.axis(axis, x.rank)
    behind = x.rank - first - y.rank
    if behind < 0:
        raise b.error(f"a tensor of {y.rank} dimensions does not fit {x.rank} from dimension {first} on")
    return b.unsqueeze(y, list(range(y.rank, y.rank + behind)))


def _aligned(compute: Binary) -> Callable[..., Tensor]:
    def handler(
        b: Emit,
        x: Tensor,
        y: Tensor,
        *,
        axis: int | None = None,
        broadcast: int = 0,
    ) -> Tensor:
        return compute(b, x, _along(b, x, y, axis if broadcast else None))

    return handler


def _binary(op: str) -> Binary:
    return lambda b, x, y: b.map(op, x, y)


for _name, _op in _BINARY.items():
    handles(_name, until=6)(_aligned(_binary(_op)))
handles("Greater", until=6)(_aligned(lambda b, x, y: b.map("lt", y, x)))
handles("Pow", until=6)(_aligned(power))


@handles("Gemm", until=6)
def gemm_that_may_broadcast(
    b: Emit,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """As Gemm of later operator sets, which always broadcasts."""
    return gemm(b, x, y, z, alpha=alpha, beta=beta, transA=transA, transB=transB)


@handles("BatchNormalization", until=6)
def batch_normalization_by_outputs(
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
) -> tuple[Tensor | None, ...]:
    """With one output it normalises by the given moments, as in a test: training has five."""
    return batch_normalization(b, x, scale, bias, mean, variance, epsilon=epsilon, spatial=spatial)


@handles("PRelu", until=6)
def p_relu_by_channel(b: Emit, x: Tensor, slope: Tensor) -> Tensor:
    """The slope is one number, or one for each channel."""
    return p_relu(b, x, _along(b, x, slope, 1 if x.rank > 1 else None))
