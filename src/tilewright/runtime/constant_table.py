"""Where the code of a program finds its constants: a table of their addresses.

Models are files whose tensors begin at any byte, and NumPy's arrays begin 16 bytes behind a cache line. A vector that
lies across two lines takes twice as long to load from a cache. Where a constant begins in a page counts, too: loads
wait for stores, and drive out of the first cache what was loaded, at the same place of another page. So a table refers
to copies in the right place. Large constants come from memory, which takes as long either way, and those in mapped
files, which other processes share, stay there unless they begin inside a line.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.store.pages import mapping_of
from tilewright.types.room import LINE, PAGE, copy_at_line

Array = np.ndarray[Any, Any]

MOST_COPIED = 1 << 20
"""Bytes of the largest constant that is copied to begin at a cache line, about what a core's second cache keeps between
two calls."""

BEHIND = 1664
"""Bytes behind a page's start at which copies of a page and more begin: halfway between the arrays of callers, which
begin with a page where they are large, and results, which begin BESIDE bytes after those (runtime/reuse.py). Depthwise
convolutions whose channels fill a page or half of one take 1.1 to 1.4 times as long where two of the three begin at the
same place of a page (docs/findings.md)."""


class ConstantTable:
    """The addresses of constants, in order, at `address` for as long as this object is there."""

    __slots__ = ("_addresses", "_held", "address")

    def __init__(self, constants: Sequence[Array]) -> None:
        self._held = tuple([placed(array) for array in constants])
        self._addresses = addresses_of(self._held)
        self.address = ctypes.addressof(self._addresses)


def addresses_of(arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
    """Where arrays begin, as a program takes its constants."""
    places = [array.ctypes.data for array in arrays]
    return (ctypes.c_void_p * max(len(places), 1))(*places)


def placed(array: Array) -> Array:
    """The array where a program reads it, row-major: itself or, where it does not lie so, a copy."""
    behind, unit = (BEHIND, PAGE) if array.nbytes >= PAGE else (0, LINE)
    first = array.ctypes.data
    lies_well = first % LINE == 0 if mapping_of(array) is not None else first % unit == behind
    if array.flags.c_contiguous and (lies_well or array.nbytes > MOST_COPIED):
        return array
    return copy_at_line(array, behind, unit)
