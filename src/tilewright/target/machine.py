"""LLVM's view of a target: its target machine and its data layout.

LLVM aborts the process when a part it needs was not initialised, so whoever wants a target machine gets it here.
"""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from .host import architecture_of


def create_machine(triple: str, cpu: str, features: str, opt: int = 3) -> llvm.TargetMachine:
    """A target machine for `triple` with `features` (`+a,+b`) on top of those of `cpu`, at optimisation level `opt`."""
    _initialise(architecture_of(triple) == architecture_of(llvm.get_process_triple()))
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=opt)


@functools.cache
def find_data_layout(triple: str) -> str:
    """The data layout string of `triple`: sizes and alignments of types as LLVM writes them in a module."""
    return str(create_machine(triple, "", "").target_data)


@functools.cache
def _initialise(native: bool) -> None:
    if native:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
