"""Object code in memory: loads it, finds its entry point, keeps it mapped as long as somebody may call it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import llvmlite.binding as llvm

from tilewright.codegen.abi import ENTRY, PARALLEL
from tilewright.report.errors import InternalError, UserError
from tilewright.runtime.pool import load_pool
from tilewright.target import Target, native
from tilewright.target.host import current_host

_SIGNATURE = (
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
)
"""i64 (arguments, constants, symbols, arena, arena bytes, fault record, threads, profile): see codegen/README.md."""

EntryPoint = ctypes.CFUNCTYPE(*_SIGNATURE)
"""A call that lets other Python threads run."""

HeldEntryPoint = ctypes.PYFUNCTYPE(*_SIGNATURE)
"""A call that keeps Python's lock."""

_lock = threading.Lock()


class NativeCode:
    """A program's object files, loaded and linked. `entry` and `held` are callable as long as this object lives: calls
    of `entry` release Python's lock, calls of `held` keep it. Nothing that the code waits for needs the lock.

    Code for a target that this machine is not is never loaded: calling it raises UserError.
    """

    def __init__(self, code: Sequence[bytes], target: Target) -> None:
        host = current_host()
        if not target.is_runnable_on(host):
            lacking = ", ".join(sorted(target.features - host.features)) or f"the architecture {target.architecture}"
            self.entry: Callable[..., int] = _Refusal(target, lacking)
            self.held: Callable[..., int] = self.entry
            return
        if any(PARALLEL.encode() in part for part in code):
            load_pool()
        with _lock:
            machine = native().create_machine()
            self._engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
            for part in code:
                self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(part))
            self._engine.finalize_object()
            address = self._engine.get_function_address(ENTRY)
        if not address:
            raise InternalError("the object code has no entry point")
        self.entry = EntryPoint(address)
        self.held = HeldEntryPoint(address)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The entry point of code that this machine cannot run."""

    target: Target
    lacking: str

    def __call__(self, *arguments: object) -> NoReturn:
        raise UserError(
            f"cannot run code for the target {self.target}",
            why=f"this machine lacks {self.lacking}",
            mend='compile with target="native" to run it here',
        )
