"""Object code in memory: loads it, finds its entry point, keeps it mapped as long as somebody may call it."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import llvmlite.binding as llvm

from tilewright.codegen.module import ENTRY
from tilewright.report.errors import InternalError
from tilewright.target import native

EntryPoint = ctypes.CFUNCTYPE(
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
)
"""i64 (arguments, constants, symbols, arena, arena bytes, fault record): see codegen/README.md."""

_lock = threading.Lock()


class NativeCode:
    """One loaded object file. `entry` is callable as long as this object lives; calls release Python's lock."""

    def __init__(self, code: bytes) -> None:
        with _lock:
            machine = native().create_machine()
            self._engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
            self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
            address = self._engine.get_function_address(ENTRY)
        if not address:
            raise InternalError("the object code has no entry point")
        self.entry = EntryPoint(address)
