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

_SHARED = 8 << 10
"""So many pages are summed by two threads: one does not read as fast as memory gives, nor while pages are mapped."""

_LEAST = 4 << 10
"""Pages that a thread takes at a time, at least."""


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
        """The 32 bytes of the checksum of all parts in order."""
        state = self._state.copy()
        if self._left:
            state.update(_Sums(memoryview(self._left.ljust(PAGE, b"\0"))).all())
        state.update(self._length.to_bytes(8, "little"))
        return state.digest()

    def _pages(self, pages: memoryview) -> None:
        self._state.update(_Sums(pages).all())


class PendingChecksum:
    """The checksum of contiguous bytes, computed in the background: if they are many, a thread begins at once to sum
    pages while the caller goes on; `digest` helps it, and waits."""

    def __init__(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        whole = len(view) // PAGE * PAGE
        self._sums, self._rest, self._length = _Sums(view[:whole]), view[whole:], len(view)

    def digest(self) -> bytes:
        """The 32 bytes of the checksum."""
        state = hashlib.sha256(self._sums.all())
        if self._rest:
            state.update(_Sums(memoryview(bytes(self._rest).ljust(PAGE, b"\0"))).all())
        state.update(self._length.to_bytes(8, "little"))
        return state.digest()


def checksum(data: bytes | memoryview) -> bytes:
    """The checksum of contiguous bytes."""
    return PendingChecksum(data).digest()


class _Sums:
    """The sums of whole pages. Where they are many, a thread sums from the end and the caller from the beginning. Each
    takes half of what is left at a time, so that they synchronise rarely.
    """

    def __init__(self, pages: memoryview) -> None:
        self._words = np.frombuffer(pages, "<u8").reshape(-1, PAGE // 8)
        self._begin, self._end = 0, len(self._words)
        self._sums = np.empty(self._end, "<u8")
        self._lock = threading.Lock()
        self._other: threading.Thread | None = None
        if self._end >= _SHARED:
            self._other = threading.Thread(target=self._work, args=(True,), daemon=True)
            self._other.start()

    def all(self) -> bytes:
        """The sums, little-endian."""
        self._work(False)
        if self._other is not None:
            self._other.join()
        return self._sums.tobytes()

    def _work(self, backward: bool) -> None:
        weights = _weights()
        while True:
            begin, end = self._take(backward)
            if begin == end:
                return
            np.matmul(self._words[begin:end], weights, out=self._sums[begin:end])

    def _take(self, backward: bool) -> tuple[int, int]:
        """Pages that the other thread does not sum; none where none are left."""
        with self._lock:
            left = self._end - self._begin
            count = min(left, max(left // 2, _LEAST))
            if backward:
                self._end -= count
                return self._end, self._end + count
            self._begin += count
            return self._begin - count, self._begin
