"""Where a buffer lives, and so who may see it and how long."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Scope(Enum):
    """A memory scope. The value is the word programs print.

    ARGUMENT   the caller's memory, passed by pointer          CONSTANT  read-only memory of the module
    ARENA      one block of scratch memory per model call      STACK     the running thread's stack
    REGISTER   a small array that code generation promotes to registers: constant indices only
    SHARED     memory shared by the threads of one GPU block
    """

    ARGUMENT = "argument"
    CONSTANT = "constant"
    ARENA = "arena"
    STACK = "stack"
    REGISTER = "register"
    SHARED = "shared"


MOST_BYTES: Final[Mapping[Scope, int]] = {Scope.STACK: 512 * 1024, Scope.REGISTER: 6144}
"""The most bytes of a buffer in a scope that is small: a thread's stack of a few MiB holds several such, and no file of
registers holds more beside what it is computed from: six tiles of eight. Part of what a scope means: steps and
verifiers check it, nothing chooses it."""
