"""Tensors of one number, or of counted ones."""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import Ints, Sizes, handles


@handles("aten.full.default", "aten.new_full.default", "aten.full_like.default")
def full(
    b: TorchEmit, x: Tensor | None = None, *, size: Sizes = (), fill_value: Number, dtype: DType | None = None
) -> Tensor:
    return _of(b, fill_value)


@handles("aten.zeros.default", "aten.new_zeros.default", "aten.zeros_like.default", "aten._efficientzerotensor.default")
def zeros(b: TorchEmit, x: Tensor | None = None, *, size: Sizes = (), dtype: DType | None = None) -> Tensor:
    return _of(b, 0)


@handles("aten.ones.default", "aten.new_ones.default", "aten.ones_like.default")
def ones(b: TorchEmit, x: Tensor | None = None, *, size: Sizes = (), dtype: DType | None = None) -> Tensor:
    return _of(b, 1)


@handles(
    "aten.empty.memory_format", "aten.new_empty.default", "aten.empty_like.default", "aten.empty_strided.default",
    "aten.empty_permuted.default", "aten.new_empty_strided.default",
)  # fmt: skip
def empty(
    b: TorchEmit,
    x: Tensor | None = None,
    *,
    size: Sizes = (),
    stride: Sizes = (),
    physical_layout: Ints = (),
    dtype: DType | None = None,
) -> Tensor:
    """Any numbers: zeros."""
    return _of(b, 0)


@handles("aten.scalar_tensor.default")
def scalar_tensor(b: TorchEmit, *, s: Number, dtype: DType | None = None) -> Tensor:
    return _of(b, s)


def _of(b: TorchEmit, value: Number) -> Tensor:
    return b.broadcast(b.scalar(value, b.result.dtype), b.extents)


@handles("aten.arange.start_step")
def arange(b: TorchEmit, start: Tensor, end: Tensor, step: Tensor, *, dtype: DType | None = None) -> Tensor:
    """start + i * step, computed in i64, or f64 where one of them is no integer."""
    exact = dtypes.f64 if start.dtype.is_float or step.dtype.is_float else dtypes.i64
    place = b.cast(b.iota(b.extents, 0), exact)
    return b.done(place * b.cast(step, exact) + b.cast(start, exact))


@handles("prims.iota.default")
def iota(b: TorchEmit, *, length: Size, start: Size, step: Size, dtype: DType, requires_grad: bool = False) -> Tensor:
    if not dtype.is_int:
        raise Unsupported(f"counting in {dtype} is not supported")
    return b.cast(b.iota(b.extents, 0) * b.of_size(step) + b.of_size(start), b.result.dtype)


@handles("aten.lift_fresh_copy.default", "aten.clone.default", "aten.alias.default",
         "aten.detach.default", "aten.contiguous.default")  # fmt: skip
def same(b: TorchEmit, x: Tensor) -> Tensor:
    return x
