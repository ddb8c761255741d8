"""Executables on their way to another process: pickled as the bytes of their compiled file.

The bytes are one array, so that what shares the memory of arrays between processes (pickle's buffers of protocol 5,
joblib's mapped files) shares the weights. They are checked as those of a file are. Unpickling runs what a pickle says,
and these hold machine code, besides: read pickles of those only whose programs you would run.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from tilewright.runtime.bundle import encode
from tilewright.runtime.file import KEY, read_program
from tilewright.runtime.mapped import MappedPrograms
from tilewright.runtime.memory import allocate
from tilewright.runtime.program import Program
from tilewright.store.frame import write_framed

Array = np.ndarray[Any, Any]

_ALIGNMENT = 16
"""Of the bytes, so that the constants in them are aligned to their elements."""


def to_bytes(program: Program) -> Array:
    """The bytes of the compiled file of a program."""
    file = io.BytesIO()
    write_framed(file, KEY, encode([program], about=program.provenance))
    return np.frombuffer(file.getbuffer(), np.uint8)


def from_bytes(data: Array) -> Program:
    """The program in such bytes, which it keeps. Raises Damaged for others, UserError where this machine cannot run
    it."""
    if data.ctypes.data % _ALIGNMENT:
        data, given = allocate(data.nbytes), data
        data[:] = given
    return read_program(MappedPrograms("a pickled executable", data.data.toreadonly()))
