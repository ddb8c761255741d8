"""Element types: what one number in a buffer, a register or an index is.

A `DType` is an interned record, so `is` compares. Text names are those of the rest of the field (`f32`, `i64`, `bf16`).

    kind    b  truth value (stored in one byte, 0 or 1)
            i  two's-complement integer, wraps around        u  unsigned integer, wraps around
            f  IEEE-754 binary float, round to nearest even  (bf16: the upper half of an f32)
            n  narrow: an integer or float of eight bits or fewer that is stored, moved and cast, without arithmetic

Narrow types take a byte each, the number's code in its low bits; the bits above the code are ignored. Their arrays in
NumPy are those of `ml_dtypes`.

    i4 u4 i2 u2                two's-complement and unsigned integers of four and two bits
    f8e5m2                     IEEE-754 in eight bits: five of the exponent, two of the fraction
    f8e4m3fn                   finite: the code of all ones is NaN, and there are no infinities
    f8e4m3fnuz, f8e5m2fnuz     finite, with one zero: the code of -0 is NaN
    f8e8m0                     the powers of two from 2^-127 to 2^127, and NaN: no sign, no zero
    f4e2m1                     0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives: no NaN, no infinities
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """How a narrow type writes a number into the low `width` bits of a byte, `numpy` being its name in `ml_dtypes`.

    An integer has no `exponent`, and is `signed` or not. A float has a sign bit (not where it is not `signed`), so many
    bits of the `exponent` with its `bias`, and the fraction: as in IEEE 754, subnormal numbers among them. `greatest`
    is the code of its greatest number, `nan` and `infinity` those of NaN and infinity without a sign, where it has
    them. Where NaN has the code of -0 there is no -0."""

    numpy: str
    width: int
    signed: bool = True
    exponent: int = 0
    bias: int = 0
    greatest: int = 0
    nan: int | None = None
    infinity: int | None = None

    @property
    def fraction(self) -> int:
        """Bits of a float's fraction."""
        return self.width - self.exponent - self.signed

    @property
    def mask(self) -> int:
        """The bits of the code."""
        return (1 << self.width) - 1

    @property
    def sign(self) -> int:
        """The bit of the sign; 0 without one."""
        return 1 << (self.width - 1) if self.signed else 0

    @property
    def one_zero(self) -> bool:
        """Whether a float has no -0."""
        return self.nan == self.sign or not self.signed

    @property
    def largest(self) -> float:
        """The greatest finite number of a float."""
        steps = (self.greatest & ((1 << self.fraction) - 1)) + (1 << self.fraction)
        return steps * self.last_step

    @property
    def last_step(self) -> float:
        """How far apart the numbers beside the greatest one are."""
        return 2.0 ** ((self.greatest >> self.fraction) - self.bias - self.fraction)

    @property
    def smallest(self) -> float:
        """The least number of a float above zero."""
        return 2.0 ** (1 - self.bias - self.fraction) if self.fraction else 2.0**-self.bias


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type: its text `name`, its `kind` (b, i, u, f, n), the `bits` it takes in memory and, of a narrow one,
    the `code` of its numbers. Whether it `is_int`, signed or unsigned, `is_float` or `is_bool` is asked of every node,
    and so known beforehand."""

    name: str
    kind: str
    bits: int
    code: Code | None = None
    is_int: bool = field(init=False)
    is_float: bool = field(init=False)
    is_bool: bool = field(init=False)

    def __post_init__(self) -> None:
        whole = self.code is not None and not self.code.exponent
        object.__setattr__(self, "is_int", self.kind in "iu" or whole)
        object.__setattr__(self, "is_float", self.kind == "f" or (self.code is not None and not whole))
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
    def width(self) -> int:
        """The bits that hold a number: all of those in memory, but of a narrow type."""
        return self.bits if self.code is None else self.code.width

    @property
    def signed(self) -> bool:
        """Whether it has negative numbers."""
        return self.kind in "if" if self.code is None else self.code.signed

    @property
    def infinite(self) -> bool:
        """Whether it has infinities."""
        return self.kind == "f" if self.code is None else self.code.infinity is not None

    @property
    def min(self) -> int | float:
        """The least value: of an integer its lower end, of a float minus infinity (the least number where it has no
        infinities), of a bool False."""
        if self.code is not None and self.is_float:
            return -self.max if self.signed else self.code.smallest
        if self.is_float:
            return float("-inf")
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def max(self) -> int | float:
        """The greatest value: of an integer its upper end, of a float infinity (the greatest number where it has no
        infinities), of a bool True."""
        if self.is_float:
            return self.code.largest if self.code is not None and not self.infinite else float("inf")
        if self.is_bool:
            return 1
        return (1 << (self.width - self.signed)) - 1

    @property
    def exponent(self) -> int:
        """Bits of a float's exponent (IEEE 754; bf16 has that of f32); 0 of other types."""
        if not self.is_float:
            return 0
        if self.code is not None:
            return self.code.exponent
        return f32.exponent if self is bf16 else {16: 5, 32: 8, 64: 11}[self.bits]

    @property
    def significant(self) -> int:
        """Significant bits of a float: all but those of the exponent, where the leading 1, which is not stored, takes
        the place of the sign."""
        return self.width - self.exponent + (not self.signed)

    def holds(self, other: DType) -> bool:
        """Whether it has every value of another type. A narrow float is taken to hold no other float: formats of one
        width differ in their zeros, infinities and NaN."""
        if self is other:
            return True
        if self.is_bool or other.is_bool or (other.is_float and not self.is_float):
            return False
        if self.code is not None and self.is_float and (other.is_float or not self.signed):
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

