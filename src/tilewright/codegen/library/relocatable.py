"""Images, object files and weights become one object file (ELF), for those who link themselves.

Sections are taken over as they are, with their relocations; an image is one section, constants behind its code, whose
stubs are relocated jumps. Only the names that others see are global, so that object files of several models may be
linked together. Nothing of a toolchain is needed to make it, nor of ours to link it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.codegen.elf import ObjectFile, Section
from tilewright.codegen.image import AARCH64, RISCV, SLOT, STUBS, X86_64, Image
from tilewright.codegen.library.dynamic import MACHINE_FLAGS, Strings
from tilewright.report.errors import InternalError

Bytes = bytes | memoryview

_HEADER = struct.Struct("<4sBBBB8xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_RELOCATABLE: Final = 1
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOBITS, _INIT, _FINI = 1, 2, 3, 4, 8, 14, 15
_WRITTEN, _ALLOCATED, _EXECUTED, _INFO = 1, 2, 4, 0x40
_GLOBAL, _FUNCTION = 1 << 4, 2
_PAGE: Final = 4096

_JUMP: Final[Mapping[int, tuple[bytes, int, int, int]]] = {
    X86_64: (b"\xe9\0\0\0\0\xcc\xcc\xcc", 1, 4, -4),
    AARCH64: (bytes.fromhex("00000014 1f2003d5 1f2003d5 1f2003d5"), 0, 282, 0),
    RISCV: (bytes.fromhex("170e0000 67000e00 13000000 13000000"), 0, 19, 0),
}
"""A jump in place of a stub, the place of its field, the kind of the field's relocation, and its addend."""

_ADDRESS: Final[Mapping[int, tuple[bytes, tuple[tuple[int, int, int], ...]]]] = {
    X86_64: (b"\x48\x8d\x05\0\0\0\0\xc3", ((3, 2, -4),)),
    AARCH64: (bytes.fromhex("00000090 00000091 c0035fd6"), ((0, 275, 0), (4, 277, 0))),
    RISCV: (bytes.fromhex("17050000 83250501 3305b500 67800000 00000000"), ((16, 57, 16),)),
}
"""A function that returns an address, with the places, kinds and addends of its fields. On RISC-V the distance is a
word behind it (32_PCREL): auipc a0, 0; lw a1, 16(a0); add a0, a0, a1; ret."""

_POINTER: Final[Mapping[int, int]] = {X86_64: 1, AARCH64: 257, RISCV: 2}
"""The relocation of a word that becomes an address (64, ABS64)."""


@dataclass(frozen=True, slots=True)
class Linked:
    """An image, with the names that its functions have among the others by their names in it."""

    image: Image
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Material:
    """What an object file is made of: object files as LLVM wrote them and images, which call one another by name; the
    names that others see, `exports`; the functions that run first and last; weights, and the name of the function that
    says where these begin."""

    objects: Sequence[ObjectFile]
    images: Sequence[Linked]
    exports: Sequence[str]
    on_load: str
    on_unload: str
    weights_name: str
    weights: Sequence[Bytes] = ()


@dataclass(slots=True)
class _Row:
    """A section as it will be written; relocations name symbols by their numbers among all, locals first."""

    name: str
    kind: int
    flags: int
    content: Sequence[Bytes]
    size: int
    alignment: int
    relocations: list[tuple[int, int, int, int]] = field(default_factory=list)


