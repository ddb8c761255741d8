"""`Executable.save_library`: programs as files for those who have no Python."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO

from tilewright.codegen.abi import ENTRY, LEAVE, PARALLEL, RESET, STOP
from tilewright.codegen.image import decode
from tilewright.codegen.library.shared_object import Contents, Piece, shared_object
from tilewright.report.arguments import path_of
from tilewright.report.errors import UserError
from tilewright.runtime.library.codes import MOST_RANK
from tilewright.runtime.library.glue import FUNCTIONS, ON_LOAD, ON_UNLOAD, WEIGHTS, make_glue
from tilewright.runtime.library.header import header_text
from tilewright.runtime.library.weights import Weights
from tilewright.runtime.program import Program
from tilewright.store.files import check_place, replace_file
from tilewright.store.pages import release
from tilewright.target.machine import is_elf

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def write_library(
    path: str | os.PathLike[str], program: Program, header: str | os.PathLike[str] | None, name: str
) -> None:
    """Writes a program as a shared library, and its C header where one is asked for: all of each, or nothing.

    Raises UserError for a name that is none in C, a place where no file can be written, and what no library can hold.
    """
    _check(program, name)
    place, sources = Path(path_of(path)), list(program.files)
    check_place(place, sources)
    if header is not None:
        check_place(Path(path_of(header)), sources)
    parts = shared_object(_contents(program, name))

    def write(file: BinaryIO) -> None:
        for part in parts:
            file.write(part)
            release(part)

    replace_file(place, write, sources)
    if header is not None:
        text = header_text(name, program).encode()

        def write_text(file: BinaryIO) -> None:
            file.write(text)

        replace_file(Path(path_of(header)), write_text, sources)


def _contents(program: Program, name: str) -> Contents:
    weights = Weights()
    places = weights.places(program.constants)
    glue = make_glue(name, program, places, len(program.code) > 1)
    pieces = [Piece(glue.image, glue.names, {n: n for n in (ENTRY, WEIGHTS, RESET, STOP)})]
    pieces.append(Piece(decode(program.code[0]), {ENTRY: ENTRY}, {PARALLEL: PARALLEL, LEAVE: LEAVE}))
    if len(program.code) > 1:
        pieces.append(Piece(decode(program.code[1]), {n: n for n in (PARALLEL, LEAVE, RESET, STOP)}))
    exports = [f"{name}_{function}" for function in FUNCTIONS]
    return Contents(pieces, exports, ON_LOAD, ON_UNLOAD, WEIGHTS, weights.parts)


def _check(program: Program, name: str) -> None:
    """Refuses what a library cannot be made of."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"cannot make a library of the name {name!r}",
            why="its functions begin with that name, so it must be one in C",
            fix='take letters, digits and underscores: name="model"',
        )
    if not is_elf(program.target.triple):
        raise UserError(
            f"cannot make a library for {program.target}",
            why=f"libraries are ELF files for Linux, and the target's system is {program.target.triple}",
            fix="compile the model on Linux",
        )
    if program.checked:
        raise UserError(
            "cannot make a library of a program that checks its memory",
            why="its calls run between guard pages, twice, as only Python calls them",
            fix="compile without TILEWRIGHT_CHECK",
        )
    for port in (*program.interface.inputs, *program.interface.outputs):
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
