"""Element types: PyTorch's and ours, and the types of values as a graph's fake tensors tell them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.frontends.build.problems import Unsupported

TYPES: dict[torch.dtype, DType] = {
    torch.bool: dtypes.bool_,
    torch.int8: dtypes.i8,
    torch.int16: dtypes.i16,
    torch.int32: dtypes.i32,
    torch.int64: dtypes.i64,
    torch.uint8: dtypes.u8,
    torch.uint16: dtypes.u16,
    torch.uint32: dtypes.u32,
    torch.uint64: dtypes.u64,
    torch.float16: dtypes.f16,
    torch.bfloat16: dtypes.bf16,
    torch.float32: dtypes.f32,
    torch.float64: dtypes.f64,
}
"""Our type for each of PyTorch's; complex, quantized and eight-bit floating-point ones have none."""


def dtype_of(dtype: Any) -> DType:
    """Our type for one of PyTorch's; Unsupported where there is none."""
    found = TYPES.get(dtype)
    if found is None:
        raise Unsupported(f"tensors of {dtype} are not supported")
    return found


def wide(dtype: DType) -> DType:
    """The type in which eager kernels compute with elements of this one: 16-bit floats become f32, and are
    rounded once, at the end."""
    return dtypes.f32 if dtype in (dtypes.f16, dtypes.bf16) else dtype


def is_dense(value: Any, types: Collection[torch.dtype]) -> bool:
    """Whether a value of a graph is one dense tensor in memory, of one of these types, on the CPU."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and value.dtype in types
    )


def is_plain(value: Any) -> bool:
    """Whether a value of a graph is a dense tensor of a type that we have."""
    return is_dense(value, TYPES)