i4, u4, i2, u2 = (
    DType(f"{name[0]}{width}", "n", 8, Code(f"{name}{width}", width, name == "int"))
    for width in (4, 2)
    for name in ("int", "uint")
)
f8e4m3fn = DType("f8e4m3fn", "n", 8, Code("float8_e4m3fn", 8, True, 4, 7, greatest=0x7E, nan=0x7F))
f8e4m3fnuz = DType("f8e4m3fnuz", "n", 8, Code("float8_e4m3fnuz", 8, True, 4, 8, greatest=0x7F, nan=0x80))
f8e5m2 = DType("f8e5m2", "n", 8, Code("float8_e5m2", 8, True, 5, 15, greatest=0x7B, nan=0x7E, infinity=0x7C))
f8e5m2fnuz = DType("f8e5m2fnuz", "n", 8, Code("float8_e5m2fnuz", 8, True, 5, 16, greatest=0x7F, nan=0x80))
f8e8m0 = DType("f8e8m0", "n", 8, Code("float8_e8m0fnu", 8, False, 8, 127, greatest=0xFE, nan=0xFF))
f4e2m1 = DType("f4e2m1", "n", 8, Code("float4_e2m1fn", 4, True, 2, 1, greatest=0x7))

NARROW = (i4, u4, i2, u2, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f4e2m1)
"""The narrow types."""

DTYPES: dict[str, DType] = {
    d.name: d for d in (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, *NARROW)
}

_KINDS = {"i": "int", "u": "uint", "f": "float"}
_BORROWED = {"bfloat16": bf16} | {d.code.numpy: d for d in NARROW if d.code is not None}
"""The types that NumPy itself lacks, by their names in `ml_dtypes`."""

index = i64
"""The type of loop variables, dimensions and buffer indices."""


def from_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """The element type that a NumPy dtype stands for (native byte order), or None when there is none."""
    found = _by_numpy().get(dtype)
    borrowed = _BORROWED.get(dtype.name) if found is None else None
    return borrowed if borrowed is not None and dtype == borrowed.numpy else found


@cache
def _by_numpy() -> dict[np.dtype[np.generic], DType]:
    """The element types that NumPy itself has."""
    own = [d for d in DTYPES.values() if d not in _BORROWED.values()]
    return {d.numpy: d for d in own}


@cache
def _numpy_type(name: str) -> np.dtype[np.generic]:
    dtype = DTYPES[name]
    borrowed = next((n for n, d in _BORROWED.items() if d is dtype), None)
    if borrowed is not None:
        import ml_dtypes

        found: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, borrowed))
        return found
    return np.dtype("bool" if dtype.is_bool else f"{_KINDS[dtype.kind]}{dtype.bits}")
