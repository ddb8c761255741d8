"""The address of an array's first element, fast: calls are frequent, and asking an array takes microseconds.

NumPy's C interface fixes that an array object begins with Python's object header, followed by the data pointer. Whether
this interpreter keeps to that is tried once, on import; where it does not, arrays are asked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_HEADER = object.__basicsize__
_at = ctypes.c_void_p.from_address


def _ask(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _read(array: Array) -> int | None:
    return _at(id(array) + _HEADER).value


def _is_laid_out() -> bool:
    """Whether the pointer is where it should be, tried on arrays of several kinds."""
    whole = np.arange(24.0).reshape(2, 3, 4)
    return all(_read(a) == _ask(a) for a in (whole, whole[1:], whole[:, ::-1], whole.T, np.ones(()), np.ones((2, 0))))


ADDRESS = f"at(id({{}}) + {_HEADER}).value" if _is_laid_out() else "ask({})"
"""The Python of an array's address, with its name to be put in, for code that has `ADDRESS_SCOPE`."""

ADDRESS_SCOPE: dict[str, Callable[..., Any]] = {"at": _at, "ask": _ask}
