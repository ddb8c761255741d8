"""Programs on systems whose object files are not ELF: LLVM's own loader puts them into memory and links them.

It is loaded where such a program is, and stays as large as a compiler.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from tilewright.report.errors import InternalError
from tilewright.target import native

_lock = threading.Lock()


class LoadedObjects:
    """Object files that were loaded and linked."""

    def __init__(self, objects: Sequence[bytes], known: Mapping[str, int]) -> None:
        """`known` are addresses of functions that the objects may call, beside those of the system."""
        with _lock:
            for name, address in known.items():
                llvm.add_symbol(name, address)
            self._engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), native().create_machine(jit=True))
            for part in objects:
                self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(part))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        address: int = self._engine.get_function_address(name)
        if not address:
            raise InternalError(f"the object code has no function {name}")
        return address

    def stay(self) -> None:
        self._engine.detach()
