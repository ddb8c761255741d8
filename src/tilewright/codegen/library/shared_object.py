"""Images and weights become one shared object (ELF), which the system's loader maps: no linker is needed.

    R    head          ELF's header, the table of segments, names and relocations
    RX   code          ┐
    R    constants     ├ of each image
    RW   data          ┘ zeros
    RW   slots         the addresses of functions outside, and `.dynamic`; sealed when they are written (RELRO)
    R    weights       at the beginning of a page: read when they are used, shared between processes

Weights of megabytes are where the file and memory agree in large pages (LARGE_PAGE), so that the system may map them in
such, where it keeps the file so: a fault brings 2 MiB instead of 64 KiB. In the file they are at a multiple of
WEIGHTS_AT, so that where they begin is known before the code is.

An image is as it was linked, but for its stubs: a stub jumps through a slot of the library, or to a function of another
image, or returns where the weights begin. So nothing but the slots is ever relocated, and code and constants are
shared, too. The table of sections at the end of the file is for linkers and people; the loader does not read it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.codegen.image import RISCV, SLOT, STUBS, X86_64, Image, round_up
from tilewright.codegen.library.dynamic import LIBC, LIBM, MACHINE_FLAGS, Place, Symbols, address_row, moved_row
from tilewright.codegen.library.places import WEIGHTS_AT
from tilewright.codegen.relocations import make_address, make_jump, make_stub
from tilewright.report.errors import InternalError
from tilewright.store.blocks import LARGE_PAGE
from tilewright.target.code_pages import ALIGNMENT

Bytes = bytes | memoryview

_HEADER = struct.Struct("<4sBBBB8xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC = struct.Struct("<QQ")

_SHARED_OBJECT: Final = 3
_X, _W, _R = 1, 2, 4
_LOAD, _DYNAMIC_SEGMENT, _STACK, _RELRO = 1, 2, 0x6474_E551, 0x6474_E552
_PROGBITS, _STRTAB, _RELA, _HASH, _DYNAMIC_SECTION, _NOBITS, _DYNSYM, _VERNEED, _VERSYM = (
    *(1, 3, 4, 5, 6, 8, 11),
    *(0x6FFF_FFFE, 0x6FFF_FFFF),
)
_ALLOCATED, _WRITTEN, _EXECUTED = 2, 1, 4
_NEEDED, _AT_HASH, _AT_STRINGS, _AT_SYMBOLS, _AT_RELOCATIONS = 1, 4, 5, 6, 7
_RELOCATION_BYTES, _RELOCATION_ROW, _STRING_BYTES, _SYMBOL_ROW, _INIT, _FINI = 8, 9, 10, 11, 25, 26
_INIT_BYTES, _FINI_BYTES, _FLAGS, _FLAGS_1, _AT_VERSIONS, _AT_NEEDS, _NEEDS = (
    *(27, 28, 30),
    *(0x6FFF_FFFB, 0x6FFF_FFF0, 0x6FFF_FFFE, 0x6FFF_FFFF),
)
_SYMBOLIC_AND_NOW, _NOW_1 = 2 | 8, 1
_RELOCATION_ENTRY, _SYMBOL_ENTRY = 24, 24
_SYMBOLS_NUMBER, _STRINGS_NUMBER = 2, 6
"""Where sections are in their table, those of the head first."""

_PART_ALIGNMENT: Final = 64
_WEIGHTS: Final = ".weights"

_FILE_PAGE: Final[Mapping[int, int]] = {X86_64: 1 << 12, RISCV: 1 << 12}
"""Places in the file and in memory agree in this many bytes, the largest page of the architecture's systems; elsewhere
that is ALIGNMENT."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An image of a library, with the names that its functions have there by their names in the image, and those of
    functions of the library that its imports stand for; all other imports are the system's."""

    image: Image
    names: Mapping[str, str]
    imports: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a library is made of: images for one machine; the names that others see, `exports`; the functions that run
    when it is loaded and before it is unloaded; `weights`, parts of bytes that follow one another, and `weights_name`,
    the import by which images ask where they begin."""

    pieces: Sequence[Piece]
    exports: Sequence[str]
    on_load: str
    on_unload: str
    weights_name: str
    weights: Sequence[Bytes] = ()


def shared_object(contents: Contents) -> Iterator[Bytes]:
    """The bytes of the library, in parts that follow one another. Equal contents give equal bytes. Raises InternalError
    for images of several machines, and for an import that no piece has."""
    machines = {piece.image.machine for piece in contents.pieces}
    if len(machines) != 1:
        raise InternalError("images of one library are for different machines", why=str(sorted(machines)))
    return _Writer(contents, machines.pop()).parts()


@dataclass(slots=True)
class _Part:
    """A part of the file that is in memory, a section: its content, in pieces that follow one another, or none and
    `room` for so many bytes of zeros."""

    name: str
    kind: int
    rights: int
    address: int
    content: Sequence[Bytes]
    room: int = 0
    link: int = 0
    info: int = 0
    entry: int = 0
    offset: int = 0

    @property
    def stored(self) -> int:
        """Its bytes in the file."""
        return sum(memoryview(piece).nbytes for piece in self.content)

    @property
    def size(self) -> int:
        """Its bytes in memory."""
        return self.stored + self.room


class _Writer:
    """The state of writing a library: where everything lies, then the bytes."""

    def __init__(self, contents: Contents, machine: int) -> None:
        self._contents, self._machine = contents, machine
        self._outside = sorted({n for p in contents.pieces for n in p.image.imports if n not in p.imports})
        self._symbols = Symbols(machine, self._outside, contents.exports)
        self._page = self._weights_page = _FILE_PAGE.get(machine, ALIGNMENT)
        self._bases: list[int] = []
        self._places: dict[str, Place] = {}
        self._lay_out()

    def _lay_out(self) -> None:
        """Gives every part its address."""
        self._head = self._head_sizes()
        at = round_up(self._segments_end() + sum(size + -size % SLOT for size in self._head.values()))
        first_section = 1 + len(self._head)
        for n, piece in enumerate(self._contents.pieces):
            self._bases.append(at)
            for inside, name in piece.names.items():
                self._places[name] = Place(at + piece.image.exports[inside], 0, first_section + 3 * n)
            at = round_up(at + piece.image.size)
        self._slots_at = at
        self._ends_at = at + SLOT * len(self._outside)
        self._dynamic_at = self._ends_at + 2 * SLOT
        self._sealed = round_up(self._dynamic_at + _DYNAMIC.size * len(self._dynamic_rows({}))) - at
        self._weights_at = at + self._sealed

    def _segment_count(self) -> int:
        """Room for so many segments: the head, three of each image, slots, weights, three that are said of these."""
        return 1 + 3 * len(self._contents.pieces) + 2 + 3

    def _segments_end(self) -> int:
        return _HEADER.size + _SEGMENT.size * self._segment_count()

    def _head_sizes(self) -> dict[str, int]:
        """The parts of the head with their bytes."""
        symbols = self._symbols
        rows = 1 + len(self._outside) + len(self._contents.exports)
        sizes = {".hash": len(symbols.hash_table()), ".dynsym": _SYMBOL_ENTRY * rows}
        sizes |= {".gnu.version": 2 * rows, ".gnu.version_r": len(symbols.needed_versions()[0])}
        sizes |= {".rela.dyn": _RELOCATION_ENTRY * (len(self._outside) + 2), ".dynstr": len(symbols.strings.content)}
        return sizes

    def parts(self) -> Iterator[Bytes]:
        """The parts of the file in their order."""
        memory = self._memory()
        weights = memory[-1]
        if weights.name == _WEIGHTS and weights.size >= LARGE_PAGE:
            self._weights_page = LARGE_PAGE
            offset = weights.offset + -weights.offset % WEIGHTS_AT
            self._weights_at += (offset - self._weights_at) % LARGE_PAGE
            memory = self._memory()
        end = memory[-1].offset + memory[-1].stored
        sections_at = end + -end % SLOT
        names, sections = self._sections(memory, sections_at)
        yield self._header(sections_at, len(sections) // _SECTION.size)
        yield self._segments(memory)
        end = self._segments_end()
        for part in memory:
            yield bytes(part.offset - end)
            yield from part.content
            end = part.offset + part.stored
        yield bytes(sections_at - end)
        yield sections
        yield names

    def _page_of(self, part: _Part) -> int:
        """Places of a part in the file and in memory agree in so many bytes."""
        return self._weights_page if part.name == _WEIGHTS else self._page

    def _memory(self) -> list[_Part]:
        """All that is in memory, with its places. Sizes do not depend on where the weights are."""
        head = self._head_parts()
        memory = [*head, *self._image_parts(), *self._slot_parts(head)]
        if self._contents.weights:
            memory.append(_Part(_WEIGHTS, _PROGBITS, _R, self._weights_at, self._contents.weights))
        end = self._segments_end()
        for part in memory:
            part.offset = end + (part.address - end) % self._page_of(part)
            end = part.offset + part.stored
        return memory

    # --- content ----------------------------------------------------------------------------------------------------

    def _head_parts(self) -> list[_Part]:
        """The tables of names, versions and relocations."""
        symbols = self._symbols
        contents = {
            ".hash": symbols.hash_table(),
            ".dynsym": symbols.table(self._places),
            ".gnu.version": symbols.version_table(),
            ".gnu.version_r": symbols.needed_versions()[0],
            ".rela.dyn": self._relocations(),
            ".dynstr": bytes(symbols.strings.content),
        }
        kinds = {
            ".hash": (_HASH, _SYMBOLS_NUMBER, 0, 4),
            ".dynsym": (_DYNSYM, _STRINGS_NUMBER, 1, _SYMBOL_ENTRY),
            ".gnu.version": (_VERSYM, _SYMBOLS_NUMBER, 0, 2),
            ".gnu.version_r": (_VERNEED, _STRINGS_NUMBER, symbols.needed_versions()[1], 0),
            ".rela.dyn": (_RELA, _SYMBOLS_NUMBER, 0, _RELOCATION_ENTRY),
            ".dynstr": (_STRTAB, 0, 0, 0),
        }
        parts, at = [], self._segments_end()
        for name, content in contents.items():
            if len(content) != self._head[name]:
                raise InternalError(f"the part {name} of a library has another size than planned")
            kind, link, info, entry = kinds[name]
            parts.append(_Part(name, kind, _R, at, (content,), 0, link, info, entry))
            at += len(content) + -len(content) % SLOT
        return parts

    def _image_parts(self) -> Iterator[_Part]:
        for n, (piece, base) in enumerate(zip(self._contents.pieces, self._bases, strict=True)):
            image = piece.image
            code = self._code(piece, base)
            yield _Part(f".text{n or ''}", _PROGBITS, _R | _X, base, (code,))
            yield _Part(f".rodata{n or ''}", _PROGBITS, _R, base + image.constants_at, (image.constants,))
            yield _Part(f".bss{n or ''}", _NOBITS, _R | _W, base + image.data_at, (), image.room)

    def _code(self, piece: Piece, base: int) -> bytes:
        """The code of an image, with stubs of the library."""
        code, machine = bytearray(piece.image.code), self._machine
        for name, place in piece.image.stubs.items():
            at = base + place
            if name not in piece.imports:
                stub = make_stub(machine, at, self._slots_at + SLOT * self._outside.index(name))
            elif piece.imports[name] == self._contents.weights_name:
                stub = make_address(machine, at, self._weights_at)
            else:
                stub = make_jump(machine, at, self._address(piece.imports[name]))
            code[place : place + STUBS[machine]] = stub
        return bytes(code)

    def _address(self, name: str) -> int:
        if name not in self._places:
            raise InternalError(f"no image of the library has a function {name}")
        return self._places[name].address

    def _relocations(self) -> bytes:
        rows = [
            address_row(self._machine, self._slots_at + SLOT * n, self._symbols.number(name))
            for n, name in enumerate(self._outside)
        ]
        ends = (self._contents.on_load, self._contents.on_unload)
        rows += [moved_row(self._machine, self._ends_at + SLOT * n, self._address(name)) for n, name in enumerate(ends)]
        return b"".join(rows)

    def _slot_parts(self, head: Sequence[_Part]) -> list[_Part]:
        slots = bytes(self._dynamic_at - self._slots_at)
        rows = self._dynamic_rows({part.name: part for part in head})
        dynamic = b"".join(_DYNAMIC.pack(*row) for row in rows)
        kind = _DYNAMIC_SECTION, _R | _W, self._dynamic_at
        return [
            _Part(".got", _PROGBITS, _R | _W, self._slots_at, (slots,)),
            _Part(".dynamic", *kind, (dynamic,), 0, _STRINGS_NUMBER, 0, _DYNAMIC.size),
        ]

    def _dynamic_rows(self, head: Mapping[str, _Part]) -> list[tuple[int, int]]:
        """What the loader is told; places are 0 as long as the head is not known."""
        at = {name: head[name].address if head else 0 for name in self._head}
        strings = self._symbols.strings
        ends = (0, 0) if not head else (self._ends_at, self._ends_at + SLOT)
        rows = [(_NEEDED, strings.place(LIBC)), (_NEEDED, strings.place(LIBM))]
        rows += [(_INIT, ends[0]), (_INIT_BYTES, SLOT), (_FINI, ends[1]), (_FINI_BYTES, SLOT)]
        rows += [(_AT_HASH, at[".hash"]), (_AT_STRINGS, at[".dynstr"]), (_AT_SYMBOLS, at[".dynsym"])]
        rows += [(_STRING_BYTES, self._head[".dynstr"]), (_SYMBOL_ROW, _SYMBOL_ENTRY)]
        rows += [(_AT_RELOCATIONS, at[".rela.dyn"]), (_RELOCATION_BYTES, self._head[".rela.dyn"])]
        rows += [(_RELOCATION_ROW, _RELOCATION_ENTRY), (_FLAGS, _SYMBOLIC_AND_NOW), (_FLAGS_1, _NOW_1)]
        if self._head[".gnu.version_r"]:
            rows += [(_AT_VERSIONS, at[".gnu.version"]), (_AT_NEEDS, at[".gnu.version_r"]), (_NEEDS, 1)]
        return [*rows, (0, 0)]

    # --- tables -----------------------------------------------------------------------------------------------------

    def _header(self, sections_at: int, sections: int) -> bytes:
        sizes = (_HEADER.size, _SEGMENT.size, self._segment_count(), _SECTION.size, sections, sections - 1)
        return _HEADER.pack(
            *(b"\x7fELF", 2, 1, 1, 0, _SHARED_OBJECT, self._machine, 1, 0),
            *(_HEADER.size, sections_at, MACHINE_FLAGS.get(self._machine, 0), *sizes),
        )

    def _segments(self, memory: Sequence[_Part]) -> bytes:
        """What the loader maps, and what it shall seal."""
        by_name = {part.name: part for part in memory}
        strings, got, dynamic = by_name[".dynstr"], by_name[".got"], by_name[".dynamic"]
        head = strings.address + strings.size
        sealed = dynamic.offset + dynamic.stored - got.offset
        rows = [(_LOAD, _R, 0, 0, head, head, self._page)]
        for part in memory:
            if part is got:
                rows.append((_LOAD, _R | _W, got.offset, got.address, sealed, self._sealed, self._page))
            elif part.name not in self._head and part is not dynamic and part.size:
                place = part.rights, part.offset, part.address, part.stored, part.size
                rows.append((_LOAD, *place, self._page_of(part)))
        rows.append((_DYNAMIC_SEGMENT, _R | _W, dynamic.offset, dynamic.address, dynamic.size, dynamic.size, SLOT))
        rows.append((_RELRO, _R, got.offset, got.address, sealed, self._sealed, 1))
        rows.append((_STACK, _R | _W, 0, 0, 0, 0, 16))
        rows += [(0, 0, 0, 0, 0, 0, 0)] * (self._segment_count() - len(rows))
        return b"".join(_SEGMENT.pack(k, r, o, a, a, s, m, p) for k, r, o, a, s, m, p in rows)

    def _sections(self, memory: Sequence[_Part], at: int) -> tuple[bytes, bytes]:
        """The names of the sections, and their table, which is at a place of the file and has the names behind it."""
        names, rows = bytearray(b"\0"), [bytes(_SECTION.size)]
        for part in memory:
            flags = _ALLOCATED | (_WRITTEN if part.rights & _W else 0) | (_EXECUTED if part.rights & _X else 0)
            place = (len(names), part.kind, flags, part.address, part.offset, part.size)
            rows.append(_SECTION.pack(*place, part.link, part.info, self._section_alignment(part), part.entry))
            names += part.name.encode() + b"\0"
        last = len(names)
        names += b".shstrtab\0"
        at += _SECTION.size * (len(rows) + 1)
        rows.append(_SECTION.pack(last, _STRTAB, 0, 0, at, len(names), 0, 0, 1, 0))
        return bytes(names), b"".join(rows)

    def _section_alignment(self, part: _Part) -> int:
        return SLOT if part.name in self._head or part.name in (".got", ".dynamic") else _PART_ALIGNMENT