class _Writer:
    """The state of writing: sections, and symbols by the names that others of the material may use."""

    def __init__(self, material: Material) -> None:
        self._material = material
        machines = {o.machine for o in material.objects} | {i.image.machine for i in material.images}
        if len(machines) != 1:
            raise InternalError("parts of one object file are for different machines", why=str(sorted(machines)))
        self._machine = machines.pop()
        self._rows: list[_Row] = []
        self._symbols: list[tuple[str, int, int, bool]] = []
        self._named: dict[str, int] = {}
        self._late: list[tuple[_Row, int, int, int, str]] = []
        for one in material.objects:
            self._add_object(one)
        for linked in material.images:
            self._add_image(linked)
        self._add_weights()
        self._add_ends()
        for row, offset, kind, addend, name in self._late:
            row.relocations.append((offset, kind, self._symbol(name), addend))

    def _define(self, name: str, section: int, offset: int, known: bool = True) -> int:
        """A symbol; one that is `known` may be used by its name."""
        number = len(self._symbols)
        self._symbols.append((name, section, offset, name in self._material.exports))
        if known and name:
            if name in self._named:
                raise InternalError(f"two parts of an object file define {name}")
            self._named[name] = number
        return number

    def _symbol(self, name: str) -> int:
        """The number of a name; one that nobody defines is the system's."""
        if name not in self._named:
            self._named[name] = len(self._symbols)
            self._symbols.append((name, 0, 0, True))
        return self._named[name]

    def _add(self, row: _Row) -> int:
        """The number of a section."""
        self._rows.append(row)
        return len(self._rows)

    def _add_object(self, one: ObjectFile) -> None:
        numbers = {n: self._add(_row_of(section)) for n, section in one.sections.items()}
        symbols: dict[int, int] = {}
        for n, symbol in enumerate(one.symbols):
            if symbol.section in numbers:
                symbols[n] = self._define(symbol.name, numbers[symbol.section], symbol.offset, symbol.is_global)
        for r in one.relocations:
            row = self._rows[numbers[r.section] - 1]
            if r.symbol in symbols:
                row.relocations.append((r.offset, r.kind, symbols[r.symbol], r.addend))
            else:
                self._late.append((row, r.offset, r.kind, r.addend, one.symbols[r.symbol].name))

    def _add_image(self, linked: Linked) -> None:
        image = linked.image
        if image.room:
            raise InternalError("an image with data cannot become part of an object file")
        code = bytearray(image.code)
        jump, place, kind, addend = _JUMP[self._machine]
        for at in image.stubs.values():
            code[at : at + STUBS[self._machine]] = jump
        content = bytes(code)
        if image.constants:
            content = content.ljust(image.constants_at, b"\0") + image.constants
        row = _Row(".text", _PROGBITS, _ALLOCATED | _EXECUTED, (content,), len(content), _PAGE)
        section = self._add(row)
        for inside, name in linked.names.items():
            self._define(name, section, image.exports[inside])
        for name, at in image.stubs.items():
            self._late.append((row, at + place, kind, addend, name))

    def _add_weights(self) -> None:
        material = self._material
        size = sum(memoryview(part).nbytes for part in material.weights)
        if not size:
            return
        weights = self._add(_Row(".rodata", _PROGBITS, _ALLOCATED, material.weights, size, _PAGE))
        start = self._define("", weights, 0)
        code, fields = _ADDRESS[self._machine]
        row = _Row(".text", _PROGBITS, _ALLOCATED | _EXECUTED, (code,), len(code), 16)
        row.relocations += [(place, kind, start, addend) for place, kind, addend in fields]
        self._define(material.weights_name, self._add(row), 0)

    def _add_ends(self) -> None:
        """What runs before and after all else."""
        ends = ((".init_array", _INIT, self._material.on_load), (".fini_array", _FINI, self._material.on_unload))
        for name, kind, function in ends:
            row = _Row(name, kind, _ALLOCATED | _WRITTEN, (bytes(SLOT),), SLOT, SLOT)
            self._add(row)
            self._late.append((row, 0, _POINTER[self._machine], 0, function))
        self._add(_Row(".note.GNU-stack", _PROGBITS, 0, (), 0, 1))

    # --- bytes ------------------------------------------------------------------------------------------------------

    def parts(self) -> Iterator[Bytes]:
        """The file in parts that follow one another."""
        order = sorted(range(len(self._symbols)), key=lambda n: self._symbols[n][3])
        numbers = {n: place for place, n in enumerate(order, 1)}
        names, strings = Strings(), Strings()
        table = bytes(_SYMBOL.size) + b"".join(self._symbol_row(self._symbols[n], strings) for n in order)
        rows = [*self._rows, *self._relocation_rows(numbers)]
        locals_ = 1 + sum(not symbol[3] for symbol in self._symbols)
        symbols = len(rows) + 1
        rows.append(_Row(".symtab", _SYMTAB, 0, (table,), len(table), SLOT))
        rows.append(_Row(".strtab", _STRTAB, 0, (bytes(strings.content),), len(strings.content), 1))
        for row in (*rows, _Row(".shstrtab", _STRTAB, 0, (), 0, 1)):
            names.place(row.name)
        rows.append(_Row(".shstrtab", _STRTAB, 0, (bytes(names.content),), len(names.content), 1))
        places, end = [], _HEADER.size
        for row in rows:
            places.append(end + -end % max(row.alignment, 1))
            end = places[-1] + (0 if row.kind == _NOBITS else row.size)
        sections_at = end + -end % SLOT
        sizes = (_HEADER.size, 0, 0, _SECTION.size, len(rows) + 1, len(rows))
        head = (
            b"\x7fELF",
            2,
            1,
            1,
            0,
            _RELOCATABLE,
            self._machine,
            1,
            0,
            0,
            sections_at,
            MACHINE_FLAGS.get(self._machine, 0),
        )
        yield _HEADER.pack(*head, *sizes)
        end = _HEADER.size
        for row, at in zip(rows, places, strict=True):
            yield bytes(at - end)
            yield from row.content
            end = at + (0 if row.kind == _NOBITS else row.size)
        yield bytes(sections_at - end)
        yield bytes(_SECTION.size)
        targets = [n for n, row in enumerate(self._rows, 1) if row.relocations]
        for n, (row, at) in enumerate(zip(rows, places, strict=True)):
            link, info, entry = 0, 0, 0
            if row.kind == _RELA:
                link, info, entry = symbols, targets[n - len(self._rows)], _RELOCATION.size
            elif row.kind == _SYMTAB:
                link, info, entry = symbols + 1, locals_, _SYMBOL.size
            yield _SECTION.pack(
                names.place(row.name), row.kind, row.flags, 0, at, row.size, link, info, row.alignment, entry
            )

    def _symbol_row(self, symbol: tuple[str, int, int, bool], strings: Strings) -> bytes:
        name, section, offset, is_global = symbol
        kind = (_GLOBAL if is_global else 0) | (_FUNCTION if is_global and section else 0)
        return _SYMBOL.pack(strings.place(name), kind, 0, section, offset, 0)

    def _relocation_rows(self, numbers: Mapping[int, int]) -> Iterator[_Row]:
        for row in self._rows:
            if row.relocations:
                made = (_RELOCATION.pack(at, numbers[s] << 32 | kind, add) for at, kind, s, add in row.relocations)
                content = b"".join(made)
                yield _Row(f".rela{row.name}", _RELA, _INFO, (content,), len(content), SLOT)


