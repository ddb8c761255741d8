"""The weights of a library as bytes that follow one another: each array once, at a multiple of ALIGNMENT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.store.checksum import checksum
from tilewright.store.pages import ALIGNMENT, release

Array = np.ndarray[Any, Any]

_PART_BYTES = 1 << 24
_MODULUS = 1 << 64


class Weights:
    """The arrays as they come. Nothing is copied."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self.size = 0
        self._places: dict[tuple[int, bytes], int] = {}

    def place(self, array: Array) -> int:
        """Where the bytes of an array begin."""
        data = array.reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")
        key = array.nbytes, checksum(data)
        release(data)
        if key not in self._places:
            gap = -self.size % ALIGNMENT
            self._places[key] = self.size + gap
            self.parts += [bytes(gap), data]
            self.size += gap + array.nbytes
        return self._places[key]

    def places(self, arrays: Sequence[Array]) -> list[int]:
        """Where the bytes of arrays begin."""
        return [self.place(array) for array in arrays]

    def close(self) -> None:
        """Ends them at a multiple of ALIGNMENT, and not before the first."""
        gap = -self.size % ALIGNMENT if self.size else ALIGNMENT
        self.parts.append(bytes(gap))
        self.size += gap


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a library knows of the file of its weights: bytes and the two sums of native/weights.py."""

    bytes: int
    first: int
    second: int


def stamp_of(weights: Weights) -> Stamp:
    """The stamp of closed weights."""
    first = second = 0
    for words in _words_of(weights.parts):
        count = len(words)
        behind = np.arange(count, 0, -1, dtype=np.uint64)
        second = (second + count * first + int(np.sum(words * behind, dtype=np.uint64))) % _MODULUS
        first = (first + int(np.sum(words, dtype=np.uint64))) % _MODULUS
    return Stamp(weights.size, first, second)


def _words_of(parts: Sequence[bytes | memoryview]) -> Iterator[Array]:
    """All parts as 64-bit words, some at a time: a gap ends each array at a word."""
    left = b""
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), _PART_BYTES):
            content = left + bytes(view[start : start + _PART_BYTES])
            whole = len(content) // 8 * 8
            left = content[whole:]
            if whole:
                yield np.frombuffer(content[:whole], np.uint64)
        release(part)
