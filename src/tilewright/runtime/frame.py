"""What a thread's calls pass to native code: made once for each thread, and kept."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from tilewright.codegen.abi import FAULT_VALUES
from tilewright.runtime.memory import allocate
from tilewright.runtime.reuse import Output

_FaultRecord = ctypes.c_int64 * (1 + FAULT_VALUES)


class Frame:
    """Room for the addresses of a call's arrays and for its sizes, scratch memory that grows and stays, and a record of
    faults; each with its own address, which is what native code takes. `places` make the results.

    `short` are the symbols of the last call where that was short, `looks` counts calls that were not, and `profile` is
    the record of a profile while somebody asks for one. A frame is `taken` during a call.
    """

    __slots__ = (
        *("arena", "arena_bytes", "fault", "fault_at", "looks", "memory", "places", "pointers", "pointers_at"),
        *("profile", "short", "sizes", "sizes_at", "taken"),
    )

    def __init__(self, inputs: int, outputs: int, sizes: int) -> None:
        self.pointers: Any = (ctypes.c_void_p * max(inputs + outputs, 1))()
        self.sizes: Any = (ctypes.c_int64 * max(sizes, 1))()
        self.fault: Any = _FaultRecord()
        self.pointers_at = ctypes.addressof(self.pointers)
        self.sizes_at = ctypes.addressof(self.sizes)
        self.fault_at = ctypes.addressof(self.fault)
        self.places = tuple(Output() for _ in range(outputs))
        self.memory = np.empty(0, np.uint8)
        self.arena = self.arena_bytes = 0
        self.profile: int | None = None
        self.short: tuple[int, ...] | None = None
        self.looks = 0
        self.taken = False

    def grow(self, size: int) -> None:
        """Makes the arena at least `size` bytes, aligned to a cache line."""
        self.memory = allocate(size)
        self.arena = self.memory.ctypes.data
        self.arena_bytes = size


class Frames(threading.local):
    """The frame of the thread that asks, for calls with so many inputs, outputs and sizes."""

    def __init__(self, inputs: int, outputs: int, sizes: int) -> None:
        self.counts = (inputs, outputs, sizes)
        self.frame = Frame(*self.counts)

    def take(self) -> Frame:
        """The thread's frame, taken. For a call within a call, as a signal handler may make it, or after one that was
        interrupted before it could give its frame back, that is another one from then on."""
        frame = self.frame
        if frame.taken:
            frame = self.frame = Frame(*self.counts)
        frame.taken = True
        return frame
