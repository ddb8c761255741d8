"""What each operator computes, as NumPy functions over arrays of one element type: the oracle of scalar arithmetic.

Total on purpose: integer division by zero gives 0, shifts past the width give 0 or the sign, float-to-integer casts
saturate and take NaN to 0. Generated code keeps the same promises, so no input can trap.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.expr.dtypes import DType, from_numpy

Array = Any


def _divide(a: Array, b: Array) -> Array:
    """IEEE division of floats; of integers towards zero, with x / 0 = 0."""
    if np.asarray(a).dtype.kind not in "iu":
        return np.divide(a, b)
    safe = np.where(b == 0, 1, b).astype(np.asarray(b).dtype)
    quotient = np.floor_divide(a, safe)
    inexact = quotient * safe != a
    quotient = np.where((quotient < 0) & inexact, quotient + 1, quotient)
    return np.where(b == 0, 0, quotient).astype(np.asarray(a).dtype)


def _floor_divide(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, 1, b).astype(np.asarray(b).dtype)
    return np.where(b == 0, 0, np.floor_divide(a, safe)).astype(np.asarray(a).dtype)


def _mod(a: Array, b: Array) -> Array:
    return np.mod(a, b)  # NumPy gives 0 for an integer modulo 0, as promised


def _rem(a: Array, b: Array) -> Array:
    return np.fmod(a, b)


def _shift_left(a: Array, b: Array) -> Array:
    width = np.asarray(a).dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    amount = np.where(inside, b, 0).astype(np.asarray(b).dtype)
    return np.where(inside, np.left_shift(a, amount), 0).astype(np.asarray(a).dtype)


def _shift_right(a: Array, b: Array) -> Array:
    width = np.asarray(a).dtype.itemsize * 8
    amount = np.where((b >= 0) & (b < width), b, width - 1).astype(np.asarray(b).dtype)
    filled = np.right_shift(a, amount)
    if np.asarray(a).dtype.kind == "u":
        filled = np.where((b >= 0) & (b < width), filled, 0)
    return np.asarray(filled).astype(np.asarray(a).dtype)


OPERATORS: dict[str, Callable[[Array, Array], Array]] = {
    "Add": lambda a, b: np.logical_or(a, b) if np.asarray(a).dtype == bool else np.add(a, b),
    "Sub": np.subtract,
    "Mul": lambda a, b: np.logical_and(a, b) if np.asarray(a).dtype == bool else np.multiply(a, b),
    "Div": _divide,
    "FloorDiv": _floor_divide,
    "Mod": _mod,
    "Rem": _rem,
    "Min": np.minimum,
    "Max": np.maximum,
    "BitAnd": np.bitwise_and,
    "BitOr": np.bitwise_or,
    "BitXor": np.bitwise_xor,
    "Shl": _shift_left,
    "Shr": _shift_right,
    "Eq": np.equal,
    "Ne": np.not_equal,
    "Lt": np.less,
    "Le": np.less_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
}

_EXACT: dict[str, Callable[[int, int], int | bool]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": lambda a, b: a // b if b else 0,
    "Mod": lambda a, b: a % b if b else 0,
    "Min": min,
    "Max": max,
    "Eq": operator.eq,
    "Ne": operator.ne,
    "Lt": operator.lt,
    "Le": operator.le,
}


def fold(name: str, a: Any, b: Any, dtype: DType) -> Any:
    """The operator `name` applied to two Python numbers of `dtype`."""
    if dtype.is_int and name in _EXACT:
        return _EXACT[name](a, b)
    with np.errstate(all="ignore"):
        return OPERATORS[name](np.asarray(a, dtype.numpy), np.asarray(b, dtype.numpy)).item()


def to_dtype(value: Any, dtype: DType) -> Any:
    """`value` as the Python number that an element of `dtype` holds: rounded to a float type, wrapped to an integer."""
    if dtype.is_bool:
        return bool(value)
    if dtype.is_int:
        wrapped = int(value) & ((1 << dtype.width) - 1)
        return wrapped - (1 << dtype.width) if dtype.signed and wrapped >> (dtype.width - 1) else wrapped
    if dtype.infinite and math.isinf(value):
        return float(value)
    return float(convert(np.asarray(float(value)), dtype))


def convert(value: Array, to: DType) -> Array:
    """The cast of an array: float to integer towards zero and saturating, NaN to 0; between integers wrapping; to a
    narrow float saturating."""
    a = widened(np.asarray(value))
    is_float = a.dtype.kind not in "biu"
    with np.errstate(all="ignore"):
        if to.is_bool:
            return a != 0
        if to.code is not None and to.is_float:
            return _to_narrow_float(a, to)
        if not (is_float and to.is_int):
            return (_narrow_to_odd(a) if to.name == "bf16" and a.dtype == np.float64 else a).astype(to.numpy)
        wide = np.nan_to_num(np.trunc(a.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        inside = (wide >= float(to.min)) & (wide < float(to.max))
        result = np.where(inside, wide, 0).astype(to.numpy)
        result = np.where(wide < float(to.min), np.asarray(to.min, to.numpy), result)
        return np.where(wide >= float(to.max), np.asarray(to.max, to.numpy), result).astype(to.numpy)


def widened(a: Array) -> Array:
    """An array of a narrow type as one of f32, i8 or u8, which hold its values; any other as it is. The bits of a byte
    above the code are ignored."""
    dtype = from_numpy(a.dtype)
    if dtype is None or dtype.code is None:
        return a
    codes = a.view(np.uint8) & np.uint8(dtype.code.mask)
    return codes.view(dtype.numpy).astype(np.float32 if dtype.is_float else np.int8 if dtype.signed else np.uint8)


def _to_narrow_float(a: Array, to: DType) -> Array:
    """Rounded to nearest, ties to even, what is beyond the range to its end. NaN to 0 where the type has none."""
    assert to.code is not None
    wide = a.astype(np.float64)
    if not to.signed:
        return _to_power_of_two(wide, to)
    if to.code.nan is None:
        wide = np.where(np.isnan(wide), 0.0, wide)
    return _narrow_to_odd(np.clip(wide, -to.code.largest, to.code.largest)).astype(to.numpy)


def _to_power_of_two(wide: Array, to: DType) -> Array:
    """The nearest power of two, of two as near the greater; the least one for zero, NaN for negative numbers."""
    assert to.code is not None
    assert to.code.nan is not None
    powers = np.ldexp(1.0, np.arange(to.code.greatest + 1) - to.code.bias)
    codes = np.searchsorted((powers[:-1] + powers[1:]) / 2, wide, side="right")
    return np.where(np.isnan(wide) | (wide < 0), to.code.nan, codes).astype(np.uint8).view(to.numpy)


def _narrow_to_odd(a: Array) -> Array:
    """f64 as f32 with the last bit set where that is inexact: rounding it once more gives what rounding `a` would."""
    near = a.astype(np.float32)
    bits = near.view(np.uint32)
    odd = (bits - (np.abs(near.astype(np.float64)) > np.abs(a))) | 1
    inexact = np.isfinite(a) & (near.astype(np.float64) != a)
    return np.where(inexact, odd, bits).astype(np.uint32).view(np.float32)


def convert_number(value: Any, source: DType, to: DType) -> Any:
    """The cast of one Python number of type `source`."""
    if to.is_float and to.code is None:
        return to_dtype(value, to)
    return convert(np.asarray(value, source.numpy), to).item()
