"""LLVM IR text becomes object code.

Schedules have decided vectors and unrolling, so LLVM's own vectorizers and unroller do not run; what remains is scalar
replacement and, where there are masks, clean instructions. Instruction selection hoists what does not change in a loop,
but for parts of divisions, which are emitted before it (expressions.py).
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache

import llvmlite.binding as llvm

from tilewright.core.processes import Companion, Ended
from tilewright.report.errors import InternalError, UserError
from tilewright.target import Target, target_names
from tilewright.target.host import current_host

_PASSES = ("sroa", "simplify_cfg")
"""Accumulators into registers, fewer blocks. LLVM's whole O2 takes three times as long and, with its vectorizers and
unroller off as schedules need them, ends in the same inner loops; so does global value numbering on x86, since code
generation computes an expression once where its value still holds."""

_MASKED = (*_PASSES, "instruction_combine")
"""With clean instructions, for modules with masked loads and stores: masks that turn out to be constant become plain
accesses. Instruction selection cleans the rest by itself, in an eighth less of LLVM's time."""

_NUMBERED = ("sroa", "simplify_cfg", "new_gvn", "instruction_combine")
"""With value numbering, for processors whose products take one lane of a vector: of what several rows load, the order
that it leaves lets all accumulators of a tile stay in registers."""

ENTRY_LEVEL = 0
"""Of a module that has the entry alone."""

_BANNED = re.compile(r"\bcall\b[^\n]*\basm\b")


def optimise(text: str, target: Target, level: int = 3) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """The parsed, verified and optimised module, with the machine it is for, which generates code at this optimisation
    level. Raises InternalError for invalid IR."""
    machine = _machine(target, level)
    if "asm" in text and _BANNED.search(text):
        raise InternalError("inline assembly in generated code", why="LLVM would end the process on a mistake in it")
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError("LLVM refused the code we generated", why=str(error).strip()) from error
    passes = llvm.create_new_module_pass_manager()
    for add in _passes_for(text, target):
        getattr(passes, f"add_{add}_pass")()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2)))
    return module, machine


def _passes_for(text: str, target: Target) -> tuple[str, ...]:
    """The passes that a module needs."""
    if target.multiplies_by_lane:
        return _NUMBERED
    return _MASKED if "@llvm.masked." in text else _PASSES


@lru_cache(maxsize=4)
def _machine(target: Target, level: int) -> llvm.TargetMachine:
    """The machine for all modules of a program: LLVM reads its features once."""
    if target.multiplies_by_lane:
        _keep_operations_below_phis()
    return target.create_machine(level)


@cache
def _keep_operations_below_phis() -> None:
    """Value numbering makes no phis of operations on phis. In some nests of loops whose bounds are chosen by several
    conditions, LLVM 22 does not come to an end of it: an assertion ends the process."""
    llvm.set_option("", "-enable-phi-of-ops=0")


def assemble(text: str, target: Target, level: int = 3) -> bytes:
    """The object file (ELF, Mach-O or COFF, as the target's) of an IR module. Level 0 takes a fifth of the time: for
    code that waits for memory and other threads, such as the pool's, or does little but call kernels (`ENTRY_LEVEL`).

    Where LLVM has no instructions for what a module asks of a target, it ends the process. So code for a combination of
    features that is neither this machine's nor a model is made in another one, and raises UserError where that dies.
    """
    return _assemble(text, target, level) if is_tried(target) else _assemble_apart(text, target, level)


def is_tried(target: Target) -> bool:
    """Whether LLVM is known to have instructions for all that is asked of a target: it is at most this machine, or a
    model without changes."""
    return target.name in target_names() or target.is_runnable_on(current_host())


def _assemble_apart(text: str, target: Target, level: int) -> bytes:
    task = json.dumps([text, target.record(), level]).encode()
    try:
        code = _COMPANION.ask(task)
    except Ended as error:
        raise UserError(
            f"cannot make code for the target {target}",
            why=f"LLVM has no instructions for what the program asks of it: {error}",
            fix=f"leave features out, or take a model as it is: {', '.join(target_names())}",
        ) from None
    return code if code is not None else _assemble(text, target, level)  # what it raised, this raises again


def serve(task: bytes) -> bytes:
    """What the other process does."""
    text, record, level = json.loads(task)
    return _assemble(text, Target.from_record(record), level)


_COMPANION = Companion("tilewright.codegen.assemble:serve")


def _assemble(text: str, target: Target, level: int) -> bytes:
    module, machine = optimise(text, target, level)
    code: bytes = machine.emit_object(module)
    return code


def assembly(text: str, target: Target) -> str:
    """The assembly of an IR module, for people and for tests that count instructions."""
    module, machine = optimise(text, target)
    listing: str = machine.emit_assembly(module)
    return listing
