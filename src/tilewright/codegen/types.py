"""Element types and literals in LLVM's words. A truth value is `i1` in a register and a byte in memory.

A bf16 is `i16`, its bits: no arithmetic is done on it, and LLVM would move a `bfloat` about by calls of a library. A
number of a narrow type is `i8`, its byte.
"""

from __future__ import annotations

import struct

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const

_NAMES = {
    dtypes.bool_: "i1",
    dtypes.f16: "half",
    dtypes.bf16: "i16",
    dtypes.f32: "float",
    dtypes.f64: "double",
}


def element_type(dtype: DType) -> str:
    """The type of one element in a register."""
    return _NAMES.get(dtype) or f"i{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """The type of one element in memory."""
    return "i8" if dtype.is_bool else element_type(dtype)


def vector_of(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def value_type(dtype: DType, lanes: int) -> str:
    """The type of a value of this many lanes in a register."""
    return vector_of(element_type(dtype), lanes)


def suffix(dtype: DType, lanes: int) -> str:
    """The type as intrinsic names spell it: f32, v8f32, i64 …"""
    name = dtype.name if dtype.is_float and dtype is not dtypes.bf16 else f"i{1 if dtype.is_bool else dtype.bits}"
    return name if lanes == 1 else f"v{lanes}{name}"


def literal(c: Const) -> str:
    """The literal of a constant. Floats are spelt by their bits, so nothing is lost."""
    dtype = c.dtype
    if dtype.is_bool:
        return "true" if c.value else "false"
    if dtype.code is not None:
        return str(int(np.asarray(c.value).astype(dtype.numpy).view(np.uint8)))
    if dtype.is_int:
        return str(int(c.value))
    value = float(c.value)
    if dtype in (dtypes.f32, dtypes.f64):
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    bits = int(np.asarray(value).astype(dtype.numpy).view(np.uint16))
    return f"0xH{bits:04X}" if dtype is dtypes.f16 else str(bits)
