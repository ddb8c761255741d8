"""Room for Python's frames in one piece of memory.

CPython takes the frames of a thread from pieces of 16 KiB, and unmaps a piece when the last frame in it ends. Where a
loop happens to call functions at the end of a piece, each call maps memory, touches it for the first time and unmaps
it again: 7 microseconds instead of 0.04, measured on a virtual machine; and a compiler calls functions at any depth. A
piece is as large as the frame that it is made for: so one frame that claims much memory, and touches none of it, gives
room to all above it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

SLOTS = 1 << 16
"""The values that the frame has room for, half a megabyte, and more than a power of two with what every frame has:
CPython doubles pieces until they hold it, so as much is left above, which is more than a thousand frames take."""


def with_room(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose calls have room for the frames of all that they call."""

    def call(*args: P.args, **named: P.kwargs) -> R:
        return function(*args, **named)

    call.__code__ = call.__code__.replace(co_stacksize=SLOTS)
    return update_wrapper(call, function)
