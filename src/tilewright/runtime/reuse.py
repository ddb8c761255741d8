"""Buffer reuse for results: a fresh page costs more than what many kernels write to it.

A large result refers, as its base, to a lease of its memory, and so does all that is made of it: views, buffers,
tensors of other libraries. When the last of them is gone, so is the lease, which leaves the memory with its output; the
next result of that thread reuses it. No references are counted; memory of a result that a caller keeps is not reused.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tilewright.types.room import LINE, PAGE, at_line

Array = np.ndarray[Any, Any]

LEAST = 1 << 17
"""The bytes from which on a result has a lease, which costs a microsecond. The system's allocator reuses the memory of
smaller ones itself."""

MOST = 1 << 26
"""The bytes beyond which the memory of a result is freed at once, not kept for another one."""

BESIDE = 3328
"""The distance in bytes from the first input to a result, modulo PAGE. A load waits for an earlier store whose address
has the same last twelve bits (4K aliasing). A kernel stores a result shortly after it loads the input at the same
index; at this distance these stores alias no load that follows. (Depthwise convolutions of 14 x 14: up to a fifth of
their time; docs/findings.md.)"""

STEPS = 8
"""Sizes between a power of two and the next: memory of the same one is used again, for results that grow, too."""


class Lease:
    """What the arrays over a piece of memory refer to: `interface` describes an array in it, as NumPy asks for one."""

    __slots__ = ("__array_interface__", "memory", "output")

    def __init__(self, output: Output, memory: Array, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface
        self.memory = memory
        self.output = output

    def __del__(self) -> None:
        self.output.spare = self.memory


class Output:
    """Makes the arrays of one output, for the calls of one thread. `spare` is memory that no array uses: at most one
    block, the one that became free last. `interface` describes the array of this `shape` and `dtype` in `memory`, the
    last one that was made: most calls make another one like it."""

    __slots__ = ("dtype", "interface", "memory", "shape", "spare")

    def __init__(self) -> None:
        self.spare: Array | None = None
        self.memory: Array | None = None
        self.shape: tuple[int, ...] = ()
        self.dtype: np.dtype[Any] | None = None
        self.interface: dict[str, Any] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], beside: int | None = None) -> Array:
        """An array as of np.empty, aligned to a cache line where it is large; it shares memory with nothing else.
        Memory that is allocated for it begins BESIDE bytes after the input at the address `beside`, modulo PAGE. Raises
        what np.empty raises."""
        # Any thread may give memory back meanwhile; only this one takes it.
        memory = self.spare
        if memory is None or memory is not self.memory or self.dtype is not dtype or self.shape != shape:
            size = prod(shape) * dtype.itemsize
            if not LEAST <= size <= MOST:
                return np.empty(shape, dtype)
            step = (1 << size.bit_length()) // (2 * STEPS)
            memory = self._remember(-(-size // step) * step, shape, dtype, beside or 0)
        self.spare = None
        array = np.asarray(Lease(self, memory, self.interface))
        return array if array.dtype is dtype else np.ndarray(shape, dtype, array)

    def _remember(self, room: int, shape: tuple[int, ...], dtype: np.dtype[Any], beside: int) -> Array:
        """Memory of so many bytes, described as an array of this shape; as its bytes where NumPy has no name for the
        type."""
        memory = self.spare
        if memory is None or memory.nbytes != room:
            memory = _allocate(room, beside)
        self.memory, self.shape, self.dtype = memory, shape, dtype
        self.interface = memory.__array_interface__
        if dtype.isbuiltin == 1:
            self.interface = {"shape": shape, "typestr": dtype.str, "data": self.interface["data"], "version": 3}
        return memory


def _allocate(size: int, beside: int) -> Array:
    return at_line((size,), np.dtype(np.uint8), beside // LINE * LINE + BESIDE, PAGE)
