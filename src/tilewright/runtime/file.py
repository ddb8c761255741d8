"""Files of compiled programs, `model.tw`: one file that runs without the model and without the compiler.

Such a file is an entry as the store frames it (`store/frame.py`: magic, lengths, checksum), under a key that all of
them share, with a container of programs for several targets. It is mapped, so weights are read when they are used and
shared by all processes that use them. Reading it runs nothing, but what it holds is machine code: run files of those
only whose programs you would run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tilewright.codegen.abi import VERSION
from tilewright.report.arguments import path_of
from tilewright.report.errors import UserError
from tilewright.runtime.bundle import Bundle, encode
from tilewright.runtime.mapped import KIND, MappedPrograms, map_programs
from tilewright.runtime.program import Program
from tilewright.store import Damaged, digest
from tilewright.store.files import check_place, replace_file
from tilewright.store.frame import MAGIC, write_framed
from tilewright.store.kinds import Kind, recognise
from tilewright.target import Target
from tilewright.target.host import Host, current_host

KEY = digest(kind="compiled programs")


def write_programs(path: str | os.PathLike[str], programs: Sequence[Program]) -> None:
    """Writes programs of one model, for different targets, to the file at `path`: all of it, or nothing is changed.
    Raises UserError where no file can be written, such as over a file that a program was made of."""
    place, sources = Path(path_of(path)), [file for program in programs for file in program.files]
    check_place(place, sources)
    check_together(programs)
    parts = encode(programs, about=programs[0].provenance)
    replace_file(place, lambda file: write_framed(file, KEY, parts), sources)


def check_together(programs: Sequence[Program]) -> None:
    """Refuses programs of different interfaces: a caller of the loaded file would not know which one it has."""
    first = str(programs[0].interface)
    for program in programs[1:]:
        if str(program.interface) != first:
            why = f"that for {programs[0].target} is {first}, that for {program.target} is {program.interface}"
            raise UserError("cannot write programs of different interfaces to one file", why=why)


def is_compiled(path: str | os.PathLike[str]) -> bool:
    """Whether the file at `path` begins as a file of compiled programs does; no where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def open_bundle(path: str | os.PathLike[str]) -> Bundle:
    """The container in a file. Raises UserError for a file that cannot be read, Damaged for one that is not whole, or
    not of this kind."""
    return _open(map_programs(path))


def _open(file: MappedPrograms) -> Bundle:
    fault = file.find_fault(KEY)
    if fault is not None:
        kind = None if file.is_framed else recognise(file.content)
        raise _damaged(file.name, fault) if kind is None else _another(file.name, kind)
    try:
        return Bundle(file.payload)
    except Damaged as error:
        raise _damaged(file.name, error.why or error.what) from None


def read_program(file: MappedPrograms) -> Program:
    """The program in the content of a file that suits this machine best. Raises Damaged for what is not whole,
    UserError where no program suits, with what is lacking."""
    host, name, bundle = current_host(), file.name, _open(file)  # the file is read meanwhile
    if bundle.abi != VERSION:
        raise UserError(
            f"cannot load {name}",
            why=f"it was made for version {bundle.abi} of the runtime's calling convention, this one has {VERSION}",
            fix="compile the model again with the version of Tilewright that is to run it",
        )
    usable = [n for n, target in enumerate(bundle.targets) if target.is_runnable_on(host)]
    if not usable:
        raise _nothing_runs(name, bundle.targets, host)
    try:
        program = bundle.program(max(usable, key=lambda n: merit(bundle.targets[n])))
    except Damaged as error:
        raise _damaged(name, error.why or error.what) from None
    return program if file.path is None else replace(program, files=(file.path,))


def merit(target: Target) -> tuple[int, int]:
    """Code for wide vectors, then code for many features, is taken to be the faster."""
    return target.vector_bits, len(target.features)


def _nothing_runs(name: str, targets: Sequence[Target], host: Host) -> UserError:
    rows = [f"the code for {target} needs {_lacking(target, host)}" for target in targets]
    return UserError(
        f"cannot run {name} on this machine",
        why="; ".join(rows) or "it holds no code",
        fix="compile the model here, or with a --target that this machine is, such as x86-64-v2",
    )


def _lacking(target: Target, host: Host) -> str:
    if target.architecture != host.architecture:
        return f"the architecture {target.architecture}"
    return ", ".join(sorted(target.features - host.features)) or f"the system of {target.triple}"


def _another(name: str, kind: Kind) -> Damaged:
    return Damaged(f"cannot load {name}", why=f"it is {kind.name}", fix=kind.fix)


def _damaged(name: str, why: str) -> Damaged:
    return Damaged(f"cannot load {name}", why=f"it is no whole {KIND}: {why}", fix="copy or compile it again")
