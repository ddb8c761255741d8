"""Object files as LLVM writes them for WebAssembly, read into plain values.

A relocatable file is a module with two custom sections more: `linking` names functions and pieces of data, and
`reloc.CODE` and `reloc.DATA` say where numbers of functions and addresses stand (tool-conventions, Linking.md). Bytes
that end too early, or that use what LLVM does not write, are an InternalError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tilewright.report.errors import InternalError

MAGIC: Final = b"\0asm\x01\0\0\0"

TYPE, IMPORT, FUNCTION, CODE, DATA = 1, 2, 3, 10, 11

TYPE_NUMBER: Final = 6
"""The relocation that is the number of a type."""

FUNCTION_KIND, DATA_KIND, GLOBAL_KIND, SECTION_KIND, _, TABLE_KIND = range(6)

_FUNCTION_IMPORT, _TABLE_IMPORT, _MEMORY_IMPORT, _GLOBAL_IMPORT = range(4)
_UNDEFINED, _LOCAL, _NAMED = 0x10, 0x02, 0x40
_SEGMENT_INFO, _SYMBOL_TABLE = 5, 8
_MOST_ALIGNMENT: Final = 16
_WITH_ADDEND: Final = {3, 4, 5, 8, 9}


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name: of the function with this number (imported ones come first), of a global or a table, or of the place
    `offset` in the piece of data with this number. Others define it where `index` is None."""

    kind: int
    name: str
    index: int | None
    offset: int
    is_local: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """A field at `offset` of the code or data section: the number or the address of a symbol, or of a type."""

    kind: int
    offset: int
    index: int
    addend: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of data: its content, which is at `start` of the data section, and what its address is a multiple of."""

    start: int
    content: bytes
    alignment: int


@dataclass(slots=True)
class WasmObject:
    """What a file says. Bodies are functions as the code section has them, by where each begins in it, with its size;
    `functions` are the types of its own functions, `imported` those of others'."""

    types: list[bytes] = field(default_factory=list)
    imported: list[tuple[str, int]] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    bodies: list[tuple[int, bytes]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    code_relocations: list[Relocation] = field(default_factory=list)
    data_relocations: list[Relocation] = field(default_factory=list)


class Reader:
    """Numbers and strings of a part of a file, one after another."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    def byte(self) -> int:
        return self.take(1)[0]

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > self.end:
            raise _refusal(f"{size} bytes at {self.at} lie beyond a part that ends at {self.end}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, *, signed: bool = False) -> int:
        """A number in groups of seven bits (LEB128)."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value
            if shift > 70:
                raise _refusal("a number has too many bytes")

    def text(self) -> str:
        return self.take(self.number()).decode(errors="replace")

    def part(self) -> Reader:
        """The next part, which is as long as the number before it."""
        size = self.number()
        start = self.at
        self.take(size)
        return Reader(self.data, start, start + size)


def read_wasm(data: bytes) -> WasmObject:
    """Reads an object file. Raises InternalError for bytes that are none."""
    if data[:8] != MAGIC:
        raise _refusal("it does not begin as a module")
    found, reader, starts = WasmObject(), Reader(data, 8), dict[int, int]()
    later: list[tuple[str, Reader]] = []
    while reader.at < reader.end:
        kind = reader.byte()
        part = reader.part()
        starts[kind] = part.at
        if kind == 0:
            later.append((part.text(), part))
        else:
            _read_section(found, kind, part)
    for name, part in later:
        if name == "linking":
            _read_linking(found, part)
        elif name in ("reloc.CODE", "reloc.DATA"):
            part.number()
            rows = found.code_relocations if name == "reloc.CODE" else found.data_relocations
            rows += _relocations(part)
    _check(found)
    return found


def _check(found: WasmObject) -> None:
    """Refuses numbers of what is not there."""
    types, functions = len(found.types), len(found.imported) + len(found.functions)
    most = {FUNCTION_KIND: functions, DATA_KIND: len(found.segments)}
    kinds = [kind for _, kind in found.imported] + found.functions
    inside = [(kind, types) for kind in kinds]
    inside += [(s.index, most[s.kind]) for s in found.symbols if s.index is not None and s.kind in most]
    for relocation in (*found.code_relocations, *found.data_relocations):
        inside.append((relocation.index, types if relocation.kind == TYPE_NUMBER else len(found.symbols)))
    if any(not 0 <= number < count for number, count in inside) or len(found.bodies) != len(found.functions):
        raise _refusal("it has the number of something that is not there")
    own = range(len(found.imported), functions)
    if any(s.kind == FUNCTION_KIND and s.index is not None and s.index not in own for s in found.symbols):
        raise _refusal("it defines a function of others")


def _read_section(found: WasmObject, kind: int, part: Reader) -> None:
    start = part.at
    if kind == TYPE:
        found.types += [_type(part) for _ in range(part.number())]
    elif kind == IMPORT:
        for _ in range(part.number()):
            _read_import(found, part)
    elif kind == FUNCTION:
        found.functions += [part.number() for _ in range(part.number())]
    elif kind == CODE:
        for _ in range(part.number()):
            size = part.number()
            found.bodies.append((part.at - start, part.take(size)))
    elif kind == DATA:
        for _ in range(part.number()):
            if part.number() != 0:
                raise _refusal("a piece of data is not put at an address")
            _skip_expression(part)
            size = part.number()
            found.segments.append(Segment(part.at - start, part.take(size), 1))


def _type(part: Reader) -> bytes:
    start = part.at
    part.byte()
    for _ in range(2):
        part.take(part.number())
    return part.data[start : part.at]


def _read_import(found: WasmObject, part: Reader) -> None:
    part.text()
    name, kind = part.text(), part.byte()
    if kind == _FUNCTION_IMPORT:
        found.imported.append((name, part.number()))
    elif kind == _GLOBAL_IMPORT:
        part.take(2)
    elif kind in (_TABLE_IMPORT, _MEMORY_IMPORT):
        part.take(1 if kind == _TABLE_IMPORT else 0)
        for _ in range(1 + (part.number() & 1)):
            part.number()
    else:
        raise _refusal(f"it imports {name}, of kind {kind}")


def _skip_expression(part: Reader) -> None:
    """An address as instructions: i32.const 0, end."""
    if part.byte() != 0x41:
        raise _refusal("an address of data is no constant")
    part.number(signed=True)
    part.byte()


def _read_linking(found: WasmObject, part: Reader) -> None:
    if part.number() != 2:
        raise _refusal("its linking section is of another version")
    while part.at < part.end:
        kind = part.byte()
        rows = part.part()
        if kind == _SEGMENT_INFO:
            for n in range(rows.number()):
                rows.text()
                if n >= len(found.segments):
                    raise _refusal("it describes a piece of data that is not there")
                old = found.segments[n]
                power = rows.number()
                if power > _MOST_ALIGNMENT:
                    raise _refusal(f"a piece of data begins at multiples of 2^{power}")
                found.segments[n] = Segment(old.start, old.content, 1 << power)
                rows.number()
        elif kind == _SYMBOL_TABLE:
            found.symbols += [_symbol(found, rows) for _ in range(rows.number())]
        else:
            raise _refusal(f"its linking section has a part {kind}")


def _symbol(found: WasmObject, rows: Reader) -> Symbol:
    kind, flags = rows.byte(), rows.number()
    undefined, is_local = bool(flags & _UNDEFINED), bool(flags & _LOCAL)
    if kind == DATA_KIND:
        name = rows.text()
        if undefined:
            return Symbol(kind, name, None, 0, is_local)
        index, offset, _ = rows.number(), rows.number(), rows.number()
        return Symbol(kind, name, index, offset, is_local)
    index = rows.number()
    if kind == SECTION_KIND:
        return Symbol(kind, "", index, 0, True)
    if not undefined or flags & _NAMED:
        name = rows.text()
    else:
        if kind == FUNCTION_KIND and index >= len(found.imported):
            raise _refusal(f"it imports no function {index}")
        name = found.imported[index][0] if kind == FUNCTION_KIND else ""
    return Symbol(kind, name, None if undefined and kind == FUNCTION_KIND else index, 0, is_local)


def _relocations(part: Reader) -> Iterator[Relocation]:
    for _ in range(part.number()):
        kind, offset, index = part.byte(), part.number(), part.number()
        yield Relocation(kind, offset, index, part.number(signed=True) if kind in _WITH_ADDEND else 0)


def _refusal(why: str) -> InternalError:
    return InternalError("these bytes are no object file that LLVM made", why=why)
