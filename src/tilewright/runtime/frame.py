"""What a thread's calls pass to native code: made once for each thread, and kept."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.abi import CALL, FAULT_VALUES
from tilewright.runtime.checked import Guarded
from tilewright.runtime.interrupts import raise_caught, record_of_interrupts
from tilewright.runtime.memory import UNCOUNTABLE, allocate, check_memory
from tilewright.runtime.reuse import LEAST, Output

_FaultRecord = ctypes.c_int64 * (1 + FAULT_VALUES)


_ARENA, _ARENA_BYTES, _PROFILE, _FLUSHES = (CALL.index(name) for name in ("arena", "arena_bytes", "profile", "flushes"))
_KERNELS = CALL.index("kernels")
_CONSTANTS = CALL.index("constants")


class Frame:
    """Room for the addresses of a call's arrays and for its sizes, scratch memory that grows and stays, and a record of
    faults; `call_at` is the address of the record that says where all of it is, which is what native code takes.
    `places` make the results.

    `rooms` are the first values of the sizes that calls make larger, which stand behind the symbols.

    `short` are the symbols of the last call if that was short, and `looks` counts the calls that were not. A frame is
    `taken` during a call.
    """

    __slots__ = (
        *("at_end", "call_at", "fault", "guarded", "looks", "memory", "place", "places", "pointers"),
        *("record", "rooms", "short", "sizes", "stop", "taken"),
    )

    def __init__(self, shape: FrameShape) -> None:
        self.pointers: Any = (ctypes.c_void_p * max(shape.inputs + shape.outputs, 1))()
        self.sizes: Any = (ctypes.c_int64 * max(shape.sizes, 1))()
        self.fault: Any = _FaultRecord()
        pointers, sizes, fault = (ctypes.addressof(a) for a in (self.pointers, self.sizes, self.fault))
        words = {"arguments": pointers, "constants": shape.constants, "symbols": sizes, "fault": fault}
        words |= {"threads": shape.threads, "flushes": int(shape.flushes), "others": shape.others}
        self.stop = record_of_interrupts()
        words["stop"] = 0 if self.stop is None else ctypes.addressof(self.stop)
        self.record: Any = (ctypes.c_int64 * len(CALL))(*(words.get(name, 0) for name in CALL))
        self.call_at = ctypes.addressof(self.record)
        self.places = tuple(Output() for _ in range(shape.outputs))
        self.memory = np.empty(0, np.uint8)
        self.guarded: Guarded | None = Guarded() if shape.checked else None
        self.at_end = False
        self.short: tuple[int, ...] | None = None
        self.looks = 0
        self.taken = False
        self.place, self.rooms = shape.symbols, shape.rooms
        self._begin_small()

    def _begin_small(self) -> None:
        self.sizes[self.place : self.place + len(self.rooms)] = self.rooms

    def enlarge(self, place: int, least: int) -> None:
        """Makes a size that calls may make larger at least this; twice what it was, so that few calls begin again."""
        if least >= UNCOUNTABLE:
            check_memory(least, "buffers")
        self.sizes[place] = min(max(least, 2 * self.sizes[place]), UNCOUNTABLE)
        self._forget_guards()

    def grow(self, size: int) -> None:
        """Makes the arena at least `size` bytes, aligned to a cache line."""
        if self.guarded is None:
            self.memory = allocate(size)
        else:
            check_memory(size, "buffers")
            self.memory = self.guarded.arena(size, self.at_end)
        self.record[_ARENA] = self.memory.ctypes.data
        self.record[_ARENA_BYTES] = size

    def give_back(self) -> None:
        """Gives an arena back to the system's allocator, from which the next call takes it again: until then its memory
        is there for others. One so small that this costs more than it is worth stays."""
        if self.guarded is None and self.memory.nbytes >= LEAST:
            self.memory = np.empty(0, np.uint8)
            self.record[_ARENA] = self.record[_ARENA_BYTES] = 0

    def shrink(self) -> bool:
        """Lets the sizes that calls make larger be what they were at first; whether one was larger."""
        first = list(self.sizes[self.place : self.place + len(self.rooms)])
        self._begin_small()
        self._forget_guards()
        return first != list(self.rooms)

    def _forget_guards(self) -> None:
        """Has a checked program ask for an arena again: other sizes put buffers where guards are in the one it has."""
        if self.guarded is not None:
            self.record[_ARENA] = self.record[_ARENA_BYTES] = 0

    def begin(self, constants: int, at_end: bool) -> None:
        """Begins a call of a checked program: constants are at these addresses, and the buffers of the arena, which is
        made anew, begin or end where a guard does."""
        self.at_end = at_end
        self.record[_CONSTANTS] = constants
        self._forget_guards()

    def fill(self, addresses: Sequence[int], symbols: tuple[int, ...], constants: int | None) -> None:
        """Has the next call run on memory at these addresses, with these values of symbols and, from now on, the
        constants of a table, where there is one."""
        self.pointers[: len(addresses)] = addresses
        if symbols:
            self.sizes[: len(symbols)] = symbols
        if constants is not None:
            self.read_constants(constants)

    def read_constants(self, table: int) -> None:
        """Has calls from now on read their constants at the addresses of this table."""
        self.record[_CONSTANTS] = table

    def run(self, first: int = 0, behind: int = 0) -> None:
        """Has calls from now on run these kernels of a program that runs by parts; without numbers all of them."""
        self.record[_KERNELS] = first << 32 | behind

    def interrupted(self) -> None:
        """Raises the exception of a signal that ended a call."""
        raise_caught(self.stop)

    @property
    def profile(self) -> int | None:
        """The address of the record of a profile, while one is taken: calls are noted there."""
        return self.record[_PROFILE] or None

    @profile.setter
    def profile(self, address: int | None) -> None:
        self.record[_PROFILE] = address or 0

    def flush(self, flushes: bool) -> None:
        """Whether calls from now on take subnormal numbers for zero."""
        self.record[_FLUSHES] = flushes


@dataclass(frozen=True, slots=True)
class FrameShape:
    """What the frames of a program have room for, and what all its calls are given: the address of the constants',
    the number of threads, whether subnormal numbers are taken for zero, whether the program checks its memory, and the
    record of the caller's threads or 0."""

    inputs: int
    outputs: int
    symbols: int
    rooms: tuple[int, ...]
    late: int
    constants: int
    threads: int
    flushes: bool = False
    checked: bool = False
    others: int = 0

    @property
    def sizes(self) -> int:
        """How many sizes a call reads and writes: symbols, those that it makes larger, and those of results."""
        return self.symbols + len(self.rooms) + self.late


class Frames(threading.local):
    """The frame of the thread that asks."""

    def __init__(self, shape: FrameShape) -> None:
        self.shape = shape
        self.frame = Frame(shape)

    def take(self) -> Frame:
        """The thread's frame, taken. For a call within a call, as a signal handler may make it, or after one that was
        interrupted before it could give its frame back, that is another one from then on."""
        frame = self.frame
        if frame.taken:
            frame = self.frame = Frame(self.shape)
        frame.taken = True
        return frame
