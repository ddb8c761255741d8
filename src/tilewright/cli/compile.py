"""`tilewright compile`: a model as one file of machine code and weights, for this machine or for several."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import tilewright as tw
from tilewright.cli import options
from tilewright.cli.fit import say
from tilewright.cli.library import Library
from tilewright.cli.model import How, compile_model
from tilewright.cli.saving import place_for
from tilewright.cli.tables import counted, duration, json_text, size
from tilewright.core.switches import HIGHEST, PLAIN
from tilewright.report.errors import UserError
from tilewright.report.printable import printable
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable
from tilewright.runtime.file import is_compiled
from tilewright.store import Json

Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="The file to write; one that ends in .so, .a, .o or .wasm is a library for programs without Python. "
        "[default: the model's name with .tw]",
    ),
]

Header = Annotated[
    str | None,
    typer.Option(
        "--header",
        metavar="FILE",
        help="Also write the library's C header to this file, or its C++ header if the name ends in .hpp.",
    ),
]

Weights = Annotated[
    str | None,
    typer.Option("--weights", metavar="FILE", help="Write the library's weights to this file, not into the library."),
]

Name = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="What the names of the library's functions begin with. [default: model]"
    ),
]

Targets = Annotated[
    list[str],
    typer.Option(
        "--target",
        metavar="TARGET",
        help="A machine to compile for; may be given again: the best that runs is taken. "
        f"{options.TARGETS}. [default: native, or wasm for a file that ends in .wasm]",
        show_default=False,
    ),
]


def compile(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)],
    output: Output = None,
    targets: Targets = [],  # noqa: B006  (typer reads the default, nothing changes it)
    dims: options.Dims = [],  # noqa: B006
    level: options.Level = HIGHEST,
    off: options.Off = [],  # noqa: B006
    precision: options.Precision = PLAIN,
    choices: options.Choices = None,
    strict: options.Strict = False,
    imports: options.Imports = [],  # noqa: B006
    denormals: options.Denormals = None,
    header: Header = None,
    weights: Weights = None,
    name: Name = None,
    as_json: options.Json = False,
) -> int:
    """Compile a model to one file that runs without the compiler.

    The file holds machine code, weights and the names of inputs and outputs; tilewright.load and `tilewright run` take
    it, on any machine that has the instructions of one of its targets. A file that ends in .so, .a or .o is a library
    for programs in C and other languages, which need no Python; one that ends in .wasm is a module of WebAssembly.
    Nothing is written when anything fails.

    \b
    Examples:
      tilewright compile model.onnx -o model.tw
      tilewright compile model.onnx --target x86-64-v3 --target x86-64-v4
      tilewright compile model.onnx -o libmodel.so --header model.h
    """
    if is_compiled(model):
        raise UserError("the model is compiled already", where=model, fix="run it: tilewright run")
    place = place_for(output or str(Path(model).with_suffix(".tw")), "--output", model)
    library = Library(place, model, {"--header": header, "--weights": weights}, name)
    names = list(dict.fromkeys(targets)) or [library.target]
    library.check_targets(names)
    how = How(level, off, dims, precision, denormals, choices, strict, imports)
    with library.expected(len(names)):
        made = [compile_model(model, target, how=how) for target in names]
        with progress(f"writing {place.name}"):
            if library.wanted:
                library.save(made)
            else:
                tw.save(place, *made)
    seconds, taken = sum(e.compile_seconds for e in made), place.stat().st_size
    if as_json:
        record: dict[str, Json] = {"model": model, "output": str(place), "targets": names}
        record |= {"bytes": taken, "compile_seconds": seconds}
        print(json_text(record))
        return 0
    say(f"{printable(os.path.basename(model))} for {', '.join(names)}: compiled in {duration(seconds)}")
    say(f"{printable(str(place))} holds {counted(len(made), 'program')}, {size(taken)}")
    say(_called(made[0]))
    return 0


def _called(executable: Executable) -> str:
    """How the program is called."""
    return f"{', '.join(map(str, executable.inputs))} -> {', '.join(map(str, executable.outputs))}"
