"""What callers pass becomes arrays that compiled code can read: contiguous, aligned, of the machine's byte order.

Arrays must have the element type; Python numbers and lists are taken where every one of them fits it exactly. What is
refused says what came, what was expected and how to convert it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.report.errors import UserError
from tilewright.report.quantities import counted
from tilewright.runtime.interface import Port

Array = np.ndarray[Any, Any]


def to_array(port: Port, value: Any) -> Array:
    """A contiguous array of the port's element type: `value` itself without a copy where it is one already."""
    wanted = port.dtype.numpy
    array = _as_array(port, value)
    if array.dtype != wanted and not isinstance(value, np.ndarray | np.generic):
        array = _exactly(port, array)
    if array.dtype != wanted:
        raise UserError(
            f"input {port.label} has the wrong element type",
            why=f"an array of {_element(array, wanted)} came, and {port} was expected",
            fix=f"convert it: np.asarray(…, {str(wanted)!r})",
        )
    return np.require(array, requirements=("C", "A"))


def mapping_given(feeds: Mapping[Any, Any]) -> UserError:
    """The error for inputs by name where arrays are taken in order."""
    first = next(iter(map(str, feeds)), "x")
    return UserError(
        "a call takes arrays, in order or by keyword",
        why=f"a {type(feeds).__name__} came, of {counted(len(feeds), 'name')}",
        fix=f'write exe.run({{"{first}": …}}), which takes inputs and returns outputs by name',
    )


def _as_array(port: Port, value: Any) -> Array:
    if isinstance(value, Mapping):
        raise mapping_given(value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise UserError(
            f"input {port.label} is an array with masked elements",
            why="compiled code would read the masked elements too",
            fix="choose the values to read there: array.filled(0)",
        )
    try:
        return np.asarray(value)
    except Exception as error:
        raise UserError(
            f"input {port.label} is no array",
            why=f"a {type(value).__name__} came, of which NumPy makes none: {error}",
            fix=f"pass an array for {port}",
        ) from error


def _exactly(port: Port, array: Array) -> Array:
    """Python numbers as the port's element type, if none of them changes."""
    wanted = port.dtype.numpy
    if array.dtype.kind not in "biuf":
        return array
    with np.errstate(all="ignore"):
        converted = array.astype(wanted)
        back = converted.astype(array.dtype)
        same = back == array if port.dtype.code is not None else (converted == array) & (back == array)
    if port.dtype.is_float:
        same |= np.isnan(array) & np.isnan(converted)
    if not bool(np.all(same)):
        first = array[~same].reshape(-1)[0]
        raise UserError(
            f"input {port.label} has numbers that {port.dtype} does not hold",
            why=f"{first!s} would become {converted[~same].reshape(-1)[0]!s}",
            fix=f"round them: np.asarray(…).astype({str(wanted)!r})",
        )
    return converted


def _element(array: Array, wanted: np.dtype[Any]) -> str:
    if array.dtype.newbyteorder() == wanted:
        return f"{dtypes.from_numpy(wanted)} in the byte order of another machine"
    if array.dtype.kind == "O":
        return "Python objects"
    return str(dtypes.from_numpy(array.dtype) or array.dtype)
