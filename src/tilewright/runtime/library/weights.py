"""The weights of a library as bytes that follow one another: each array once, at a multiple of ALIGNMENT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.store.checksum import checksum
from tilewright.store.pages import ALIGNMENT, release

Array = np.ndarray[Any, Any]


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
