"""Object code in memory: loads it, finds its entry point, keeps it mapped as long as somebody may call it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from tilewright.codegen.abi import ENTRY
from tilewright.report.errors import UserError
from tilewright.runtime.loader import Loaded, load_code
from tilewright.runtime.pool import pool_functions
from tilewright.target import Target
from tilewright.target.host import current_host

EntryPoint = ctypes.CFUNCTYPE(
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


class NativeCode:
    """A program's code, loaded. `entry` is callable as long as this object lives; calls release Python's lock.

    Code for a target that this machine is not is never loaded: calling its `entry` raises UserError.
    """

    def __init__(self, code: Sequence[bytes], target: Target) -> None:
        """Raises Damaged for what is no code."""
        host = current_host()
        if not target.is_runnable_on(host):
            lacking = ", ".join(sorted(target.features - host.features)) or f"the architecture {target.architecture}"
            self.entry: Callable[..., int] = _Refusal(target, lacking)
            return
        self._loaded: Loaded = load_code(code, target, pool_functions)
        self.entry = EntryPoint(self._loaded.address(ENTRY))


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
