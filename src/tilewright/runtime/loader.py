"""Programs in memory: an image at an address, the functions that it calls outside found, its pages sealed.

    code        read and executed       constants   read       data   read and written

The system's functions (`memset`, those of pthreads) are found in this process, others are given by the caller. The
memory is given back with the object. Where object files are not ELF, LLVM's loader takes the place of this one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tilewright.codegen.abi import LEAVE, PARALLEL
from tilewright.codegen.image import MACHINES, SLOT, Image, decode
from tilewright.report.errors import InternalError
from tilewright.store import Damaged
from tilewright.target import Target
from tilewright.target.code_pages import CodePages
from tilewright.target.host import current_host
from tilewright.target.machine import is_elf

Pool = Callable[[bytes | None], Mapping[str, int]]
"""Makes the addresses of the pool's functions by name, from its code where the program brings it: asked by code that
forks."""


class Loaded(Protocol):
    """Code in memory. Whoever calls into it keeps this object."""

    def address(self, name: str) -> int:
        """The address of a function of the code. Raises InternalError where there is none."""

    def stay(self) -> None:
        """Keeps the code in memory for as long as the process lives."""


def load_code(code: Sequence[bytes], target: Target, pool: Pool) -> Loaded:
    """The code of a program for a target that this machine is: its image, and that of the pool where it forks. Raises
    Damaged for what is no such code."""
    if not is_elf(target.triple):
        from tilewright.runtime.llvm_loader import LoadedObjects  # brings LLVM along

        forks = any(PARALLEL.encode() in part for part in code)
        return LoadedObjects(code, pool(None) if forks else {})
    if not 1 <= len(code) <= 2:
        raise Damaged("the program has no machine code", why=f"it has {len(code)} images")
    image = decode(code[0])
    if image.imports.keys().isdisjoint((PARALLEL, LEAVE)):
        return LoadedImage(image, {})
    return LoadedImage(image, pool(code[1] if len(code) > 1 else None))


class LoadedImage:
    """An image that was loaded."""

    def __init__(self, image: Image, known: Mapping[str, int]) -> None:
        """`known` are addresses of functions that the image may call, beside those of the system. Raises
        InternalError for an image of another architecture and for a function that is nowhere, RuntimeFault where the
        system gives no memory for code."""
        if MACHINES.get(current_host().architecture) != image.machine:
            raise InternalError("machine code was loaded on a machine of another architecture")
        addresses = {slot: known.get(name) or find_function(name) for name, slot in image.imports.items()}
        constants = bytearray(image.constants)
        for slot, address in addresses.items():
            constants[slot : slot + SLOT] = address.to_bytes(SLOT, "little")
        self._pages = CodePages(image.size)
        self._pages.write(0, image.code)
        self._pages.write(image.constants_at, bytes(constants))
        self._pages.seal(0, len(image.code), executable=True)
        self._pages.seal(image.constants_at, len(constants), executable=False)
        self._exports = image.exports

    def address(self, name: str) -> int:
        if name not in self._exports:
            raise InternalError(f"the object code has no function {name}")
        return self._pages.address + self._exports[name]

    def stay(self) -> None:
        self._pages.stay()


def find_function(name: str) -> int:
    """The address of a function of the system's libraries in this process. Raises InternalError where there is none."""
    for library in (None, *_LIBRARIES):
        try:
            found = ctypes.cast(ctypes.CDLL(library)[name], ctypes.c_void_p).value
        except (OSError, AttributeError, ValueError):
            continue
        if found:
            return found
    raise InternalError(f"generated code calls {name}, which no library of this process has")


_LIBRARIES = ("libm.so.6",)
"""Where a function may be that the process itself does not have: its mathematics."""
