"""Which machines one library may be for, and what its name says: known before anything is compiled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tilewright.report.errors import UserError
from tilewright.target import Target
from tilewright.target.machine import is_elf

MODULE: Final = ".wasm"
"""What the names of modules of WebAssembly end in."""

_SHARED: Final = re.compile(r"\.so(\.\d+)*$")
_OF_OTHERS: Final = (".dll", ".lib", ".dylib")
"""What the names of libraries for other systems end in."""

_MODULES: Final = "wasm32"
"""The architecture of modules."""


def is_shared(place: Path) -> bool:
    """Whether a name is that of a shared library: `libmodel.so`, `libmodel.so.1`."""
    return _SHARED.search(place.name) is not None


def check_ending(place: Path) -> None:
    """Refuses the name of a library for another system: no file of that form is made."""
    if place.suffix.lower() in _OF_OTHERS:
        raise UserError(
            f"cannot make the library {place}",
            why=f"libraries are ELF files, and a name that ends in {place.suffix} is that of another system's",
            fix=f"call it {place.stem}.so",
        )


def check_targets(targets: Sequence[Target], is_module: bool) -> None:
    """Refuses machines that no library can be for, or not all of them together. `is_module`: it is a module of
    WebAssembly."""
    if is_module:
        _check_module(targets)
        return
    for target in targets:
        if not is_elf(target.triple):
            raise UserError(
                f"cannot make a library for {target}",
                why=f"libraries are ELF files for Linux, and the target's system is {target.triple}",
                fix=f"compile the model on Linux, or, for WebAssembly, write a file whose name ends in {MODULE}",
            )
    kinds = sorted({target.architecture for target in targets})
    if len(kinds) > 1:
        raise UserError(
            "cannot make one library for several architectures",
            why=f"the programs are for {' and '.join(kinds)}, and an ELF file has code for one",
            fix="write a library for each",
        )


def _check_module(targets: Sequence[Target]) -> None:
    other = next((target for target in targets if target.architecture != _MODULES), None)
    if other is not None:
        raise UserError(
            f"cannot make a module of WebAssembly of code for {other}",
            why="a program is for one kind of machine",
            fix='compile the model with target="wasm"',
        )
    if len(targets) > 1:
        raise UserError("cannot make a module of WebAssembly of several programs", why="it holds one")
