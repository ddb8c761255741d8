"""`Executable.save_library`: programs as files for those who have no Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tilewright.codegen.abi import ENTRY, LEAVE, PARALLEL, RESET, STOP
from tilewright.codegen.assemble import assemble
from tilewright.codegen.elf import read_object
from tilewright.codegen.image import decode
from tilewright.codegen.library.relocatable import Linked, Material, archive, object_file
from tilewright.codegen.library.shared_object import Contents, Piece, shared_object
from tilewright.codegen.pool import pool_text
from tilewright.report.arguments import path_of
from tilewright.report.errors import UserError
from tilewright.runtime.file import check_together, merit
from tilewright.runtime.library.ahead import Ahead, Places
from tilewright.runtime.library.codes import MOST_RANK, check_name
from tilewright.runtime.library.cpp_header import cpp_text
from tilewright.runtime.library.glue import (
    ON_LOAD,
    ON_UNLOAD,
    WEIGHTS,
    Parts,
    base_of,
    entry_name,
    glue_object,
    make_glue,
)
from tilewright.runtime.library.header import header_text
from tilewright.runtime.library.javascript import javascript
from tilewright.runtime.library.machines import CPUID_NAME, XGETBV_NAME, question_image
from tilewright.runtime.library.targets import MODULE, check_ending, check_targets
from tilewright.runtime.library.wasm import wasm_module
from tilewright.runtime.library.weights import Stamp, lay_out
from tilewright.runtime.pool import pool_code
from tilewright.runtime.program import Program
from tilewright.store.blocks import write_parts
from tilewright.store.files import check_place, replace_file

Place = str | os.PathLike[str]

CPP_HEADERS = (".hpp", ".hh", ".hxx")
"""What the names of C++ headers end in."""

OBJECT, ARCHIVE = ".o", ".a"
"""What the names of object files and static libraries end in."""

_MOST_BYTES = 1 << 31

_POOL = (PARALLEL, LEAVE, RESET, STOP)


def write_library(
    path: Place,
    programs: Sequence[Program],
    name: str,
    header: Place | None = None,
    weights: Place | None = None,
    ahead: Ahead | None = None,
) -> None:
    """Writes programs of one model, for different machines, as one shared library, or as an object file or a static
    library where the name ends so; its C header, and a file for its weights, where these are asked for. A name that
    ends in `.wasm` makes a module of WebAssembly, and the header is JavaScript. Each file is written whole or not at
    all, the library last. A shared library, or the file of weights where one is asked for, takes what `ahead` has
    written for its place.

    Raises UserError for a name that is none in C, a place where no file can be written, and what no library can hold.
    """
    is_module = Path(path_of(path)).suffix == MODULE
    _check(programs, name, is_module)
    check_ending(Path(path_of(path)))
    sources = [file for program in programs for file in program.files]
    places = [Path(path_of(place)) for place in (path, header, weights) if place is not None]
    for n, place in enumerate(places):
        check_place(place, sources)
        if any(os.path.abspath(place) == os.path.abspath(other) for other in places[:n]):
            raise UserError(f"cannot write {place} twice", fix="give library, header and weights a file each")
    if is_module:
        _write_module(path, programs, name, header, weights, sources)
        return
    made = None if ahead is None else ahead.weights_of(programs)
    held, found = made or lay_out(program.constants for program in programs)
    stamp = None if weights is None else held.stamp()
    forks = any(len(program.code) > 1 for program in programs)
    parts = Parts(name, programs, found, forks, stamp)
    code = None if ahead is None else ahead.code_for(parts.asks)
    library = _file(parts, code, () if stamp is not None else held.parts, Path(path_of(path)).suffix)
    if weights is not None:
        _write(weights, held.parts, sources, made and ahead)
    if header is not None:
        text = header_text(parts)
        is_cpp = Path(path_of(header)).suffix in CPP_HEADERS
        _write(header, [(cpp_text(name, text) if is_cpp else text).encode()], sources)
    _write(path, library, sources, made and ahead if weights is None else None)


def _write(
    path: Place, parts: Iterable[bytes | memoryview], sources: Sequence[str], ahead: Ahead | None = None
) -> None:
    made = list(parts)
    file, inside = (None, dict[int, int]()) if ahead is None else ahead.take()
    replace_file(Path(path_of(path)), lambda file: write_parts(file, made, inside=inside), sources, file)


def _write_module(
    path: Place,
    programs: Sequence[Program],
    name: str,
    header: Place | None,
    weights: Place | None,
    sources: Sequence[str],
) -> None:
    if weights is not None:
        raise UserError(
            "cannot write the weights of a module of WebAssembly to a file",
            why="it holds one program, with its weights",
            fix="leave weights= out",
        )
    module = wasm_module(programs[0])
    if header is not None:
        _write(header, [javascript(name).encode()], sources)
    _write(path, [module], sources)


def prepare(
    name: str, is_shared: bool, program: Program, forks: bool, places: Places, stamp: Callable[[], Stamp | None]
) -> tuple[Parts, bytes]:
    """The code beside a program whose own code is not there yet: what it was made for, `Parts.asks`, and an object file
    (`Ahead`). A shared library has the pool as it is linked, which is kept until it is asked for. Raises UserError for
    what no library can hold."""
    _check([program], name, is_module=False)
    if forks and is_shared:
        pool_code(base_of(program))
    parts = Parts(name, [program], places, forks, stamp())
    return parts.asks, glue_object(parts)


def _file(
    parts: Parts, code: bytes | None, weights: Sequence[bytes | memoryview], ending: str
) -> Iterable[bytes | memoryview]:
    """The file that a name with this ending stands for: an object file, a static library or a shared one. `code` is the
    object file of the code beside the programs, where that was made before."""
    if ending not in (OBJECT, ARCHIVE):
        return shared_object(_contents(parts, code, weights))
    made = list(object_file(_material(parts, code, weights)))
    return made if ending == OBJECT else archive("model.o", made, parts.exports)


def _material(parts: Parts, code: bytes | None, weights: Sequence[bytes | memoryview]) -> Material:
    size = sum(memoryview(part).nbytes for part in weights)
    if size >= _MOST_BYTES:
        raise UserError(
            "cannot put the weights into an object file",
            why=f"they take {size:,} bytes, and code reaches {_MOST_BYTES:,}",
            fix="write them to a file beside it: weights=",
        )
    base = parts.base
    objects = [code or glue_object(parts)]
    if parts.forks:
        objects.append(assemble(pool_text(base.triple, base.data_layout), base, level=0))
    images = [Linked(decode(program.code[0]), {ENTRY: entry_name(n)}) for n, program in enumerate(parts.programs)]
    if parts.asks_cpuid:
        images.append(Linked(question_image(), {n: n for n in (CPUID_NAME, XGETBV_NAME)}))
    read = [read_object(one) for one in objects]
    return Material(read, images, parts.exports, ON_LOAD, ON_UNLOAD, WEIGHTS, weights)


def _contents(parts: Parts, code: bytes | None, weights: Sequence[bytes | memoryview]) -> Contents:
    programs = parts.programs
    entries = [entry_name(n) for n in range(len(programs))]
    own = (*parts.exports, ON_LOAD, ON_UNLOAD)
    asked = {n: n for n in (*entries, WEIGHTS, RESET, STOP, CPUID_NAME, XGETBV_NAME)}
    pieces = [Piece(make_glue(parts, code), {n: n for n in own}, asked)]
    called = {PARALLEL: PARALLEL, LEAVE: LEAVE}
    pieces += [
        Piece(decode(program.code[0]), {ENTRY: entry}, called) for program, entry in zip(programs, entries, strict=True)
    ]
    if parts.forks:
        pieces.append(Piece(decode(pool_code(parts.base)), {n: n for n in _POOL}))
    if parts.asks_cpuid:
        pieces.append(Piece(question_image(), {n: n for n in (CPUID_NAME, XGETBV_NAME)}))
    return Contents(pieces, parts.exports, ON_LOAD, ON_UNLOAD, WEIGHTS, weights)


def in_order(programs: Sequence[Program]) -> list[Program]:
    """Programs of one model, the best first. Raises UserError where they do not belong together."""
    check_together(programs)
    return sorted(programs, key=lambda program: merit(program.target), reverse=True)


def _check(programs: Sequence[Program], name: str, is_module: bool) -> None:
    """Refuses what a library cannot be made of."""
    check_name(name)
    check_targets([program.target for program in programs], is_module)
    for program in programs:
        if program.checked:
            raise UserError(
                "cannot make a library of a program that checks its memory",
                why="its calls run between guard pages, twice, as only Python calls them",
                fix="compile without TILEWRIGHT_CHECK",
            )
    interface = programs[0].interface
    for port in (*interface.inputs, *interface.outputs):
        if port.type.rank > MOST_RANK:
            raise UserError(
                f"cannot make a library with {port.label}",
                why=f"{port} has {port.type.rank} dimensions, and arrays of the C interface have up to {MOST_RANK}",
                fix="reshape it inside of the model",
            )
        if "\0" in port.name:
            raise UserError(
                f"cannot make a library with {port.label}", why="its name has a zero, which ends names in C"
            )
