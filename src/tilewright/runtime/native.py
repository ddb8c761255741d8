"""Object code in memory: loads it, finds its entry point, keeps it mapped as long as it may be called."""

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

_SIGNATURE = (ctypes.c_int64, ctypes.c_void_p)
"""i64 (record of a call): see codegen/README.md."""

EntryPoint = ctypes.CFUNCTYPE(*_SIGNATURE)
"""A call that lets other Python threads run."""

HeldEntryPoint = ctypes.PYFUNCTYPE(*_SIGNATURE)
"""A call that keeps Python's lock."""


class NativeCode:
    """A program's code, loaded. `entry` and `held` are callable as long as this object lives: calls of `entry` release
    Python's lock, calls of `held` keep it. Nothing that the code waits for needs the lock. `address` is where both are.

    Code for a target that this machine is not is never loaded: calling it raises UserError.
    """

    def __init__(self, code: Sequence[bytes], target: Target) -> None:
        """Raises Damaged for what is no code."""
        host = current_host()
        if not target.is_runnable_on(host):
            lacking = ", ".join(sorted(target.features - host.features)) or f"the architecture {target.architecture}"
            self.entry: Callable[..., int] = _Refusal(target, lacking)
            self.held: Callable[..., int] = self.entry
            self.address = 0
            return
        self._loaded: Loaded = load_code(code, target, pool_functions)
        self.address = self._loaded.address(ENTRY)
        self.entry = EntryPoint(self.address)
        self.held = HeldEntryPoint(self.address)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The entry point of code that this machine cannot run."""

    target: Target
    lacking: str

    def __call__(self, *arguments: object) -> NoReturn:
        raise UserError(
            f"cannot run code for the target {self.target}",
            why=f"this machine lacks {self.lacking}",
            fix='compile with target="native" to run it here',
        )
