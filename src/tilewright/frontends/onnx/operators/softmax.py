"""Softmax and its relatives. Before opset 13 they work on a matrix: all dimensions from `axis` on are one."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.expr.nodes import Const
from tilewright.frontends.build.composed import log_softmax_along, product, softmax_along
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.registry import handles


def hardmax_along(b: Emit, x: Tensor, axis: int) -> Tensor:
    """1 at the first maximum along one axis, 0 elsewhere. An axis that may have no elements, none of which is the
    greatest, gets one behind the others that is no greater than any."""
    extent, behind = x.shape[axis], [0] * x.rank
    behind[axis] = 0 if isinstance(extent, Const) and extent.value > 0 else 1
    best = b.arg_reduce("max", b.pad(x, [0] * x.rank, behind, x.dtype.min), axis, keepdims=True)
    return b.cast(b.map("eq", b.align(b.iota((x.shape[axis],), 0), axis, x.rank), best), x.dtype)


_ALONG = {"Softmax": softmax_along, "LogSoftmax": log_softmax_along, "Hardmax": hardmax_along}


def _current(along: Callable[[Emit, Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def handler(b: Emit, x: Tensor, *, axis: int = -1) -> Tensor:
        return along(b, x, b.axis(axis, x.rank))

    return handler


def _flattening(along: Callable[[Emit, Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def handler(b: Emit, x: Tensor, *, axis: int = 1) -> Tensor:
        first = x.rank if axis == x.rank else b.axis(axis, x.rank)
        if first == x.rank - 1:
            return along(b, x, first)
        rows, columns = product(x.shape[:first]), product(x.shape[first:])
        return b.reshape(along(b, b.reshape(x, (rows, columns)), 1), x.shape)

    return handler


for _name, _along in _ALONG.items():
    handles(_name, until=12)(_flattening(_along))
    handles(_name, since=13)(_current(_along))
