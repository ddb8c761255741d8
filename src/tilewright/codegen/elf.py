"""Object files as LLVM writes them for Linux: 64-bit little-endian relocatable ELF, read into plain values.

Every offset, size and index is checked before it is used, so damaged bytes are an InternalError and never read beyond
the file. The layout is that of the System V ABI, chapter 4 (`elf.h`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tilewright.codegen.image import MACHINES
from tilewright.report.errors import InternalError

_HEADER = struct.Struct("<4sBBBB8xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_SYMBOL_TABLE, _STRING_TABLE, _RELOCATIONS, _NO_BITS, _PLAIN_RELOCATIONS = 2, 3, 4, 8, 9
_ALLOCATED, _WRITABLE, _EXECUTABLE, _THREAD_LOCAL = 0x2, 0x1, 0x4, 0x400
_UNDEFINED, _RESERVED = 0, 0xFF00

_GLOBAL: Final = 1
_NAME_BYTES = 4096
_ALIGNMENT = 4096
_MOST_ROOM = 1 << 31


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """A section that is part of memory: its content, the bytes it takes there (more than its content where the rest
    is zeros), and what may be done with it."""

    name: str
    content: memoryview
    size: int
    alignment: int
    is_code: bool
    is_writable: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name for a place: `offset` bytes into the section of this number, None for what another object defines."""

    name: str
    section: int | None
    offset: int
    is_global: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """A field at `offset` of section number `section` that depends on the address of the symbol of this number."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True, eq=False)
class ObjectFile:
    """What an object file says: sections by their numbers, those in memory only; all symbols; relocations of these
    sections."""

    machine: int
    sections: dict[int, Section]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table of sections."""

    name: int
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


def read_object(data: bytes) -> ObjectFile:
    """Reads an object file. Raises InternalError for bytes that are none, or that use what LLVM does not write."""
    view = memoryview(data)
    machine, rows, names = _read_header(view)
    sections = {n: _read_section(view, row, names) for n, row in enumerate(rows) if _is_in_memory(row, view, names)}
    tables = [n for n, row in enumerate(rows) if row.kind == _SYMBOL_TABLE]
    if len(tables) > 1:
        raise _refusal("it has several tables of symbols")
    symbols = _read_symbols(view, rows, tables[0], sections) if tables else ()
    relocations: list[Relocation] = []
    for row in rows:
        if row.kind == _PLAIN_RELOCATIONS:
            raise _refusal("it has relocations without addends")
        if row.kind == _RELOCATIONS and row.info in sections:
            if [row.link] != tables:
                raise _refusal("relocations refer to no table of symbols")
            relocations += _read_relocations(view, row, sections[row.info], len(symbols))
    return ObjectFile(machine, sections, symbols, tuple(relocations))


def _read_header(view: memoryview) -> tuple[int, list[_Row], memoryview]:
    """The machine, the table of sections and the names of these."""
    if len(view) < _HEADER.size:
        raise _refusal(f"it has {len(view)} bytes")
    fields = _HEADER.unpack_from(view)
    magic, size, order, version, _, kind, machine = fields[:7]
    table, row_bytes, count, names = fields[10], fields[15], fields[16], fields[17]
    if (magic, size, order, version, kind) != (b"\x7fELF", 2, 1, 1, 1):
        raise _refusal("it does not begin as a relocatable 64-bit file")
    if machine not in MACHINES.values():
        raise _refusal(f"it is for machine {machine}")
    if row_bytes != _SECTION.size or not 0 < count < _RESERVED or names >= count:
        raise _refusal(f"its table of sections has {count} rows of {row_bytes} bytes")
    rows = [_read_row(fields) for fields in _SECTION.iter_unpack(_part(view, table, count * _SECTION.size))]
    if rows[names].kind != _STRING_TABLE:
        raise _refusal("its sections have no names")
    return machine, rows, _content(view, rows[names])


def _read_row(fields: tuple[int, ...]) -> _Row:
    name, kind, flags, _, offset, size, link, info, alignment, entry = fields
    return _Row(name, kind, flags, offset, size, link, info, alignment, entry)


def _is_in_memory(row: _Row, view: memoryview, names: memoryview) -> bool:
    """Whether a section is part of a program: tables for unwinding are not, since nothing unwinds through one."""
    return bool(row.flags & _ALLOCATED) and _name(names, row.name) != ".eh_frame"


def _read_section(view: memoryview, row: _Row, names: memoryview) -> Section:
    name = _name(names, row.name)
    is_code, is_writable = bool(row.flags & _EXECUTABLE), bool(row.flags & _WRITABLE)
    if row.flags & _THREAD_LOCAL or (is_code and is_writable):
        raise _refusal(f"section {name} has the flags {row.flags:#x}")
    alignment = max(row.alignment, 1)
    if alignment & (alignment - 1) or alignment > _ALIGNMENT or row.size > _MOST_ROOM:
        raise _refusal(f"section {name} is of {row.size} bytes aligned to {alignment}")
    content = memoryview(b"") if row.kind == _NO_BITS else _content(view, row)
    return Section(name, content, row.size, alignment, is_code, is_writable)


def _read_symbols(view: memoryview, rows: list[_Row], table: int, sections: dict[int, Section]) -> tuple[Symbol, ...]:
    row = rows[table]
    if row.entry != _SYMBOL.size or row.size % _SYMBOL.size or not 0 <= row.link < len(rows):
        raise _refusal("its table of symbols has rows of another size")
    if rows[row.link].kind != _STRING_TABLE:
        raise _refusal("its symbols have no names")
    names, symbols = _content(view, rows[row.link]), []
    for name, info, _, section, offset, _ in _SYMBOL.iter_unpack(_content(view, row)):
        place = None if section == _UNDEFINED else section
        if place in sections and offset > sections[place].size:
            raise _refusal(f"symbol {_name(names, name)} lies outside its section")
        symbols.append(Symbol(_name(names, name), place, offset, info >> 4 >= _GLOBAL))
    return tuple(symbols)


def _read_relocations(view: memoryview, row: _Row, section: Section, symbols: int) -> list[Relocation]:
    if row.entry != _RELOCATION.size or row.size % _RELOCATION.size:
        raise _refusal("its relocations have rows of another size")
    found = []
    for offset, info, addend in _RELOCATION.iter_unpack(_content(view, row)):
        if info >> 32 >= symbols or offset >= len(section.content):
            raise _refusal(f"a relocation of section {section.name} is for symbol {info >> 32} at {offset}")
        found.append(Relocation(row.info, offset, info & 0xFFFF_FFFF, info >> 32, addend))
    return found


def _content(view: memoryview, row: _Row) -> memoryview:
    return _part(view, row.offset, row.size)


def _part(view: memoryview, offset: int, size: int) -> memoryview:
    if offset + size > len(view):
        raise _refusal(f"{size} bytes at {offset} lie beyond its {len(view)}")
    return view[offset : offset + size]


def _name(names: memoryview, offset: int) -> str:
    """The text at an offset of a table of strings."""
    found, zero, _ = bytes(names[offset : offset + _NAME_BYTES]).partition(b"\0")
    if not zero or not found.isascii():
        raise _refusal(f"there is no name at {offset} of its strings")
    return found.decode("ascii")


def _refusal(why: str) -> InternalError:
    return InternalError("these bytes are no object file that LLVM made", why=why)
