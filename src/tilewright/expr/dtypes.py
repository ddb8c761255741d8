"""Element types: what one number in a buffer, a register or an index is.

A `DType` is an interned record, so `is` compares. Text names are those of the rest of the field (`f32`, `i64`, `bf16`).

    kind    b  truth value (stored in one byte, 0 or 1)
            i  two's-complement integer, wraps around        u  unsigned integer, wraps around
            f  IEEE-754 binary float, round to nearest even  (bf16: the upper half of an f32)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type: its text `name`, its `kind` (b, i, u, f) and its width in `bits` (a bool has 8 in memory).
    Whether it `is_int`, signed or unsigned, `is_float` or `is_bool` is asked of every node, and so known beforehand."""

    name: str
    kind: str
    bits: int
    is_int: bool = field(init=False)
    is_float: bool = field(init=False)
    is_bool: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_int", self.kind in "iu")
        object.__setattr__(self, "is_float", self.kind == "f")
        object.__setattr__(self, "is_bool", self.kind == "b")

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """NumPy's type of the same numbers. For what NumPy itself lacks, `ml_dtypes` is loaded with the first
        question."""
        return _numpy_type(self.name)

    @property
    def bytes(self) -> int:
        """Bytes one element takes in memory."""
        return self.bits // 8

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

    @property
    def exponent(self) -> int:
        """Bits of a float's exponent (IEEE 754; bf16 has that of f32); 0 of other types."""
        if not self.is_float:
            return 0
        return f32.exponent if self is bf16 else {16: 5, 32: 8, 64: 11}[self.bits]

    @property
    def significant(self) -> int:
        """Significant bits of a float: all but those of the exponent, where the leading 1, which is not stored, takes
        the place of the sign."""
        return self.bits - self.exponent

    def holds(self, other: DType) -> bool:
        """Whether it has every value of another type."""
        if self is other:
            return True
        if self.is_bool or other.is_bool or (other.is_float and not self.is_float):
            return False
        if other.is_float:
            return self.significant >= other.significant and self.exponent >= other.exponent
        if self.is_float:
            size = max(abs(int(other.min)), int(other.max))
            return size <= 1 << self.significant and size < 1 << (1 << (self.exponent - 1))
        return self.min <= other.min and self.max >= other.max

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


bool_ = DType("bool", "b", 8)
i8, i16, i32, i64 = (DType(f"i{n}", "i", n) for n in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(f"u{n}", "u", n) for n in (8, 16, 32, 64))
f16, bf16, f32, f64 = (DType(name, "f", bits) for name, bits in (("f16", 16), ("bf16", 16), ("f32", 32), ("f64", 64)))

DTYPES: dict[str, DType] = {d.name: d for d in (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)}

_KINDS = {"i": "int", "u": "uint", "f": "float"}
_BRAIN = "bfloat16"

index = i64
"""The type of loop variables, dimensions and buffer indices."""


def from_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """The element type that a NumPy dtype stands for (native byte order), or None when there is none."""
    found = _by_numpy().get(dtype)
    return bf16 if found is None and dtype.name == _BRAIN and dtype == bf16.numpy else found


@cache
def _by_numpy() -> dict[np.dtype[np.generic], DType]:
    """The element types that NumPy itself has."""
    return {d.numpy: d for d in DTYPES.values() if d is not bf16}


@cache
def _numpy_type(name: str) -> np.dtype[np.generic]:
    dtype = DTYPES[name]
    if dtype is bf16:
        import ml_dtypes

        brain: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
        return brain
    return np.dtype("bool" if dtype.is_bool else f"{_KINDS[dtype.kind]}{dtype.bits}")
