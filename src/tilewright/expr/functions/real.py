"""The arithmetic that expansions of functions are written in: constants, fused operations, bits of a float type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr import dtypes
from tilewright.expr.build import cast
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Add, BitAnd, BitXor, Const, Expr, Mul, Shl, Shr, binary, call, const

# ln(2): the product of the first part and an exponent is exact
LN2_32 = (0.693145751953125, 1.428606765330187e-06)

# ln(2): the product of the first part and an exponent is exact
LN2_64 = (0.6931471803691238, 1.9082149292705877e-10)


@dataclass(frozen=True, slots=True)
class Real:
    """f32 or f64. `fused` says that a*b + c is one instruction; where it is not, it is a product and a sum."""

    dtype: DType
    fused: bool

    @property
    def is_double(self) -> bool:
        return self.dtype is dtypes.f64

    @property
    def unsigned(self) -> DType:
        """The type of the bits."""
        return dtypes.u64 if self.is_double else dtypes.u32

    @property
    def fraction_bits(self) -> int:
        return 52 if self.is_double else 23

    @property
    def bias(self) -> int:
        return 1023 if self.is_double else 127

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def ln2(self) -> tuple[float, float]:
        return LN2_64 if self.is_double else LN2_32

    def number(self, value: float) -> Const:
        return const(value, self.dtype)

    def integer(self, value: int) -> Const:
        return const(value, self.unsigned)

    def fma(self, a: Expr, b: Expr | float, c: Expr | float) -> Expr:
        """a*b + c."""
        if self.fused:
            return call("fma", a, b, c)
        return binary(Add, binary(Mul, a, b), c)

    def polynomial(self, x: Expr, coefficients: Sequence[float]) -> Expr:
        """The polynomial in x, constant first: in the square of x, its coefficients the sums of two neighbours, which
        are computed side by side."""
        if len(coefficients) < 4:
            return self.horner(x, coefficients)
        pairs = [self.horner(x, coefficients[n : n + 2]) for n in range(0, len(coefficients), 2)]
        square = x * x
        total = pairs[-1]
        for pair in reversed(pairs[:-1]):
            total = self.fma(total, square, pair)
        return total

    def horner(self, x: Expr, coefficients: Sequence[float]) -> Expr:
        """The polynomial in x, constant first, by one chain: fewer terms that cancel each other than in two."""
        total: Expr = self.number(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, c)
        return total

    def bits(self, x: Expr) -> Expr:
        return call("bits", x)

    def from_bits(self, x: Expr) -> Expr:
        return call("from_bits", x)

    def shift_left(self, x: Expr, count: int) -> Expr:
        return binary(Shl, x, self.integer(count))

    def shift_right(self, x: Expr, count: int) -> Expr:
        return binary(Shr, x, self.integer(count))

    def mask(self, x: Expr, pattern: int) -> Expr:
        return binary(BitAnd, x, self.integer(pattern))

    def flip_sign(self, x: Expr, where: Expr) -> Expr:
        """x with its sign flipped where bit 1 (of value 2) of the integer `where` is set."""
        top = self.shift_left(self.mask(cast(where, self.unsigned), 2), self.dtype.bits - 2)
        return self.from_bits(binary(BitXor, self.bits(x), top))

    @property
    def rounder(self) -> float:
        """A number so large that adding it rounds to an integer, whose low bits are then those of the sum."""
        return 1.5 * 2.0**self.fraction_bits
