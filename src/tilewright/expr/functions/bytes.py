"""Sums of products of bytes, in plain operations.

dot_bytes(t, a, b)   =>   t + (a & 255) * signed(b & 255) + (a >> 8 & 255) * signed(b >> 8 & 255) + …
"""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.build import cast
from tilewright.expr.nodes import BitAnd, Call, Expr, Shl, Shr, binary


def expand_dot(e: Call) -> Expr:
    """The call in plain operations, for targets without an instruction for it. Vectors are left alone."""
    if e.lanes != 1:
        return e
    total, a, b = e.args
    for place in (0, 8, 16, 24):
        unsigned = binary(BitAnd, binary(Shr, a, place), 255)
        top = cast(binary(Shl, b, 24 - place), dtypes.i32)
        total = total + unsigned * cast(binary(Shr, top, 24), dtypes.u32)
    return total
