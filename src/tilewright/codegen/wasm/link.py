"""Object files of WebAssembly become one module with a memory of its own.

    0 … stack       the stack, which grows down from there: what grows beyond it is out of bounds
    stack …         constants and tables of the code, then the data that is given
    heap …          free: the module exports where that begins

Functions that no file defines are imported from `env`. Only the functions in `exports` are seen outside, with the
memory and addresses in it, as globals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tilewright.codegen.wasm.objects import (
    DATA_KIND,
    FUNCTION_KIND,
    GLOBAL_KIND,
    MAGIC,
    TYPE_NUMBER,
    Relocation,
    Symbol,
    WasmObject,
    read_wasm,
)
from tilewright.report.errors import InternalError

Bytes = bytes | memoryview

STACK: Final = 8 << 20
"""Bytes of the stack, as many as a thread of Linux has: kernels have buffers on it."""

PAGE: Final = 1 << 16

_MOST_PAGES: Final = 1 << 16
_ALIGNMENT: Final = 64
_I32, _FUNCREF = b"\x7f", b"\x70"
_END: Final = b"\x0b"


def link_wasm(
    objects: Sequence[bytes], exports: Iterable[str], data: Mapping[str, Sequence[Bytes]], note: tuple[str, bytes]
) -> bytes:
    """The module of object files. The parts of each piece of `data` are put into memory, and a global of its name has
    the address of a table of theirs. `note` is the name and the content of a custom section. Raises InternalError for
    damaged files, a name that two define, and what no module can hold."""
    return _Link([read_wasm(one) for one in objects]).module(list(exports), data, note)


class _Link:
    """The state of linking: where everything is, and what has a number."""

    def __init__(self, files: Sequence[WasmObject]) -> None:
        self._files = files
        self._types: dict[bytes, int] = {}
        self._defined: dict[str, tuple[int, Symbol]] = {}
        for n, file in enumerate(files):
            for symbol in file.symbols:
                if not symbol.is_local and symbol.index is not None and symbol.kind in (FUNCTION_KIND, DATA_KIND):
                    if symbol.name in self._defined:
                        raise InternalError(f"two object files define {symbol.name}")
                    self._defined[symbol.name] = n, symbol
        self._imports = self._missing()
        self._first: list[int] = []
        count = len(self._imports)
        for file in files:
            self._first.append(count)
            count += len(file.functions)
        self._elements: dict[int, int] = {}
        self._places: dict[tuple[int, int], int] = {}
        self._heap = STACK
        for n, file in enumerate(files):
            for number, segment in enumerate(file.segments):
                self._places[n, number] = self._room(len(segment.content), segment.alignment)

    def _room(self, size: int, alignment: int = _ALIGNMENT) -> int:
        at = self._heap + -self._heap % alignment
        self._heap = at + size
        return at

    def _missing(self) -> dict[str, bytes]:
        """The functions that no file defines, with their types."""
        found: dict[str, bytes] = {}
        for file in self._files:
            for name, kind in file.imported:
                if name not in self._defined:
                    found[name] = file.types[kind]
        return found

    def _type(self, content: bytes) -> int:
        return self._types.setdefault(content, len(self._types))

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _function(self, n: int, symbol: Symbol) -> int:
        """The number of a function among all."""
        if symbol.index is None:
            if symbol.name not in self._defined:
                return list(self._imports).index(symbol.name)
            n, symbol = self._defined[symbol.name]
        assert symbol.index is not None
        return self._first[n] + symbol.index - len(self._files[n].imported)

    def _address(self, n: int, symbol: Symbol) -> int:
        if symbol.index is None:
            if symbol.name not in self._defined:
                raise InternalError(f"no object file defines the data {symbol.name}")
            n, symbol = self._defined[symbol.name]
        assert symbol.index is not None
        return self._places[n, symbol.index] + symbol.offset

    def _element(self, function: int) -> int:
        """The number of a function among those whose address is taken; none has 0."""
        return self._elements.setdefault(function, 1 + len(self._elements))

    def _value(self, n: int, relocation: Relocation) -> int:
        file, kind = self._files[n], relocation.kind
        if kind == TYPE_NUMBER:
            return self._type(file.types[relocation.index])
        symbol = file.symbols[relocation.index]
        if kind in (0, 1, 2) and symbol.kind == FUNCTION_KIND:
            function = self._function(n, symbol)
            return function if kind == 0 else self._element(function)
        if kind in (3, 4, 5) and symbol.kind == DATA_KIND:
            return self._address(n, symbol) + relocation.addend
        if (kind == 7 and symbol.kind == GLOBAL_KIND) or kind == 20:
            return 0  # the stack pointer is the only global, and there is one table
        raise InternalError(f"the generated code has a relocation of an unknown kind: {kind} of WebAssembly")

    def _patched(self, n: int, content: bytes, start: int, relocations: Sequence[Relocation]) -> bytes:
        """A part that is at `start` of its section, with its fields filled."""
        out = bytearray(content)
        for relocation in relocations:
            at = relocation.offset - start
            if 0 <= at < len(content):
                value = self._value(n, relocation)
                field = value.to_bytes(4, "little") if relocation.kind in (2, 5) else _padded(value)
                out[at : at + len(field)] = field
        return bytes(out)

    # --- the module -------------------------------------------------------------------------------------------------

    def module(self, exports: Sequence[str], data: Mapping[str, Sequence[Bytes]], note: tuple[str, bytes]) -> bytes:
        """The module as bytes."""
        segments = self._segments()
        globals_ = {"stack": STACK}
        for name, parts in data.items():
            globals_ |= self._given(name, parts, segments)
        globals_["tilewright_heap"] = self._room(0)
        bodies = [
            self._patched(n, body, start, file.code_relocations)
            for n, file in enumerate(self._files)
            for start, body in file.bodies
        ]
        kinds = [file.types[kind] for file in self._files for kind in file.functions]
        functions = [self._type(kind) for kind in kinds]
        imports = [_text("env") + _text(name) + b"\0" + _leb(self._type(t)) for name, t in self._imports.items()]
        pages = -(-self._heap // PAGE)
        if pages > _MOST_PAGES:
            raise InternalError("a module of WebAssembly cannot hold so much", why=f"{self._heap:,} bytes")
        sections = [
            (1, _vector(list(self._types))),
            (2, _vector(imports)),
            (3, _vector([_leb(kind) for kind in functions])),
            (4, _vector([_FUNCREF + b"\0" + _leb(1 + len(self._elements))])),
            (5, _vector([b"\0" + _leb(pages)])),
            (6, _vector([_I32 + bytes([n == 0]) + _constant(at) for n, at in enumerate(globals_.values())])),
            (7, _vector(self._exports(exports, list(globals_)))),
            (9, _vector(self._element_segments())),
            (10, _vector([_leb(len(body)) + body for body in bodies])),
            (11, _vector([b"\0" + _constant(at) + _leb(len(content)) + content for at, content in segments])),
        ]
        out = MAGIC + b"".join(bytes([kind]) + _leb(len(content)) + content for kind, content in sections)
        name, content = note
        return out + b"\0" + _leb(len(_text(name)) + len(content)) + _text(name) + content

    def _segments(self) -> list[tuple[int, bytes]]:
        return [
            (self._places[n, number], self._patched(n, segment.content, segment.start, file.data_relocations))
            for n, file in enumerate(self._files)
            for number, segment in enumerate(file.segments)
        ]

    def _given(self, name: str, parts: Sequence[Bytes], segments: list[tuple[int, bytes]]) -> dict[str, int]:
        """Puts data behind all else, and the table of its addresses; what is exported of them."""
        places = []
        for part in parts:
            content = bytes(part)
            places.append(self._room(len(content)))
            segments.append((places[-1], content))
        table = b"".join(at.to_bytes(4, "little") for at in places)
        at = self._room(len(table))
        segments.append((at, table))
        return {name: at}

    def _exports(self, names: Sequence[str], globals_: Sequence[str]) -> list[bytes]:
        found = [_text("memory") + b"\x02\0"]
        for name in names:
            if name not in self._defined:
                raise InternalError(f"the object code has no function {name}")
            found.append(_text(name) + b"\0" + _leb(self._function(*self._defined[name])))
        return found + [_text(name) + b"\x03" + _leb(n) for n, name in enumerate(globals_) if n]

    def _element_segments(self) -> list[bytes]:
        if not self._elements:
            return []
        return [b"\0" + _constant(1) + _vector([_leb(function) for function in self._elements])]


def _leb(value: int) -> bytes:
    out = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _signed(value: int) -> bytes:
    out = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        if (value == 0 and not byte & 0x40) or (value == -1 and byte & 0x40):
            return bytes([*out, byte])
        out.append(byte | 0x80)


def _padded(value: int) -> bytes:
    """A number in five groups of seven bits, as a field has them; addresses above 2 GiB are none."""
    return bytes([value >> shift & 0x7F | (0x80 if shift < 28 else 0) for shift in range(0, 35, 7)])


def _constant(value: int) -> bytes:
    return b"\x41" + _signed(value) + _END


def _text(text: str) -> bytes:
    return _leb(len(text.encode())) + text.encode()


def _vector(items: Sequence[bytes]) -> bytes:
    return _leb(len(items)) + b"".join(items)
