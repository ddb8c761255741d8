"""Calls part by part: some kernels, then others, with what the caller does with its memory between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.runtime.frame import Frame


class PartedCall:
    """A call that has begun: `run` runs the kernels before a number, from where the last one ended; `give` says where a
    result lies that only later kernels write; `end` ends it, and takes whatever has to live until then. A call that
    is not ended keeps its frame, and the thread's next one has another."""

    __slots__ = ("_done", "_enter", "_frame")

    def __init__(self, frame: Frame, enter: Callable[[], None]) -> None:
        self._frame, self._enter, self._done = frame, enter, 0

    def run(self, behind: int) -> None:
        """Runs the kernels that were not run before, up to the one of this number, without it. RuntimeFault when the
        program meets a value it must not go on with."""
        self._frame.run(self._done, behind)
        self._enter()
        self._done = behind

    def give(self, place: int, address: int) -> None:
        """The address of the pointer in this place."""
        self._frame.pointers[place] = address

    def end(self, *kept: Any) -> None:
        """Ends the call; `kept` is what its kernels read and wrote to the end."""
        frame = self._frame
        frame.run()
        frame.give_back()
        frame.taken = False
