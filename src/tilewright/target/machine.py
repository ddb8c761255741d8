"""LLVM's view of a target: its target machine, its data layout, its names for processors.

LLVM aborts the process when a part it needs was not initialised, so target machines are made here only. What
runs a program that was compiled before asks nothing of this, and LLVM is loaded with the first question.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .host import architecture_of, current_host

if TYPE_CHECKING:
    import llvmlite.binding as llvm


def create_machine(triple: str, cpu: str, features: str, opt: int = 3, *, jit: bool = False) -> llvm.TargetMachine:
    """A target machine for `triple` with `features` (`+a,+b`) on top of those of `cpu`, at optimisation level `opt`.

    For Linux its code is independent of its place and no larger than 2 GiB, as codegen/link.py takes it. With `jit`,
    and for other systems, it is for LLVM's own loader, which may put parts of a program far from one another.
    """
    import llvmlite.binding as llvm

    _initialise(architecture_of(triple) == architecture_of(llvm.get_process_triple()))
    form = {} if jit or not is_elf(triple) else {"reloc": "pic", "codemodel": "small"}
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=opt, **form)


def is_elf(triple: str) -> bool:
    """Whether code for this system is linked and loaded by us; LLVM loads that of others."""
    return "linux" in triple


@functools.cache
def find_data_layout(triple: str) -> str:
    """The data layout string of `triple`: sizes and alignments of types as LLVM writes them in a module."""
    return str(create_machine(triple, "", "").target_data)


def find_tune(model: str, cpu: str) -> str:
    """The processor whose instruction timings LLVM shall assume for a target of this `model`: LLVM's guess at this
    machine's, where the model is its, else `cpu`."""
    if not model or model != current_host().model:
        return cpu
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())


@functools.cache
def llvm_stamp() -> str:
    """Text that differs whenever LLVM is another one: what llvmlite says of its version, and the size of its library.
    Nothing of it is loaded for that."""
    spec = find_spec("llvmlite")
    found = []
    for folder in () if spec is None else spec.submodule_search_locations or ():
        with contextlib.suppress(OSError), open(os.path.join(folder, "_version.py"), "rb") as file:
            found.append(hashlib.sha256(file.read()).hexdigest()[:16])
        with contextlib.suppress(OSError):
            libraries = [f for f in os.scandir(os.path.join(folder, "binding")) if f.name.endswith(_LIBRARIES)]
            found += sorted(f"{file.name} {file.stat().st_size}" for file in libraries)
    return " ".join(found)


_LIBRARIES = (".so", ".dylib", ".dll")


@functools.cache
def _initialise(native: bool) -> None:
    import llvmlite.binding as llvm

    if native:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
