"""The tables by which the system's loader finds the names of a shared object, and gives it those of others.

The layouts are those of the System V ABI, chapters 4 and 5 (`elf.h`). A name that others define is asked for without a
version, but for those that glibc has in several: the loader would take the first, which is the oldest.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.codegen.image import AARCH64, RISCV, X86_64

ADDRESS: Final[Mapping[int, int]] = {X86_64: 6, AARCH64: 1025, RISCV: 2}
"""The relocation of a slot: it becomes the address of a symbol (GLOB_DAT; 64 on RISC-V, which has no other)."""

MACHINE_FLAGS: Final[Mapping[int, int]] = {RISCV: 4 | 1}
"""What ELF's header says of the code of a machine: on RISC-V that floats are handed over in registers of double
precision (the ABI lp64d), and that instructions may be compressed. Elsewhere nothing."""

MOVED: Final[Mapping[int, int]] = {X86_64: 8, AARCH64: 1027, RISCV: 3}
"""The relocation of a word that becomes the library's address and an addend (RELATIVE)."""

LIBC: Final = "libc.so.6"
LIBM: Final = "libm.so.6"

VERSIONS: Final[Mapping[tuple[int, str], str]] = {
    (X86_64, f"pthread_cond_{what}"): "GLIBC_2.3.2" for what in ("init", "wait", "signal")
}
"""Functions of glibc's libc that are there in several versions, by ELF's number of the machine, and which one is meant:
the first condition variables were others."""

_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_GLOBAL_FUNCTION = 1 << 4 | 2
_UNVERSIONED: Final = 1
_FIRST_VERSION: Final = 2
_NO_HASH: Final = 0xF000_0000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a name of the library is: its address, the bytes it takes, and the number of its section."""

    address: int
    size: int
    section: int


class Strings:
    """A table of strings as it grows: each once, ended by zeros."""

    def __init__(self) -> None:
        self.content = bytearray(b"\0")
        self._places: dict[str, int] = {"": 0}

    def place(self, text: str) -> int:
        """Where a string begins."""
        if text not in self._places:
            self._places[text] = len(self.content)
            self.content += text.encode() + b"\0"
        return self._places[text]


class Symbols:
    """The symbols of a library: `outside`, those of others that it uses, then `own`, those that it defines."""

    def __init__(self, machine: int, outside: Sequence[str], own: Sequence[str]) -> None:
        self._machine, self._outside, self._own = machine, tuple(outside), tuple(own)
        self.strings = Strings()
        for name in (*self._outside, *self._own, LIBC, LIBM, *self._versions()):
            self.strings.place(name)

    def _versions(self) -> list[str]:
        found = (VERSIONS.get((self._machine, name)) for name in self._outside)
        return list(dict.fromkeys(version for version in found if version is not None))

    def number(self, name: str) -> int:
        """The number of a symbol."""
        return 1 + (*self._outside, *self._own).index(name)

    def table(self, places: Mapping[str, Place]) -> bytes:
        """The symbols; `places` has those of its own."""
        rows = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
        rows += [_SYMBOL.pack(self.strings.place(n), _GLOBAL_FUNCTION, 0, 0, 0, 0) for n in self._outside]
        for name in self._own:
            at = places[name]
            row = self.strings.place(name), _GLOBAL_FUNCTION, 0, at.section, at.address, at.size
            rows.append(_SYMBOL.pack(*row))
        return b"".join(rows)

    def hash_table(self) -> bytes:
        """By which the loader looks a name up: buckets, each the first of a chain of symbols."""
        names = (*self._outside, *self._own)
        buckets, chains = [0] * max(len(self._own), 1), [0] * (1 + len(names))
        for number, name in enumerate(names, 1):
            if name in self._own:
                bucket = hash_of(name) % len(buckets)
                chains[number], buckets[bucket] = buckets[bucket], number
        return struct.pack(f"<{2 + len(buckets) + len(chains)}I", len(buckets), len(chains), *buckets, *chains)

    def version_table(self) -> bytes:
        """The number of each symbol's version."""
        numbers = {version: _FIRST_VERSION + n for n, version in enumerate(self._versions())}
        wanted = [VERSIONS.get((self._machine, name), "") for name in self._outside]
        row = [0, *(numbers.get(version, _UNVERSIONED) for version in wanted), *[_UNVERSIONED] * len(self._own)]
        return struct.pack(f"<{len(row)}H", *row)

    def needed_versions(self) -> tuple[bytes, int]:
        """The versions that libc must have, and how many rows of libraries that are: none or one."""
        versions = self._versions()
        if not versions:
            return b"", 0
        head = struct.pack("<HHIII", 1, len(versions), self.strings.place(LIBC), 16, 0)
        rows = [
            struct.pack(
                "<IHHII", hash_of(v), 0, _FIRST_VERSION + n, self.strings.place(v), 16 if v != versions[-1] else 0
            )
            for n, v in enumerate(versions)
        ]
        return head + b"".join(rows), 1


def hash_of(name: str) -> int:
    """The System V ABI's hash of a name."""
    found = 0
    for byte in name.encode():
        found = (found << 4) + byte
        high = found & _NO_HASH
        found = (found ^ high >> 24) & ~high & 0xFFFF_FFFF
    return found


def address_row(machine: int, slot: int, symbol: int) -> bytes:
    """The relocation by which a slot becomes the address of a symbol."""
    return _RELOCATION.pack(slot, symbol << 32 | ADDRESS[machine], 0)


def moved_row(machine: int, word: int, place: int) -> bytes:
    """The relocation by which a word becomes the address of a place in the library."""
    return _RELOCATION.pack(word, MOVED[machine], place)
