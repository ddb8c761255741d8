"""Element types: what one number in a buffer, a register or an index is.

A `DType` is an interned record, so `is` compares. Text names are those of the rest of the field (`f32`, `i64`, `bf16`).

    kind    b  truth value (stored in one byte, 0 or 1)
            i  two's-complement integer, wraps around        u  unsigned integer, wraps around
            f  IEEE-754 binary float, round to nearest even  (bf16: the upper half of an f32)
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type: its text `name`, its `kind` (b, i, u, f) and its width in `bits` (a bool has 8 in memory)."""

    name: str
    kind: str
    bits: int
    numpy: np.dtype[np.generic]

    @property
    def bytes(self) -> int:
        """Bytes one element takes in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        """Signed or unsigned integer (not a truth value)."""
        return self.kind in "iu"

    @property
    def is_bool(self) -> bool:
        return self.kind == "b"

    @property
    def min(self) -> int | float:
        """The least value: of an integer its lower end, of a float minus infinity, of a bool False."""
        if self.is_float:
            return float("-inf")
        return -(1 << (self.bits - 1)) if self.kind == "i" else 0

    @property
    def max(self) -> int | float:
        """The greatest value: of an integer its upper end, of a float infinity, of a bool True."""
        if self.is_float:
            return float("inf")
        if self.is_bool:
            return 1
        return (1 << (self.bits - (self.kind == "i"))) - 1

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


def _row(name: str, kind: str, bits: int, scalar: object) -> DType:
    return DType(name, kind, bits, np.dtype(scalar))  # type: ignore[call-overload]


bool_ = _row("bool", "b", 8, np.bool_)
i8, i16, i32, i64 = (_row(f"i{n}", "i", n, f"int{n}") for n in (8, 16, 32, 64))
u8, u16, u32, u64 = (_row(f"u{n}", "u", n, f"uint{n}") for n in (8, 16, 32, 64))
f16 = _row("f16", "f", 16, np.float16)
bf16 = _row("bf16", "f", 16, ml_dtypes.bfloat16)
f32 = _row("f32", "f", 32, np.float32)
f64 = _row("f64", "f", 64, np.float64)

DTYPES: dict[str, DType] = {d.name: d for d in (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)}
_BY_NUMPY = {d.numpy: d for d in DTYPES.values()}

index = i64
"""The type of loop variables, dimensions and buffer indices."""


def from_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """The element type that a NumPy dtype stands for (native byte order), or None when there is none."""
    return _BY_NUMPY.get(dtype)
