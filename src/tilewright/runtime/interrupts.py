"""What native code asks whether a signal came (codegen/interrupts.py), and the exception of a handler.

Python runs handlers of signals in its main thread alone, so calls of other threads are not interrupted: they end when
they end.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from tilewright.codegen.interrupts import ASKED

_CAUGHT = len(ASKED)


def record_of_interrupts() -> Any:
    """The record for calls of this thread; None where they cannot be interrupted."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(ctypes, "pythonapi"):
        return None
    functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in ASKED]
    return (ctypes.c_void_p * (_CAUGHT + 3))(*functions)


def raise_caught(record: Any) -> None:
    """Raises the exception that ended a call, which is in its record no longer."""
    caught = [ctypes.c_void_p(record[n]) for n in range(_CAUGHT, _CAUGHT + 3)]
    for n in range(_CAUGHT, _CAUGHT + 3):
        record[n] = None
    ctypes.pythonapi.PyErr_Restore(*caught)  # functions of `pythonapi` raise what is set when they return
