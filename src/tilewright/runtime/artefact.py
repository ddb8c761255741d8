"""Executables to files and back: `tw.save`, `tw.load`.

What runs a program is imported while a thread reads the file.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from tilewright.report.arguments import check_kind
from tilewright.report.errors import UserError
from tilewright.report.logs import debug
from tilewright.report.quantities import duration
from tilewright.runtime.mapped import map_programs

if TYPE_CHECKING:
    from tilewright.runtime.executable import Executable


def save(path: str | os.PathLike[str], *executables: Executable) -> None:
    """Writes compiled programs of one model, for different targets, to one file, from which `load` takes the one that
    suits its machine best. Weights that they share are written once. The file is complete or, on any failure, what it
    was before.

        tw.save("model.tw", tw.compile(model, target="x86-64-v3"), tw.compile(model, target="x86-64-v4"))

    Raises UserError where no file can be written (a directory, a device, a link, or a file that one of them was made
    of), and for programs with different interfaces.
    """
    if not executables:
        raise UserError("there is nothing to save", fix="give one executable or several: save(path, executable)")
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.file import write_programs

    for executable in executables:
        check_kind("an executable", executable, Executable, "what tilewright.compile returns", "save(path, executable)")

    write_programs(path, [executable.program for executable in executables])


def save_library(
    path: str | os.PathLike[str],
    *executables: Executable,
    header: str | os.PathLike[str] | None = None,
    weights: str | os.PathLike[str] | None = None,
    name: str = "model",
) -> None:
    """Writes compiled programs of one model, for different machines of one architecture, as one shared library, of
    which the best program that the loading machine runs is taken; and its C header where one is asked for, a C++ header
    if its name ends in `.hpp`. No linker is needed, and no Python by those who use it. A path that ends in `.o` or `.a`
    makes an object file or a static library. Weights are inside, unless `weights` is a file for them. The names of its
    functions begin with `name`.

        tw.save_library("libmodel.so", exe, header="model.h")

    Raises UserError where no file can be written, for a name that is none in C, for programs that do not belong
    together, and for one that no library can hold.
    """
    if not executables:
        raise UserError(
            "there is nothing to save", fix="give one executable or several: save_library(path, executable)"
        )
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.library.write import in_order, write_library  # brings LLVM along

    form = "save_library(path, executable)"
    for executable in executables:
        check_kind("an executable", executable, Executable, "what tilewright.compile returns", form)
    write_library(path, in_order([executable.program for executable in executables]), name, header, weights)


def load(path: str | os.PathLike[str], *, threads: int | None = None, denormals: str | None = None) -> Executable:
    """The executable in a file that `save` or `tilewright compile` wrote; neither the model nor the compiler is needed.

    Weights are mapped: they are read when they are used. `threads` is how many threads a call may use (default: the
    setting TILEWRIGHT_NUM_THREADS, else one for each core that this process may use); `denormals` whether calls
    keep or flush subnormal numbers (default: what the file says, as in `tilewright.compile`). The file holds machine
    code: load only what you would run. It must not be truncated while it is used.

    Raises UserError for a file that is damaged or no such file, and where this machine lacks instructions of all the
    targets it was made for.
    """
    start = time.perf_counter()
    file = map_programs(path)
    from tilewright.runtime.executable import Executable  # while the file is read
    from tilewright.runtime.file import read_program

    executable = Executable(read_program(file), None, cached=True, threads=threads)
    if denormals is not None:
        executable.denormals = denormals
    executable.compile_seconds = time.perf_counter() - start
    debug("loaded %s in %s", file.name, duration(executable.compile_seconds))
    return executable