def _row_of(section: Section) -> _Row:
    flags = _ALLOCATED | (_EXECUTED if section.is_code else 0) | (_WRITTEN if section.is_writable else 0)
    kind = _NOBITS if section.size and not section.content else _PROGBITS
    return _Row(section.name, kind, flags, (section.content,), section.size, section.alignment)


def object_file(material: Material) -> Iterator[Bytes]:
    """The bytes of the object file, in parts that follow one another. Equal material gives equal bytes. Raises
    InternalError for parts of several machines, and for a name that two of them define."""
    return _Writer(material).parts()


def archive(member: str, parts: Sequence[Bytes], names: Sequence[str]) -> Iterator[Bytes]:
    """A static library (`ar`) of one object file, which defines `names`: linkers find it by the index in front."""
    index = struct.pack(f">{1 + len(names)}I", len(names), *[_index_end(names)] * len(names))
    index += b"".join(name.encode() + b"\0" for name in names)
    size = sum(memoryview(part).nbytes for part in parts)
    yield b"!<arch>\n" + _member("/", len(index)) + index + b"\n" * (len(index) % 2)
    yield _member(f"{member}/", size)
    yield from parts
    yield b"\n" * (size % 2)


def _index_end(names: Sequence[str]) -> int:
    """Where the member behind the index begins."""
    size = 4 + 4 * len(names) + sum(len(name) + 1 for name in names)
    return 8 + 60 + size + size % 2


def _member(name: str, size: int) -> bytes:
    return f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{size:<10}`\n".encode()
