"""What programs without Python and a library agree upon: the version of the interface, its codes and its records.

    tilewright_array    data, bytes, rank, dims[8]                   an array of a call, row-major
    tilewright_port     name, type, shape, element_bytes, rank, dims     an input or an output, as the model has it

Every field takes a word of 8 bytes, so that a library reads an array of such records as an array of numbers.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

from tilewright.report.errors import UserError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

INTERFACE: Final = 1
"""The version of the C interface: raised whenever a program that was compiled for the one before would not run."""

MOST_RANK: Final = 8
"""Dimensions that an array has room for."""

DATA, BYTES, RANK, DIMS = 0, 1, 2, 3
"""The places of an array's fields, in words."""

ARRAY_WORDS: Final = DIMS + MOST_RANK
PORT_WORDS: Final = 6

MOST_THREADS: Final = 256
"""Threads that a context may use: the pool's and the caller's."""


class Code(IntEnum):
    """What a function of a library returns."""

    OK = 0
    ARGUMENT = 1
    SHAPE = 2
    ROOM = 3
    MEMORY = 4
    FAULT = 5
    MACHINE = 6
    WEIGHTS = 7


MEANINGS: Final = {
    Code.OK: "the call did what it says",
    Code.ARGUMENT: "a null pointer, a number or a name that is none",
    Code.SHAPE: "an input of another rank or size than the program takes",
    Code.ROOM: "memory of the caller that is missing, too small or not aligned",
    Code.MEMORY: "the system gives no memory, or the call needs more than the machine has",
    Code.FAULT: "the program met a value that it must not go on with, such as an index out of range",
    Code.MACHINE: "this machine lacks instructions of the program",
    Code.WEIGHTS: "the file of weights is missing, damaged or another program's",
}


def check_name(name: str) -> None:
    """Raises UserError for a name with which those of a library's functions cannot begin."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"cannot make a library of the name {name!r}",
            why="its functions begin with that name, so it must be one in C",
            fix='take letters, digits and underscores: name="model"',
        )
