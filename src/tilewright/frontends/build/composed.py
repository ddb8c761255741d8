"""What several front ends compose of operators: counts, means, moments, softmax."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.nodes import Expr, const
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor


def product(extents: Sequence[Expr]) -> Expr:
    """The number of elements of a shape."""
    total: Expr = const(1)
    for extent in extents:
        total = total * extent
    return total


def mean_over(b: Emit, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    """The sum divided by the number of elements."""
    count = product(tuple(x.shape[a] for a in axes))
    return b.reduce("sum", x, axes, keepdims) / b.of_size(count, x.dtype)


def moments(b: Emit, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, deviation from it, variance) over the axes, which stay with extent one."""
    mean = mean_over(b, x, axes, True)
    deviation = x - mean
    return mean, deviation, mean_over(b, deviation * deviation, axes, True)


def softmax_along(b: Emit, x: Tensor, axis: int) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) along one axis."""
    e = b.map("exp", x - b.reduce("max", x, [axis], keepdims=True))
    return e / b.reduce("sum", e, [axis], keepdims=True)


def log_softmax_along(b: Emit, x: Tensor, axis: int) -> Tensor:
    """x - max - log(sum(exp(x - max))) along one axis."""
    shifted = x - b.reduce("max", x, [axis], keepdims=True)
    return shifted - b.map("log", b.reduce("sum", b.map("exp", shifted), [axis], keepdims=True))
