"""Results over memory that is used again: a new page costs more than what many a kernel writes to it.

A large result refers, as its base, to a lease of its memory, and so does all that is made of it: views, buffers,
tensors of other libraries. When the last of them is gone, so is the lease, which leaves the memory with its output; the
next result of that thread lies there. Nobody counts references, and what a caller keeps is the caller's alone.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LEAST = 1 << 17
"""Bytes of a result from which on it has a lease, which costs a microsecond: smaller ones the system's allocator makes
of memory that it keeps."""

MOST = 1 << 26
"""Bytes of a result beyond which its memory is given back at once, not kept for another one."""

STEPS = 8
"""Sizes between a power of two and the next: memory of the same one is used again, for results that grow, too."""


class Lease:
    """What the arrays over a piece of memory refer to."""

    __slots__ = ("__array_interface__", "memory", "output")

    def __init__(self, output: Output, memory: Array) -> None:
        self.__array_interface__ = memory.__array_interface__
        self.memory = memory
        self.output = output

    def __del__(self) -> None:
        self.output.spare = self.memory


class Output:
    """Makes the arrays of one output, for the calls of one thread. `spare` is memory that no array lies in: at most one
    piece, the one that became free last."""

    __slots__ = ("spare",)

    def __init__(self) -> None:
        self.spare: Array | None = None

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array as of np.empty, aligned to a cache line where it is large, which nothing else lies in. Raises what
        np.empty raises."""
        size = prod(shape) * dtype.itemsize
        if not LEAST <= size <= MOST:
            return np.empty(shape, dtype)
        step = (1 << size.bit_length()) // (2 * STEPS)
        room = -(-size // step) * step
        # Any thread may give memory back meanwhile; only this one takes it.
        memory, self.spare = self.spare, None
        if memory is None or memory.nbytes != room:
            memory = _allocate(room)
        return np.ndarray(shape, dtype, np.asarray(Lease(self, memory)))


def _allocate(size: int) -> Array:
    whole = np.empty(size + 64, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + size]
