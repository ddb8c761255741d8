"""Random bits by counting: the same numbers for the same key and counter, on any machine, in any order.

    y: u64[n] = random_bits(i: u64[n], key: u64[])

The function is Threefry-2x32 of twenty rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC 2011; the reference is the authors' Random123): a cipher of two words of 32 bits, of which counter, key and
result are each one number here, the first word in the low half. It takes additions, rotations and exclusive ors alone.
Front ends make uniform and normal numbers of the bits by other operators.
"""

from __future__ import annotations

from typing import Any

from tilewright.expr import dtypes
from tilewright.expr.build import cast
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import BitOr, BitXor, Expr, Shl, Shr, binary, const
from tilewright.graph.op import TypeContext, register
from tilewright.ops.checks import check_same_dtype
from tilewright.ops.elementwise import Elementwise
from tilewright.types.tensor import TensorType


def threefry(counter: Expr, key: Expr) -> Expr:
    """Threefry-2x32-20 of two u64. Rotations and the constant of the third word of the key are the paper's."""
    x, y = _words(counter)
    keys = [*_words(key)]
    keys.append(binary(BitXor, binary(BitXor, keys[0], keys[1]), const(0x1BD11BDA, dtypes.u32)))
    x, y = x + keys[0], y + keys[1]
    rotations = (13, 15, 26, 6), (17, 29, 16, 24)
    for group in range(5):
        for bits in rotations[group % 2]:
            x = x + y
            y = binary(BitXor, x, _rotated(y, bits))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + const(group + 1, dtypes.u32)
    high = binary(Shl, cast(y, dtypes.u64), const(32, dtypes.u64))
    return binary(BitOr, cast(x, dtypes.u64), high)


def _words(x: Expr) -> tuple[Expr, Expr]:
    """The low half and the high half."""
    return cast(x, dtypes.u32), cast(binary(Shr, x, const(32, dtypes.u64)), dtypes.u32)


def _rotated(x: Expr, bits: int) -> Expr:
    """The 32 bits turned to the left."""
    low = binary(Shr, x, const(32 - bits, dtypes.u32))
    return binary(BitOr, binary(Shl, x, const(bits, dtypes.u32)), low)


class RandomBits(Elementwise):
    """64 random bits for each counter under a key, both u64: equal ones give equal bits, others bits that no test has
    told from independent ones."""

    name = "random_bits"
    arity = 2

    def expression(self, elements: tuple[Expr, ...], attrs: Any) -> Expr:
        return threefry(*elements)

    def result(self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: Any) -> DType:
        check_same_dtype(context, inputs)
        if inputs[0].dtype is not dtypes.u64:
            raise context.error(f"counters and keys are u64, not {inputs[0].dtype}", "cast them to u64")
        return dtypes.u64


register(RandomBits())
