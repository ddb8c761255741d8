"""Object files become one image: sections laid out, what they call of each other resolved, stubs for all else.

    main.o     code ─call─▶ k.dense            code       [main][k.dense][stub of tilewright_parallel]
    dense.o    code ─call─▶ parallel    ──▶    constants  [.rodata of both][slot of tilewright_parallel]
               .rodata                         data       [.bss of both]

All that does not depend on the address of the image is done here, when a program is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.codegen.elf import ObjectFile, Relocation, Section, Symbol, read_object
from tilewright.codegen.image import SLOT, STUBS, Image, round_up
from tilewright.codegen.relocations import Kind, find_kind, make_stub, relocate
from tilewright.report.errors import InternalError
from tilewright.target import Target
from tilewright.target.machine import is_elf

_CODE_FILL = b"\xcc"
"""Between functions, where nothing is executed: a trap on x86-64."""


def link_code(objects: Sequence[bytes], target: Target, exports: Iterable[str]) -> tuple[bytes, ...]:
    """Object files as a program keeps them: one image, or, where LLVM loads them, as they are."""
    return (link(objects, exports).encode(),) if is_elf(target.triple) else tuple(objects)


def link(objects: Sequence[bytes], exports: Iterable[str]) -> Image:
    """The image of object files for one machine. Raises InternalError where one is damaged, where two define the same
    name, where `exports` names a function that is not there, and for relocations that relocations.py does not know."""
    files = [read_object(data) for data in objects]
    machines = {file.machine for file in files}
    if len(machines) != 1:
        raise InternalError("object files for one program are for different machines", why=str(sorted(machines)))
    return _Link(files, machines.pop()).image(exports)


@dataclass(slots=True)
class _Part:
    """A part of the image as it grows; `room` counts the zeros behind its content, too."""

    fill: bytes = b"\0"
    content: bytearray = field(default_factory=bytearray)
    room: int = 0

    def add(self, section: Section) -> int:
        """Puts a section at the end; where it begins."""
        start = -(-self.room // section.alignment) * section.alignment
        if section.content:
            self.content += self.fill * (start - len(self.content)) + section.content
        self.room = start + section.size
        return start


class _Link:
    """The state of linking: the parts, the offset of each section in its part, and the addresses of names."""

    def __init__(self, files: Sequence[ObjectFile], machine: int) -> None:
        self._files, self._machine = files, machine
        self._code, self._constants, self._data = _Part(_CODE_FILL), _Part(), _Part()
        self._places: dict[tuple[int, int], tuple[_Part, int]] = {}
        self._defined: dict[str, tuple[int, Symbol]] = {}
        self._stubs: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        for n, file in enumerate(files):
            self._add(n, file)

    def _add(self, n: int, file: ObjectFile) -> None:
        for number, section in file.sections.items():
            part = self._code if section.is_code else self._data if section.is_writable else self._constants
            if section.is_writable == bool(section.content) and section.size:
                raise InternalError(f"section {section.name} is neither constant nor zeros to be written")
            self._places[n, number] = part, part.add(section)
        for symbol in file.symbols:
            if symbol.is_global and symbol.section is not None:
                if symbol.name in self._defined:
                    raise InternalError(f"two object files define {symbol.name}")
                self._defined[symbol.name] = n, symbol

    def image(self, exports: Iterable[str]) -> Image:
        """The parts, with every field in them as it should be."""
        for name in sorted(self._missing()):
            self._stubs[name] = self._reserve(self._code, STUBS[self._machine])
            self._slots[name] = self._reserve(self._constants, SLOT)
        for name, stub in self._stubs.items():
            slot = self._base(self._constants) + self._slots[name]
            self._code.content[stub : stub + STUBS[self._machine]] = make_stub(self._machine, stub, slot)
        for n, file in enumerate(self._files):
            fields = {(r.section, r.offset): r for r in file.relocations if not find_kind(file.machine, r.kind).is_rest}
            for relocation in file.relocations:
                self._relocate(n, relocation, fields)
        code, constants = bytes(self._code.content), bytes(self._constants.content)
        names = self._exports(exports), dict(self._slots), dict(self._stubs)
        return Image(self._machine, code, constants, self._data.room, *names)

    def _relocate(self, n: int, relocation: Relocation, fields: Mapping[tuple[int, int], Relocation]) -> None:
        """Fills a field of an object; `fields` are those with addresses of their own, by section and offset."""
        file = self._files[n]
        kind, whole = find_kind(file.machine, relocation.kind), relocation
        if kind.is_rest:
            first = file.symbols[relocation.symbol]
            found = None if first.section is None else fields.get((first.section, first.offset))
            if found is None:
                raise InternalError("a field of generated code is the rest of none", why=f"{kind.name} at {first.name}")
            whole = found
        target = self._address(n, file.symbols[whole.symbol], find_kind(file.machine, whole.kind)) + whole.addend
        part, start = self._places[n, relocation.section]
        part_of_whole, start_of_whole = self._places[n, whole.section]
        place = self._base(part_of_whole) + start_of_whole + whole.offset
        relocate(part.content, start + relocation.offset, kind, target, place)

    def _missing(self) -> set[str]:
        """The names that are used and nowhere defined."""
        used = (file.symbols[r.symbol] for file in self._files for r in file.relocations)
        missing = {symbol.name for symbol in used if symbol.section is None} - self._defined.keys()
        if "" in missing:
            raise InternalError("generated code uses a name that is empty")
        return missing

    def _reserve(self, part: _Part, size: int) -> int:
        return part.add(Section("", memoryview(bytes(size)), size, size, part is self._code, False))

    def _base(self, part: _Part) -> int:
        """The address of a part, if the image were at 0."""
        if part is self._code:
            return 0
        constants = round_up(len(self._code.content))
        return constants if part is self._constants else constants + round_up(len(self._constants.content))

    def _address(self, n: int, symbol: Symbol, kind: Kind) -> int:
        """The address that a relocation refers to, if the image were at 0."""
        if symbol.section is None:
            n, symbol = self._defined.get(symbol.name, (n, symbol))
        if symbol.section is None:
            if not kind.is_call:
                raise InternalError(f"generated code takes the address of {symbol.name}, which lies outside it")
            return self._stubs[symbol.name]
        if (n, symbol.section) not in self._places:
            raise InternalError(f"generated code uses {symbol.name or 'a section'}, which is not part of memory")
        part, start = self._places[n, symbol.section]
        return self._base(part) + start + symbol.offset

    def _exports(self, names: Iterable[str]) -> dict[str, int]:
        found = {}
        for name in names:
            n, symbol = self._defined.get(name, (0, None))
            part, start = (None, 0) if symbol is None else self._places.get((n, symbol.section or 0), (None, 0))
            if symbol is None or part is not self._code:
                raise InternalError(f"the object code has no function {name}")
            found[name] = start + symbol.offset
        return found
