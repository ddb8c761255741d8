"""`tw.compile`: a model to an executable, from the store where it was compiled before.

The compiler takes longer to load than a stored program, so programs.py, which imports it, is imported only where a
program is not in the store or its stages are shown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tilewright.artifact.stored import Stored, compiler_version, stamp_of
from tilewright.core.collection import rare_collections
from tilewright.core.forced import Forced, forced_in, read_forced
from tilewright.core.frames import with_room
from tilewright.core.reading import Dims, Reading
from tilewright.core.switches import HIGHEST, PLAIN, Switches
from tilewright.core.tuned import UNTUNED, Tuned
from tilewright.report import settings
from tilewright.report.arguments import check_kind
from tilewright.report.logs import debug, info
from tilewright.report.quantities import counted, duration, size
from tilewright.runtime.describe import source_of
from tilewright.runtime.executable import Executable
from tilewright.runtime.machine import measured
from tilewright.runtime.subnormals import KEEP, check_denormals
from tilewright.runtime.threads import count_threads
from tilewright.store import Store
from tilewright.target import Target
from tilewright.tune.records import Records

if TYPE_CHECKING:
    from onnx import ModelProto

    from tilewright.graph.nodes import GraphFunction, Module
    from tilewright.runtime.inside import Inside

OFF = "off"
"""Of `tune`: choices that were found before are left out, too."""


def compile(
    model: str | os.PathLike[str] | bytes | ModelProto | Module | GraphFunction,
    *,
    target: str | Target = "native",
    threads: int | None = None,
    dims: Dims | None = None,
    level: int = HIGHEST,
    off: Iterable[str] = (),
    precision: str = PLAIN,
    denormals: str | None = None,
    choices: Mapping[str, Forced] | None = None,
    strict: bool = False,
    seed: int | str = 0,
    tune: str | float | None = None,
) -> Executable:
    """Compiles a model: the path of an ONNX file, its bytes, an `onnx.ModelProto`, a `Module`, or a graph function that
    needs no constants.

    `target` names the machine (`native`, `x86-64-v3`, …), or is a `Target`, which is taken as it is. What this machine
    does is measured before it is compiled for first, in less than half a second; models of machines have estimates.
    `threads` is how many threads a call may use (default: the setting TILEWRIGHT_NUM_THREADS, else one for each core
    that this process may use). What is compiled from a file is kept in the store and found again.
    `dims` are sizes of dynamic dimensions by their names: the program is compiled for these alone, which may make it
    faster; all others stay as they are. Dimensions of an input without a rank are sizes and names: {"x": ["n", 3]}.
    `level` is how much is optimised: 0 nothing (each operator a kernel of plain loops), 1 the graph and which operators
    share a kernel, 2 how kernels run, 3 everything, also what rounds otherwise than the model says. `off` names passes
    to leave out. `precision` is `f32`, which computes as the model says, or `bf16`, which may round the factors of f32
    products to bf16 where that is faster (`lower/graph/reduce_precision.py`); sums and all else stay f32.
    `denormals` is `flush`: calls take subnormal numbers (below 1.2e-38 for f32) for zero, on which many processors
    spend a hundred cycles each; or `keep`: they compute as the thread that makes them does. Without it most programs
    of level 3 flush (`compiler/subnormals.py`).
    `choices` says how kernels are to run, by their names: {"dense1": {"template": "contraction", "choice": {…}}}, as
    `exe.decisions[name].taken.record()` has it. They are put over those of the setting TILEWRIGHT_CHOICES.
    `strict` refuses files that ONNX does not allow, but other runtimes read; otherwise each kind of what is wrong with
    them is a `ModelWarning` when the file is read. What comes from the store is not read again, and warns of nothing.
    `seed` is where random draws start that have no seed of their own (from 0 to 2**64 - 1): each call of one program
    gives the same numbers. A text is the name of a further input, u64[], by which each call gives the seed.
    `tune` is how long to measure other ways to run the kernels first (`"60s"`), as `tilewright.autotune` does. What it
    found before is taken without asking, unless `tune` is "off".
    Raises UserError for a model that cannot be compiled, listing all reasons.
    """
    start = time.perf_counter()
    _check_kinds(target, dims, level, off, precision)
    sizes, reading = Reading(strict, seed).check().with_dims(dims or {})
    machine = target if isinstance(target, Target) else measured(Target.parse(target))
    threads = count_threads(threads)
    check_denormals(KEEP if denormals is None else denormals, machine)
    names = frozenset((off,) if isinstance(off, str) else off)

    def make(tuned: Tuned) -> Executable:
        switches = Switches(level, names, precision, _read_choices(choices), tuned)
        return _made(model, machine, threads, switches, sizes, reading, start)

    if tune not in (None, OFF):
        from tilewright.api.tuning import tune_with

        tune_with(lambda: make(known_choices(machine)), machine, tune or 0)
    executable = make(UNTUNED if tune == OFF else known_choices(machine))
    executable.denormals = executable.denormals if denormals is None else denormals
    return executable


@with_room
def _made(
    model: str | os.PathLike[str] | bytes | ModelProto | Module | GraphFunction,
    machine: Target,
    threads: int,
    switches: Switches,
    sizes: Mapping[str, int],
    reading: Reading,
    start: float,
) -> Executable:
    """The executable of a model: of a file, what the store has of it; `start` is when the caller began."""
    if not isinstance(model, str | os.PathLike):
        with rare_collections():  # loading the compiler makes many objects, too
            from tilewright.api.programs import compile_model

            executable = compile_model(model, machine, threads, switches, sizes, reading)
    else:
        executable = _from_store(Stored.of_file(model, machine, switches, sizes, reading), threads, start)
    if not executable.cached:
        tell_summary(executable)
    return executable


def compile_stamp(precision: str) -> str:
    """Text that differs whenever a module in memory may be compiled to another program, for this machine and with a
    precision."""
    machine = measured(Target.parse("native"))
    return stamp_of(machine, switches_for(machine, precision))


def switches_for(target: Target, precision: str) -> Switches:
    """What `compile` does unless it is told otherwise."""
    return Switches(HIGHEST, frozenset(), precision, _read_choices(None), known_choices(target))


def known_choices(target: Target) -> Tuned:
    """What tuning found for a target on this machine."""
    if not settings.TUNED.read():
        return UNTUNED
    return Records.of(Store.default(), target, compiler_version()).tuned()


def tell_summary(executable: Executable) -> None:
    """Logs what was compiled, and into what."""
    program = executable.program
    kernels = counted(len({site.kernel for site in program.sites}), "kernel")
    constants = size(sum(array.nbytes for array in program.constants))
    source, took = source_of(program) or "a model in memory", duration(executable.compile_seconds)
    info("compiled %s for %s in %s: %s, %s of constants", source, program.target, took, kernels, constants)


def _from_store(stored: Stored, threads: int, start: float) -> Executable:
    """What the store has of a file, or what is compiled into it; `start` is when the caller began."""
    program = stored.find()
    if program is None:
        debug("%s is not in the store: it is compiled", stored.path)
        with rare_collections():
            from tilewright.api.programs import compile_stored

            return compile_stored(stored, threads, start)

    def look() -> Inside:
        from tilewright.api.programs import inside_of

        return inside_of(stored)

    debug("%s was compiled before: taken from the store", stored.path)
    return Executable(program, look, seconds=time.perf_counter() - start, cached=True, threads=threads)


def _read_choices(choices: Mapping[str, Forced] | None) -> str:
    """The choices of the setting with those of the argument over them."""
    setting = settings.CHOICES.read()
    asked = "" if choices is None else read_forced(choices, "the argument choices")
    if setting is None or not setting.record:
        return asked
    kept = forced_in(read_forced(setting.record, str(setting.path)))
    return read_forced({**kept, **forced_in(asked)}, "the argument choices")


def _check_kinds(target: object, dims: object, level: object, off: object, precision: object) -> None:
    """UserError for an argument that is not of its kind; what it may say, others check."""
    check_kind("target", target, (str, Target), "the name of a machine, or a Target", 'target="native"')
    if dims is not None:
        check_kind("dims", dims, Mapping, "a mapping from names of dimensions to their sizes", 'dims={"n": 1}')
    check_kind("level", level, int, f"a whole number from 0 to {HIGHEST}", f"level={HIGHEST}")
    check_kind("off", off, Iterable, "a pass, or several, by their names", 'off=("winograd",)')
    for name in (off,) if isinstance(off, str | bytes) else tuple(off):  # type: ignore[arg-type]
        check_kind("an item of off", name, str, "the name of a pass", 'off=("winograd",)')
    check_precision(precision)


def check_precision(precision: object) -> None:
    """UserError for a precision that is no name."""
    check_kind("precision", precision, str, "the name of a precision", f'precision="{PLAIN}"')
