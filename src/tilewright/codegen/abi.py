"""How generated code is called, and what it returns: the contract between code generation and the runtime.

Nothing here needs the compiler, so that a program read from a file can run without it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.dtypes import DType
from tilewright.report.errors import RuntimeFault

VERSION = 8
"""The version of the contract: raised whenever object code or the runtime expects something else of the other."""

ENTRY = "tilewright_entry"
"""The entry point's symbol; README.md has its signature."""

CALL = (
    *("arguments", "constants", "symbols", "arena", "arena_bytes", "fault", "threads", "profile", "flushes", "others"),
    "stop",
    "kernels",
)
"""What the entry point is given, in words of a record, as it has the address of: arrays of pointers, of pointers and of
sizes, scratch memory and its bytes, the fault record, how many threads, the record of a profile or 0, whether
subnormal numbers are taken for zero, the record of the caller's own threads (pool_others.py) or 0, and that of
interrupts (interrupts.py) or 0; and which kernels of a program without branches a call runs: 0 for all, or the number
of the first in the upper half, and the number behind the last in the lower one. Python takes ten times as long to hand
over ten words as one."""

PARALLEL = "tilewright_parallel"
LEAVE = "tilewright_leave"
"""The functions of the thread pool that object code calls."""

STOP = "tilewright_stop"
RESET = "tilewright_reset"
"""Those that the runtime calls: when Python ends; when the pool is loaded and in a child process, with the number of
cores of this process."""

ARENA_TOO_SMALL = -1
"""What the entry point returns when it needs a larger arena: its bytes are in the fault record's first word."""

ROOM_TOO_SMALL = -2
"""What it returns, less the place of a symbol among the caller's sizes, when that symbol needs to be larger: at least
the number in the fault record's first word."""

INTERRUPTED = -(1 << 63)
"""What it returns when a signal ended the call; the exception is in the record of interrupts."""

FAULT_VALUES = 6
"""How many values the fault record has room for, behind its first word."""


@dataclass(frozen=True, slots=True)
class FaultMessage:
    """What a failed assertion says: `{0}` … stand for the values, of these element types, in the fault record."""

    text: str
    dtypes: tuple[DType, ...]

    def fault(self, record: Sequence[int]) -> RuntimeFault:
        """The error with the values of a fault record, which follow its first word."""
        values: list[float] = []
        for raw, dtype in zip(record[1 : 1 + len(self.dtypes)], self.dtypes, strict=True):
            values.append(ctypes.c_double.from_buffer_copy(ctypes.c_int64(raw)).value if dtype.is_float else raw)
        what, _, where = self.text.partition(" @ ")
        what = re.sub(r"\{(\d)\}", lambda m: str(values[int(m[1])]) if int(m[1]) < len(values) else m[0], what)
        return RuntimeFault(what, where=where or None)
