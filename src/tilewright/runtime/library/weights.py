"""The weights of a library as bytes that follow one another: each array once, at a multiple of ALIGNMENT."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from tilewright.store.checksum import checksum
from tilewright.store.pages import ALIGNMENT, release

Array = np.ndarray[Any, Any]

_PART_BYTES = 1 << 20
_MODULUS = 1 << 64
_OFTEN = np.arange(512, 0, -1, dtype=np.uint64)
"""How often each word of a row counts in the sums after each word."""

_SAMPLE = 4096
"""Bytes at either end by which arrays are told apart."""


@dataclass
class _Placed:
    """Bytes among the weights, and where they begin."""

    data: memoryview
    place: int

    @cached_property
    def checksum(self) -> bytes:
        """That of the bytes, which are read for it."""
        found = checksum(self.data)
        release(self.data)
        return found


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a library knows of the file of its weights: bytes and the two sums of native/weights.py."""

    bytes: int
    first: int
    second: int


class Weights:
    """The arrays as they come. Nothing is copied, and little is read: only arrays that begin and end alike are
    compared, by their checksums."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self.size = 0
        self._stamp: Stamp | None = None
        self._alike: dict[tuple[int, bytes, bytes], list[_Placed]] = {}

    def place(self, array: Array) -> int:
        """Where the bytes of an array begin."""
        data = array.reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")
        one = _Placed(data, self.size + -self.size % ALIGNMENT)
        alike = self._alike.setdefault((array.nbytes, bytes(data[:_SAMPLE]), bytes(data[-_SAMPLE:])), [])
        for other in alike:
            if other.checksum == one.checksum:
                return other.place
        alike.append(one)
        self.parts += [bytes(one.place - self.size), data]
        self.size = one.place + array.nbytes
        return one.place

    def places(self, arrays: Sequence[Array]) -> list[int]:
        """Where the bytes of arrays begin."""
        return [self.place(array) for array in arrays]

    def close(self) -> None:
        """Ends them at a multiple of ALIGNMENT, and not before the first."""
        gap = -self.size % ALIGNMENT if self.size else ALIGNMENT
        self.parts.append(bytes(gap))
        self.size += gap

    def stamp(self) -> Stamp:
        """The stamp of closed weights, which are read for it, once."""
        if self._stamp is None:
            self._stamp = self._read_stamp()
        return self._stamp

    def _read_stamp(self) -> Stamp:
        first = second = 0
        for words in _words_of(self.parts):
            total, behind = _sums(words)
            first, second = (first + total) % _MODULUS, (second + len(words) * first + behind) % _MODULUS
        return Stamp(self.size, first, second)

    def inside(self, start: int) -> dict[int, int]:
        """Where parts are in a file that has the weights from `start` on, by their `id`. Of parts that are one object,
        it knows one."""
        sizes = [memoryview(part).nbytes for part in self.parts]
        return dict(zip(map(id, self.parts), accumulate(sizes, initial=start), strict=False))


def lay_out(programs: Iterable[Sequence[Array]]) -> tuple[Weights, list[list[int]]]:
    """The closed weights of programs with these constants, and where each constant of each program begins."""
    weights = Weights()
    places = [weights.places(constants) for constants in programs]
    weights.close()
    return weights, places


def _sums(words: Array) -> tuple[int, int]:
    """The sum of words, and that of the sums after each of them, in which a word counts once for itself and once for
    each word behind it: those of its row, and all of the rows behind."""
    if len(words) % len(_OFTEN):
        words = np.concatenate([np.zeros(-len(words) % len(_OFTEN), np.uint64), words])
    rows = words.reshape(-1, len(_OFTEN))
    totals, columns = np.add.reduce(rows, axis=1), np.add.reduce(rows, axis=0)
    rows_behind = np.arange(len(rows) - 1, -1, -1, dtype=np.uint64) * np.uint64(len(_OFTEN))
    behind = int(np.add.reduce(columns * _OFTEN)) + int(np.add.reduce(totals * rows_behind))
    return int(np.add.reduce(totals)), behind


def _words_of(parts: Sequence[bytes | memoryview]) -> Iterator[Array]:
    """All parts as 64-bit words, as many at a time as a cache holds: a gap ends each array at a word."""
    left = b""
    for part in parts:
        view = memoryview(part).cast("B")
        if left:
            begin = -len(left) % 8
            left, view = left + bytes(view[:begin]), view[begin:]
            if len(left) % 8:
                continue
            yield np.frombuffer(left, np.uint64)
        whole = len(view) // 8 * 8
        left = bytes(view[whole:])
        for start in range(0, whole, _PART_BYTES):
            yield np.frombuffer(view[start : min(start + _PART_BYTES, whole)], np.uint64)
        release(part)
