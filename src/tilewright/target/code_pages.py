"""Machine code in memory: pages that are written first and then executed, never both at a time.

    pages = CodePages(size)
    pages.write(offset, content)
    pages.seal(offset, size, executable=True)
    pages.address + offset

The memory is given back with the object: whoever calls into it keeps it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

from ..report.errors import InternalError

ALIGNMENT = 1 << 16
"""Parts that are sealed begin at multiples of this: no system that we load code on has larger pages."""

_EXECUTE = 4
_READ = 1


class CodePages:
    """`size` bytes of zeros at `address`, a multiple of the page size, which may be written until they are sealed."""

    def __init__(self, size: int) -> None:
        """Raises OSError where there is no memory."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, max(size, 1), flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def write(self, offset: int, content: bytes | memoryview) -> None:
        """Puts bytes into a part that is not sealed. Raises InternalError for a place outside."""
        if not 0 <= offset <= len(self._memory) - len(content):
            raise InternalError("code was written outside its pages", why=f"{len(content)} bytes at {offset}")
        self._memory[offset : offset + len(content)] = bytes(content)

    def seal(self, offset: int, size: int, *, executable: bool) -> None:
        """Ends writing to the pages of a part, which begins at a page: they may be read and, if `executable`, run.

        On AArch64 Linux makes the instruction cache see what was written when pages become executable.
        Raises InternalError for a place outside, OSError where the system refuses.
        """
        page = mmap.PAGESIZE
        if offset % page or not 0 <= offset <= offset + size <= len(self._memory):
            raise InternalError("pages of code were sealed that are not there", why=f"{size} bytes at {offset}")
        if size == 0:
            return
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        length = -(-size // page) * page
        if protect(self.address + offset, length, _READ | (_EXECUTE if executable else 0)):
            code = ctypes.get_errno()
            if code in (errno.EACCES, errno.EPERM):
                raise OSError(code, "the system lets no memory become executable")
            raise OSError(code, os.strerror(code))

    def stay(self) -> None:
        """Keeps the memory for as long as the process lives, even while Python ends and other threads still run."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))
