"""What the evaluator's Python calls for one operation: on Python numbers and NumPy scalars, or on vectors.

expr/meaning.py defines the operators over arrays. Here stand the same operators, fast, for single integers and floats;
whatever has no fast form goes through meaning.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.expr import meaning
from tilewright.expr.dtypes import DType, bf16
from tilewright.expr.intrinsics import Intrinsic
from tilewright.expr.nodes import Add, Expr, Mul, Sub
from tilewright.loops.nodes import Buffer
from tilewright.report.errors import InternalError, RuntimeFault

Function = Callable[..., Any]


def out_of_bounds(buffer: Buffer, array: Any, *indices: Any) -> NoReturn:
    shown = ", ".join(str(i.tolist() if isinstance(i, np.ndarray) else i) for i in indices)
    raise InternalError(
        f"index [{shown}] is outside {buffer.name}", why=f"{buffer.name} has the shape {list(array.shape)} here"
    )


def vector_index(buffer: Buffer, array: Any, *indices: Any) -> tuple[Any, ...]:
    """The indices, some of them vectors, if they are inside the array."""
    for index, extent in zip(indices, array.shape, strict=True):
        lanes = np.asarray(index)
        if (lanes < 0).any() or (lanes >= extent).any():
            out_of_bounds(buffer, array, *indices)
    return indices


def load_lanes(buffer: Buffer, array: Any, mask: Any, *indices: Any) -> Any:
    """A vector of the elements in the lanes where the mask holds, and zeros in the others, which read nothing."""
    lanes = np.zeros(mask.shape, array.dtype)
    lanes[mask] = array[vector_index(buffer, array, *_alive(mask, indices))]
    return lanes


def store_lanes(buffer: Buffer, array: Any, mask: Any, value: Any, *indices: Any) -> None:
    """Stores the lanes where the mask holds, in ascending order."""
    array[vector_index(buffer, array, *_alive(mask, indices))] = value[mask]


def _alive(mask: Any, indices: tuple[Any, ...]) -> list[Any]:
    return [np.broadcast_to(np.asarray(i), mask.shape)[mask] for i in indices]


def fault(message: str, *values: Any) -> NoReturn:
    """The end of a call whose assertion failed: the message with its values, and the place that it names behind @."""
    for position, value in enumerate(values):
        message = message.replace(f"{{{position}}}", str(value))
    what, _, where = message.partition(" @ ")
    raise RuntimeFault(what, where=where or None)


def assert_lanes(mask: Any, held: Any, message: str, *values: Any) -> None:
    """The end of a call unless the condition holds in every lane in which the mask does; the values are those of the
    first lane in which it does not."""
    failing = np.atleast_1d(np.logical_and(mask, np.logical_not(held)))
    if failing.any():
        lane = int(failing.argmax())
        fault(message, *(value[lane] if np.ndim(value) else value for value in values))


def _scalar_minimum(a: Any, b: Any) -> Any:
    return a if a < b or a != a else b


def _scalar_maximum(a: Any, b: Any) -> Any:
    return a if a > b or a != a else b


def _truncating(a: int, b: int) -> int:
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _shift_left(a: int, b: int, bits: int) -> int:
    return a << b if 0 <= b < bits else 0


def _shift_right(a: int, b: int, bits: int) -> int:
    return a >> (b if 0 <= b < bits else bits)  # at the width, the sign of a signed integer and 0 of an unsigned one


_INTEGER: dict[str, Function] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _truncating,
    "FloorDiv": lambda a, b: a // b if b else 0,
    "Mod": lambda a, b: a % b if b else 0,
    "Rem": lambda a, b: a - b * _truncating(a, b) if b else 0,
    "Min": min,
    "Max": max,
    "BitAnd": lambda a, b: a & b,
    "BitOr": lambda a, b: a | b,
    "BitXor": lambda a, b: a ^ b,
}


class _Scalar:
    """Finds the Python function of an operation for a type; the same one each time."""

    @staticmethod
    def select(cond: Any, a: Any, b: Any) -> Any:
        return a if cond else b

    @staticmethod
    def select_lanes(cond: Any, a: Any, b: Any) -> Any:
        return np.where(cond, a, b)

    @staticmethod
    @functools.cache
    def wrapping(dtype: DType) -> Function:
        """An integer wrapped to a type."""
        low, high, mask = int(dtype.min), int(dtype.max), (1 << dtype.width) - 1

        def wrap(value: int) -> int:
            return value if low <= value <= high else ((value - low) & mask) + low

        return wrap

    @staticmethod
    @functools.cache
    def operator(name: str, dtype: DType, lanes: int) -> Function:
        array = meaning.OPERATORS[name]
        if lanes > 1:
            return array
        if dtype.is_int and name in ("Shl", "Shr"):
            shift, wrap, bits = _shift_left if name == "Shl" else _shift_right, _Scalar.wrapping(dtype), dtype.bits
            return lambda a, b: wrap(shift(a, b, bits))
        if dtype.is_int and name in _INTEGER:
            exact, fit = _INTEGER[name], _Scalar.wrapping(dtype)
            return lambda a, b: fit(exact(a, b))
        if dtype.is_float and name in ("Min", "Max"):
            return _scalar_minimum if name == "Min" else _scalar_maximum
        if dtype.is_bool:
            return lambda a, b: bool(array(np.asarray(a, np.bool_), np.asarray(b, np.bool_)))
        return lambda a, b: np.asarray(array(a, b))[()]

    @staticmethod
    @functools.cache
    def intrinsic(fn: Intrinsic, dtype: DType, lanes: int) -> Function:
        result, compute = fn.result_dtype(dtype), fn.meaning
        if lanes > 1:
            return lambda *args: np.asarray(compute(*args)).astype(result.numpy)
        if not dtype.is_float and (result.is_float or result.code is not None):
            return lambda *args: np.asarray(compute(*[np.asarray(a, dtype.numpy) for a in args]))[()]
        if not dtype.is_float:
            return lambda *args: (
                np.asarray(compute(*[np.asarray(a, dtype.numpy) for a in args])).astype(result.numpy).item()
            )
        if result.is_bool:
            return lambda *args: bool(compute(*args))
        if result.is_int:
            return lambda *args: np.asarray(compute(*args)).item()
        kind = result.numpy.type

        def scalar(*args: Any) -> Any:
            value = compute(*args)
            return value if type(value) is kind else np.asarray(value).astype(result.numpy)[()]

        return scalar

    @staticmethod
    @functools.cache
    def ramp(dtype: DType, count: int) -> Function:
        steps = np.arange(count).astype(dtype.numpy)
        return lambda base, stride: np.asarray(base, dtype.numpy) + steps * np.asarray(stride, dtype.numpy)

    @staticmethod
    @functools.cache
    def broadcast(dtype: DType, count: int) -> Function:
        return lambda value: np.full(count, value, dtype.numpy)


def wraps(e: Expr) -> bool:
    """Whether a node is a sum, a difference or a product of single integers."""
    return isinstance(e, Add | Sub | Mul) and e.lanes == 1 and e.dtype.is_int


def inside_sums(order: Sequence[Expr]) -> set[Expr]:
    """Those that only others of these read, which wrap to the same where they do not wrap themselves."""
    read = {child for node in order if not wraps(node) for child in node.children()}
    return {node for node in order if wraps(node) and node.dtype.code is None and node not in read}


class _Conversions:
    """Finds the Python function of a cast between two types."""

    @staticmethod
    @functools.cache
    def cast(source: DType, to: DType, lanes: int) -> Function:
        if lanes > 1:
            return lambda a: meaning.convert(np.asarray(a, source.numpy), to)
        if to.is_bool:
            return lambda a: bool(meaning.widened(np.asarray(a)) != 0)
        if to.code is not None:
            return lambda a: meaning.convert(np.asarray(a, source.numpy), to)[()]
        if to.is_int and not source.is_float:
            wrap = _Scalar.wrapping(to)
            return lambda a: wrap(int(a))
        if to.is_int and source.code is None:
            return _saturating(to)
        if to.is_int:
            return lambda a: meaning.convert(np.asarray(a, source.numpy), to).item()
        return _to_float(source, to)


def _saturating(to: DType) -> Function:
    """A float as an integer: towards zero, one beyond the range as its end, NaN as 0."""
    low, high = int(to.min), int(to.max)
    least, most = float(low), float(high)  # of 64 bits, `most` is one beyond the range

    def cast(a: Any) -> int:
        value = float(a)
        if least < value < most:
            return int(value)
        return 0 if value != value else low if value <= least else high

    return cast


def _to_float(source: DType, to: DType) -> Function:
    """A number as a float. What a scalar of NumPy is made of is rounded once, where f64 holds it exactly."""
    kind, given = to.numpy.type, (source.numpy.type,) if source.is_float else (int, bool)

    def convert(a: Any) -> Any:
        return meaning.convert(np.asarray(a, source.numpy), to)[()]

    once = to.bits == 64 or source.bits <= 32 <= to.bits or (source.is_float and (source.bits <= 32 or to.bits == 32))
    if source is bf16 and once:  # a type that NumPy knows from without, and converts slowly
        return lambda a: kind(float(a)) if type(a) in given else convert(a)
    if source.code is None and once:
        return lambda a: kind(a) if type(a) in given else convert(a)
    return convert


SCALAR = _Scalar()
CONVERSIONS = _Conversions()
