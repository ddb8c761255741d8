"""Casts to narrow types by ONNX's rules: what is beyond the range saturates or not, and powers of two round up, down or
to the nearest.

The graph's `cast` rounds to nearest and saturates. Here stands what ONNX asks for beyond that, in other operators.
"""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor

_FRACTION = (1 << 52) - 1
"""The bits of an f64's fraction."""
_ALL = (1 << 64) - 1


def converted(b: Emit, x: Tensor, dtype: DType, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """x as an element type. Of floats cast to narrow integers the low bits of the whole number are left, as the ONNX
    project's cases have it. `saturate` is for eight-bit floats only, `round_mode` for powers of two only."""
    if dtype.code is None or x.dtype is dtype:
        return b.cast(x, dtype)
    if dtype.is_int:
        return b.cast(b.cast(x, dtypes.i32) if x.dtype.is_float else x, dtype)
    if not dtype.signed:
        return _to_powers_of_two(b, x, dtype, saturate, round_mode)
    rounded = b.cast(x, dtype)
    return rounded if saturate or dtype.code.nan is None else _unsaturated(b, x, rounded)


def _unsaturated(b: Emit, x: Tensor, rounded: Tensor) -> Tensor:
    """The rounded numbers, but where x is beyond the range: there infinities, or NaN in a type without them."""
    dtype = rounded.dtype
    code = dtype.code
    assert code is not None
    wide = x if x.dtype.kind == "f" else b.cast(x, dtypes.f32)
    size, middle = b.map("abs", wide), b.scalar(code.largest + code.last_step / 2, wide.dtype)
    # in the middle between the greatest number and the next one an odd code rounds up
    beyond = b.map("le" if code.greatest & 1 else "lt", middle, size)
    special = code.nan if code.infinity is None else code.infinity
    bits = b.op("bitcast", rounded, dtype=dtypes.u8)
    sign = 0 if code.one_zero else code.sign
    marked = b.map("bit_or", b.map("bit_and", bits, sign), special or 0)
    return b.select(beyond, b.op("bitcast", marked, dtype=dtype), rounded)


def _to_powers_of_two(b: Emit, x: Tensor, dtype: DType, saturate: bool, round_mode: str) -> Tensor:
    """The power of two at or above x, at or below it, or the nearest; where it is not to saturate, NaN for numbers
    below the least one and for those that round to more than the greatest."""
    code = dtype.code
    assert code is not None
    if round_mode not in ("up", "down", "nearest"):
        raise Unsupported(f"the rounding is {round_mode!r}, not 'up', 'down' or 'nearest'")
    wide = b.cast(x, dtypes.f64)
    if round_mode != "nearest":
        bits = b.op("bitcast", wide, dtype=dtypes.u64)
        raised = b.map("add", bits, _FRACTION) if round_mode == "up" else bits
        power = b.op("bitcast", b.map("bit_and", raised, _ALL ^ _FRACTION), dtype=dtypes.f64)
        wide = b.select(b.map("isnan", wide), wide, power)
    rounded = b.cast(wide, dtype)
    if saturate:
        return rounded
    outside = b.map("or", b.map("lt", wide, code.smallest), b.map("le", b.scalar(1.5 * code.largest, dtypes.f64), wide))
    nan = b.op("bitcast", b.scalar(code.nan or 0, dtypes.u8), dtype=dtype)
    return b.select(outside, nan, rounded)
