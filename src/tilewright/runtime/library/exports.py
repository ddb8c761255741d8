"""The names that a shared library exports, as its file has them: nothing is loaded for that."""

from __future__ import annotations

import struct
from typing import Final

from tilewright.codegen.image import MACHINES
from tilewright.report.errors import UserError
from tilewright.store.files import map_file
from tilewright.target.host import current_host

_HEADER = struct.Struct("<4sBB58x")
_TABLE_AT, _ROWS_AT = struct.Struct("<Q"), struct.Struct("<HH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MACHINE_AT = struct.Struct("<H")
_MACHINE, _TABLE, _ROWS = 18, 40, 58
_SYMBOLS: Final = 11


def exported_names(path: str) -> list[str]:
    """The names that the library at `path` defines. Raises UserError for what cannot be read, is no library, or is one
    for another architecture, of which the system would say that there is no such file."""
    data = memoryview(map_file(path, "library").data)
    try:
        names = list(_read(data))
    except (struct.error, IndexError, ValueError) as error:
        raise UserError(
            f"cannot load {path}",
            why=f"it is no shared library: {error}",
            fix="give what save_library wrote under a name that ends in .so; a .tw file is for tilewright.load",
        ) from None
    (number,) = _MACHINE_AT.unpack_from(data, _MACHINE)
    here = current_host().architecture
    its = next((name for name, known in MACHINES.items() if known == number), f"ELF's machine {number}")
    if its != here:
        raise UserError(
            f"cannot load {path}",
            why=f"its code is for {its}, and this machine is {here}",
            fix="compile the model for this machine, or load it on one of that architecture",
        )
    return names


def _read(data: memoryview) -> list[str]:
    magic, size, order = _HEADER.unpack_from(data)
    if (magic, size, order) != (b"\x7fELF", 2, 1):
        raise ValueError("it does not begin as a 64-bit ELF file")
    (table,), (row, count) = _TABLE_AT.unpack_from(data, _TABLE), _ROWS_AT.unpack_from(data, _ROWS)
    if row != _SECTION.size:
        raise ValueError(f"its sections have rows of {row} bytes")
    sections = [_SECTION.unpack_from(data, table + n * row) for n in range(count)]
    found = []
    for section in sections:
        if section[1] != _SYMBOLS:
            continue
        strings = sections[section[6]]
        names = bytes(data[strings[4] : strings[4] + strings[5]])
        for name, _, _, place, _, _ in _SYMBOL.iter_unpack(data[section[4] : section[4] + section[5]]):
            if place:
                found.append(names[name : names.index(b"\0", name)].decode("ascii"))
    return found
