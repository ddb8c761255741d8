"""A checksum of files as fast as memory: what disks and careless copying do to gigabytes is found in milliseconds.

The bytes are cut into pages of 512 words of 64 bits, the last filled up with zeros. A page counts as the sum of its
words, each times a fixed odd number of its place, modulo 2^64; the checksum is the SHA-256 of all these sums and of the
number of bytes. One altered word changes its page's sum for certain, since odd numbers have inverses there; words that
change places, or several altered ones, go unnoticed once in 2^64. It keeps out accidents, not intent: who can write a
file can write its checksum, too.
"""

from __future__ import annotations

import hashlib
import threading
from functools import cache
from typing import Any

import numpy as np

PAGE = 4096
"""Bytes of a page."""

_TURN = 256 * PAGE
"""Bytes that are summed at a time: what is read lies in the nearest caches."""

_SHARED = 32 << 20
"""So many bytes are summed by two threads: one does not read as fast as memory gives, nor while pages are mapped."""


@cache
def _weights() -> np.ndarray[Any, np.dtype[np.uint64]]:
    """An odd number for each word of a page."""
    return np.frombuffer(hashlib.shake_128(b"tilewright page").digest(PAGE), "<u8") | np.uint64(1)


class Checksum:
    """The checksum of bytes that come in parts: `update` with each, then `digest`."""

    def __init__(self) -> None:
        self._state = hashlib.sha256()
        self._left = b""
        self._length = 0

    def update(self, part: bytes | memoryview) -> None:
        """Takes further bytes (contiguous)."""
        view = memoryview(part).cast("B")
        self._length += len(view)
        if self._left:
            missing = PAGE - len(self._left)
            self._left += view[:missing]
            view = view[missing:]
            if len(self._left) < PAGE:
                return
            self._pages(memoryview(self._left))
            self._left = b""
        whole = len(view) // PAGE * PAGE
        self._pages(view[:whole])
        self._left = bytes(view[whole:])

    def digest(self) -> bytes:
        """The 32 bytes of the checksum of all parts, one after the other."""
        state = self._state.copy()
        if self._left:
            state.update(_sums(memoryview(self._left.ljust(PAGE, b"\0"))))
        state.update(self._length.to_bytes(8, "little"))
        return state.digest()

    def _pages(self, pages: memoryview) -> None:
        if len(pages) < _SHARED:
            self._state.update(b"".join(_turns(pages)))
            return
        middle = len(pages) // (2 * PAGE) * PAGE
        behind: list[bytes] = []
        other = threading.Thread(target=lambda: behind.extend(_turns(pages[middle:])))
        other.start()
        before = _turns(pages[:middle])
        other.join()
        self._state.update(b"".join([*before, *behind]))


def checksum(data: bytes | memoryview) -> bytes:
    """The checksum of contiguous bytes."""
    total = Checksum()
    total.update(data)
    return total.digest()


def _turns(pages: memoryview) -> list[bytes]:
    """The sums of whole pages, turn by turn."""
    return [_sums(pages[start : start + _TURN]) for start in range(0, len(pages), _TURN)]


def _sums(pages: memoryview) -> bytes:
    """The sums of whole pages, little-endian."""
    words = np.frombuffer(pages, "<u8").reshape(-1, PAGE // 8)
    sums: bytes = (words @ _weights()).astype("<u8").tobytes()
    return sums
