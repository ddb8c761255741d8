"""Files of hundreds of megabytes, written as the system likes it.

    write_parts(file, parts)                bytes that follow one another, from the beginning of an empty file
    write_parts(file, parts, 4096)          from a place of it

Room is asked for at once; each write ends where a large page of the file does, so that the system can keep the file in
such, and map it in such; and the disk begins with a block while the next is copied, so that little is left to wait for
when the file must be on the disk. On systems without these calls it is an ordinary write.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from .pages import release

LARGE_PAGE: Final = 1 << 21
"""The large page of most processors: blocks end at multiples of it."""

_VIEWS: Final = 512
"""Parts that one call writes, at most: systems take 1,024."""

_BEGIN_WRITING: Final = 2
"""Linux's SYNC_FILE_RANGE_WRITE."""

Bytes = bytes | memoryview


_NOWHERE: Final[Mapping[int, int]] = MappingProxyType({})


def write_parts(file: BinaryIO, parts: Sequence[Bytes], start: int = 0, inside: Mapping[int, int] = _NOWHERE) -> None:
    """Writes parts one after another into a file, from `start`, and releases the pages of those that are in mapped
    files. Parts that are in the file at their place already, as `inside` says by their `id`, stay; they are not empty.
    Raises OSError where there is no room."""
    if not hasattr(os, "pwritev"):
        file.seek(start)
        file.writelines(parts)
        return
    file.flush()
    size = sum(memoryview(part).nbytes for part in parts)
    file.seek(_Blocks(file.fileno(), start, size).write(parts, inside))


class _Blocks:
    """A file as it is written: views that wait for their block to be full, and parts that are released with it."""

    def __init__(self, file: int, start: int, size: int) -> None:
        self._file, self._at = file, start
        self._views: list[memoryview] = []
        self._waiting = 0
        if size > LARGE_PAGE:
            _reserve(file, start + size)

    def write(self, parts: Sequence[Bytes], inside: Mapping[int, int]) -> int:
        """Writes all parts but those inside; where the last one ends."""
        behind: list[Bytes] = []
        for part in parts:
            view = memoryview(part).cast("B")
            if view and inside.get(id(part)) == self._at + self._waiting:
                self._flush(behind)
                self._at += len(view)
                continue
            while view:
                room = LARGE_PAGE - (self._at + self._waiting) % LARGE_PAGE
                self._views.append(view[:room])
                self._waiting += len(view[:room])
                view = view[room:]
                if (self._at + self._waiting) % LARGE_PAGE == 0 or len(self._views) == _VIEWS:
                    self._flush(behind)
            behind.append(part)
        self._flush(behind)
        return self._at

    def _flush(self, behind: list[Bytes]) -> None:
        """Writes what waits; the parts `behind` are wanted no longer."""
        start = self._at
        views = self._views
        while views:
            count = os.pwritev(self._file, views, self._at)
            self._at += count
            while views and count >= len(views[0]):
                count -= len(views.pop(0))
            if count:
                views[0] = views[0][count:]
        self._waiting = 0
        _begin_writing(self._file, start, self._at - start)
        for part in behind:
            release(part)
        behind.clear()


@cache
def _system() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _reserve(file: int, size: int) -> None:
    """Room for so many bytes, all at once; OSError where the disk has none. Nothing where the system cannot."""
    with contextlib.suppress(AttributeError):
        none = _system().fallocate(file, 0, ctypes.c_int64(0), ctypes.c_int64(size))
        if none and ctypes.get_errno() in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _begin_writing(file: int, start: int, size: int) -> None:
    """Has the disk begin with bytes of a file, and waits for nothing."""
    with contextlib.suppress(AttributeError):
        _system().sync_file_range(file, ctypes.c_int64(start), ctypes.c_int64(size), ctypes.c_uint(_BEGIN_WRITING))
