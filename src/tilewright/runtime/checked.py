"""Calls of programs that check their memory (TILEWRIGHT_CHECK=1).

Arguments, constants and results are copied to memory between guard pages, which nobody may touch. A call runs twice:
with arrays and buffers that end where a guard begins, and that begin where one ends. What they hold before they are
written differs, too: all bits are ones, then zeros. So an access outside ends the process where it happens, a failed
check is a RuntimeFault, and results that differ were read where nothing was written, or depend on addresses.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from tilewright.report.errors import InternalError, RuntimeFault
from tilewright.runtime.constant_table import addresses_of

Array = np.ndarray[Any, Any]

_READ = 1
"""PROT_READ of POSIX."""


class Guarded:
    """Makes arrays between two pages that may be neither read nor written. Where the system has no such protection,
    memory of their own."""

    def array(self, shape: Sequence[int], dtype: np.dtype[Any], at_end: bool) -> Array:
        """An array that ends where a forbidden page begins, or that begins where one ends; without elements, too. Its
        bits are ones in the first case, zeros in the second. Raises RuntimeFault where there is no memory."""
        size, page = math.prod(shape) * dtype.itemsize, mmap.PAGESIZE
        inner = -(-max(size, 1) // page) * page
        memory = _pages(inner + 2 * page)
        found: Array = np.ndarray(shape, dtype, memory, page + (inner - size if at_end else 0))
        if at_end and size:
            found.reshape(-1).view(np.uint8)[:] = 0xFF
        start = np.frombuffer(memory, np.uint8).ctypes.data
        for place in (start, start + page + inner):
            _protect(place, page, 0)
        return found

    def copy(self, array: Array, at_end: bool, *, writes: bool = False) -> Array:
        """A copy of an array between such pages, which nobody may write unless it `writes`."""
        made = self.array(array.shape, array.dtype, at_end)
        made[...] = array
        if not writes and made.nbytes:
            page = mmap.PAGESIZE
            start = made.ctypes.data // page * page
            _protect(start, -(-(made.ctypes.data + made.nbytes - start) // page) * page, _READ)
        return made

    def arena(self, size: int, at_end: bool) -> Array:
        """An arena whose program protects pages of it, its first word said (lower/memory/guard_buffers.py)."""
        memory: Array = np.frombuffer(_pages(size), np.uint8)
        if at_end:
            memory[:] = 0xFF
        memory[:8].view(np.int64)[0] = at_end
        return memory


def _pages(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size)
    except (OSError, OverflowError, ValueError):
        raise RuntimeFault(
            "there is not enough memory for the call", why=f"the system gives no {size:,} bytes between guard pages"
        ) from None


def _protect(place: int, size: int, rights: int) -> None:
    """Raises RuntimeFault where the system refuses: it has a limit on how many parts memory may have."""
    if sys.platform != "win32" and _libc().mprotect(ctypes.c_void_p(place), ctypes.c_size_t(size), rights):
        raise RuntimeFault("the system gives no guard pages", why=f"for {size:,} bytes, errno {ctypes.get_errno()}")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class GuardedConstants:
    """The constants of a program, copied twice: their ends, and their beginnings, at guards. `tables` are the arrays of
    their addresses by whether their ends are."""

    def __init__(self, constants: Sequence[Array]) -> None:
        self._held = {end: [Guarded().copy(a, end) for a in constants] for end in (True, False)}
        self.tables = {end: addresses_of(held) for end, held in self._held.items()}

    def at(self, at_end: bool) -> int:
        """The address of a table."""
        return ctypes.addressof(self.tables[at_end])


def require_same(names: Sequence[str], first: Sequence[Array], second: Sequence[Array]) -> None:
    """Raises InternalError, with the names, where results differ between two runs of a call in any bit."""
    wrong = list(_differing(names, first, second))
    if wrong:
        raise InternalError(
            f"{', '.join(wrong)} {'differs' if len(wrong) == 1 else 'differ'} between two runs of one call",
            why="the program reads what nothing was written to, or its results depend on where buffers lie",
            fix="report it with the model and the inputs",
        )


def _differing(names: Sequence[str], first: Sequence[Array], second: Sequence[Array]) -> Iterator[str]:
    for name, one, other in zip(names, first, second, strict=True):
        if one.shape != other.shape or one.tobytes() != other.tobytes():
            yield name
