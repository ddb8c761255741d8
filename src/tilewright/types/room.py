"""Where arrays get their memory from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

Room = Callable[[tuple[int, ...], np.dtype[Any]], Array]
"""Gives an array of a shape and an element type, with any contents, as `np.empty` does."""

LINE = 64
"""Arrays begin at multiples of so many bytes, a cache line."""

PAGE = 4096
"""Bytes of a page. Addresses that differ by multiples of it are in the same set of a first cache."""


def at_line(shape: tuple[int, ...], dtype: np.dtype[Any], behind: int = 0, unit: int = LINE) -> Array:
    """An array as of `np.empty` that begins at a cache line, so that each vector that is loaded from it is in one: so
    many bytes `behind` a multiple of `unit`."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + unit, np.uint8)
    start = (behind - memory.ctypes.data) % unit
    return memory[start : start + size].view(dtype).reshape(shape)


def copy_at_line(array: Array, behind: int = 0, unit: int = LINE) -> Array:
    """A copy of an array, row-major, where `at_line` puts it."""
    copy = at_line(array.shape, array.dtype, behind, unit)
    copy[...] = array
    return copy


class Scratch:
    """Room for the arrays of one task after the other: `begin` takes back what was given. The system fills fresh pages
    with zeros, which takes as long as to copy as much."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._end = 0

    def begin(self) -> Scratch:
        """The same memory for the next task: arrays given before are not read any more."""
        self._end = 0
        return self

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        size = math.prod(shape) * dtype.itemsize
        if self._end + size > len(self._memory):
            self._memory, self._end = at_line((max(size, 2 * len(self._memory)),), np.dtype(np.uint8)), 0
        start, self._end = self._end, -(-(self._end + size) // LINE) * LINE
        return self._memory[start : start + size].view(dtype).reshape(shape)
