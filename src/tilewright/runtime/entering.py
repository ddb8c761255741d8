"""Entering native code, as often as a call takes: again with more memory when it asks for it, with or without Python's
lock."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns, thread_time_ns

from tilewright.codegen.abi import ARENA_TOO_SMALL, INTERRUPTED, ROOM_TOO_SMALL, FaultMessage
from tilewright.report.errors import RuntimeFault
from tilewright.runtime.frame import Frame
from tilewright.runtime.native import NativeCode

SHORT = 50_000
"""A call shorter than this, in nanoseconds, keeps Python's lock (the GIL): to release it costs as much, and waiting
threads get it after five milliseconds anyway."""

LONG = 2 * SHORT
"""A call that kept the lock for longer than this, in nanoseconds, makes the next one release it."""

LOOK = 8
"""One in this many calls that release the lock is timed by its thread's processor time."""


class Entering:
    """Makes calls of native code, which answers with one of `faults` where it must not go on."""

    def __init__(self, native: NativeCode, faults: Sequence[FaultMessage]) -> None:
        self._entry, self._held = native.entry, native.held
        self._faults = faults

    def __call__(self, frame: Frame, symbols: tuple[int, ...]) -> None:
        """Calls native code; again with a larger arena, or a larger size, when it asks for one. Where the arena would
        be too large, sizes that earlier calls made larger are small again. Keeps Python's lock where this thread's last
        call of these sizes was short. RuntimeFault when the program meets a value it must not go on with."""
        shrunk = False
        while True:
            is_short = frame.short == symbols
            entry, clock = self._held if is_short else self._entry, perf_counter_ns
            if not is_short:
                # A call that releases the lock waits for it afterwards, so some are timed by the thread's processor
                # time, which costs a system call.
                frame.looks += 1
                clock = perf_counter_ns if frame.looks % LOOK else thread_time_ns
            start = clock()
            status = entry(frame.call_at)
            if status == 0:
                took = clock() - start
                if is_short and took >= LONG:
                    frame.short, frame.looks = None, -1  # it may have been interrupted: the next one is looked at
                elif not is_short and took < SHORT:
                    frame.short = symbols
                return
            if status > 0:
                raise self._faults[status - 1].fault(frame.fault)
            if status == INTERRUPTED:
                frame.interrupted()
            needed = int(frame.fault[0])
            if status != ARENA_TOO_SMALL:
                frame.enlarge(ROOM_TOO_SMALL - status, needed)
                continue
            try:
                frame.grow(needed)
            except RuntimeFault:
                if not frame.shrink() or shrunk:
                    raise
                shrunk = True
