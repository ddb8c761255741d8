"""Pages of mapped files, which count as memory of a process only while it looks at them.

    release(array)                          what was read of a mapped file need not stay in memory
    with store.spill(1 << 30) as spill:
        kept = spill.keep(array)            the same numbers, in a file without a name; `array` may be dropped
    spilled(kept)                           where in which file; an entry that holds it there can be made of the file

    trim()                                  what was freed goes back to the system

Released pages come back when they are read again; the system keeps what it can in its file cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap as memory_map
import os
import threading
from collections.abc import Iterator
from mmap import ACCESS_READ, PAGESIZE, mmap
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

ALIGNMENT = 64
"""Arrays in files start at a multiple of this many bytes: a cache line, and the widest vector."""

SPILL_START = 1 << 18
"""The bytes in front of spilled arrays. What an entry says of itself is shorter in all but the largest models."""

_COPIED_BYTES = 1 << 20
"""So many bytes of an array that lies otherwise are copied at a time: they stay in a cache on their way."""

_DONTNEED: int | None = getattr(memory_map, "MADV_DONTNEED", None)
"""The advice; None on systems that take none."""

Array = np.ndarray[Any, Any]


def release(data: object) -> None:
    """Releases the pages of a mapped file that an array, or a view of bytes, refers to from this process's memory.
    Nothing happens to memory of another kind, nor to mappings that can be written, whose pages may have no other
    place."""
    mapped = mapping_of(data)
    if mapped is None or _DONTNEED is None:
        return
    whole = np.frombuffer(mapped, np.uint8)
    part = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)  # type: ignore[call-overload]
    start = _address(part) - _address(whole)
    first, last = -(-start // PAGESIZE) * PAGESIZE, (start + part.nbytes) // PAGESIZE * PAGESIZE
    if part.flags.c_contiguous and first < last:
        mapped.madvise(_DONTNEED, first, last - first)


def trim() -> None:
    """Returns freed memory to the system where the allocator keeps it in an arena for each thread (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def mapping_of(data: object) -> mmap | None:
    """The mapping that all of an array's memory is, where it is one that is only read."""
    while not isinstance(data, mmap):
        if isinstance(data, np.ndarray):
            data = data.base
        elif isinstance(data, memoryview):
            data = data.obj
        else:
            return None
    return data if memoryview(data).readonly else None


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class SpillMap(mmap):
    """A file of spilled arrays in memory. It has its `file` until somebody takes it."""

    file: BinaryIO | None = None

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()

    def take(self) -> BinaryIO | None:
        """The file, for one who writes around the arrays in it and gives it a name; None from then on."""
        file, self.file = self.file, None
        return file


class Spill:
    """Room for arrays in a file, which is gone when the last of them is. Threads may keep arrays at the same time. In
    front of the arrays there is room for what an entry of the store has there; they follow one another as there."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        """Raises OSError where the file cannot be so large."""
        os.ftruncate(file.fileno(), SPILL_START + size)
        self._file = file
        self._map = SpillMap(file.fileno(), SPILL_START + size, access=ACCESS_READ)
        self._end = SPILL_START
        self._lock = threading.Lock()

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No more arrays are kept; those that are stay, and the file with them."""
        self._map.file = self._file

    def keep(self, array: Array) -> Array:
        """The array, read-only, in the file; the array itself where it has no room there."""
        size = array.nbytes
        with self._lock:
            start = self._end
            if not size or start + size > len(self._map):
                return array
            self._end += rounded(size)
        try:
            at = start
            for data in _parts(array):
                _write(self._file.fileno(), data, at)
                at += len(data)
        except OSError:  # the disk is full
            return array
        return np.frombuffer(self._map, array.dtype, array.size, start).reshape(array.shape)


def rounded(size: int) -> int:
    """The bytes that an array of so many takes in a spill."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def spilled(data: object) -> tuple[SpillMap, int] | None:
    """The file that an array, or a view of bytes, was kept in, and at what place; None for those that were not."""
    mapped = mapping_of(data)
    if not isinstance(mapped, SpillMap):
        return None
    part = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)  # type: ignore[call-overload]
    return mapped, _address(part) - _address(np.frombuffer(mapped, np.uint8))


def _parts(array: Array) -> Iterator[memoryview]:
    """The bytes of an array in row-major order. Those of a view that lies otherwise are copied, few at a time."""
    if array.flags.c_contiguous:
        yield array.reshape(-1).view(np.uint8).data
        return
    copy = np.empty(max(_COPIED_BYTES, array.itemsize), np.uint8)
    for part in _small(array, len(copy)):
        held = copy[: part.nbytes]
        held.view(array.dtype).reshape(part.shape)[...] = part
        yield held.data


def _small(array: Array, size: int) -> Iterator[Array]:
    """The array in parts of at most `size` bytes, in row-major order."""
    if array.nbytes <= size:
        yield array
        return
    count = size * len(array) // array.nbytes
    for start in range(0, len(array), max(count, 1)):
        part = array[start : start + max(count, 1)]
        yield from _small(part[0], size) if part.nbytes > size else (part,)


def _write(file: int, data: memoryview, at: int) -> None:
    while data:
        count = os.pwrite(file, data, at)
        data, at = data[count:], at + count
