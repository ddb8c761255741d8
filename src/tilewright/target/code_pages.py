"""Machine code in memory: pages that are written first and then executed, never both at a time.

    pages = CodePages(size)
    pages.write(offset, content)
    pages.seal(offset, size, executable=True)
    pages.address + offset

The memory is freed with the object, so a caller of the code keeps the object. While Python ends it stays, since threads
may still be in it. For systems with `mmap` and `mprotect` (POSIX).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from functools import cache
from typing import Any, Final

from ..report.errors import InternalError, RuntimeFault

ALIGNMENT: Final = 1 << 16
"""Parts that are sealed begin at multiples of this: no system that we load code on has larger pages."""

_FAILED: Final = ctypes.c_void_p(-1).value
_EXECUTABLE: Final = 4


class CodePages:
    """`size` bytes of zeros at `address`, the beginning of a page, which may be written until they are sealed."""

    def __init__(self, size: int) -> None:
        """Raises RuntimeFault where there is no memory."""
        self._size = max(size, 1)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        address = _system().mmap(None, self._size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if address == _FAILED:
            raise _fault()
        self.address: int = address
        self._end = weakref.finalize(self, _system().munmap, address, self._size)
        self._end.atexit = False

    def write(self, offset: int, content: bytes) -> None:
        """Puts bytes into a part that is not sealed. Raises InternalError for a place outside."""
        if not 0 <= offset <= self._size - len(content):
            raise InternalError("code was written outside its pages", why=f"{len(content)} bytes at {offset}")
        ctypes.memmove(self.address + offset, content, len(content))

    def seal(self, offset: int, size: int, *, executable: bool) -> None:
        """Ends writing to the pages of a part, which begins at a page: they may be read and, if `executable`, run.

        On AArch64 Linux makes the instruction cache see what was written when pages become executable.
        Raises InternalError for a place outside, RuntimeFault where the system refuses.
        """
        if offset % mmap.PAGESIZE or not 0 <= offset <= offset + size <= self._size:
            raise InternalError("pages of code were sealed that are not there", why=f"{size} bytes at {offset}")
        rights = mmap.PROT_READ | (_EXECUTABLE if executable else 0)
        if size and _system().mprotect(self.address + offset, size, rights):
            raise _fault()

    def stay(self) -> None:
        """Keeps the memory for as long as the process lives."""
        self._end.detach()


def _fault() -> RuntimeFault:
    return RuntimeFault(
        "there is no memory for machine code",
        why=f"the system says: {os.strerror(ctypes.get_errno())}",
        fix="let this program make memory executable, where a policy of the system forbids it",
    )


@cache
def _system() -> Any:
    """The functions of the system's library, with their types."""
    library = ctypes.CDLL(None, use_errno=True)
    place, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.restype = place
    library.mmap.argtypes = (place, size, number, number, number, ctypes.c_long)
    library.mprotect.argtypes = (place, size, number)
    library.munmap.argtypes = (place, size)
    return library
