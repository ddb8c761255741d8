"""What is offered of the compiler: models in memory and files that were not compiled before, programs as text, loops
functions, the evaluator."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tilewright.ops as _ops  # noqa: F401  (registers the operators)
from tilewright.api.modules import check_modules
from tilewright.artifact.cache import compile_again, compile_file, origin_of
from tilewright.artifact.stored import Stored
from tilewright.compiler import compile_module
from tilewright.compiler.compiled import program_of, stages_of
from tilewright.compiler.pipeline import lower_function
from tilewright.core.reading import Reading
from tilewright.core.switches import Switches
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate as _evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.parse import parse as _parse
from tilewright.loops.edit import statements
from tilewright.loops.faults import Fault, place_of
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.loops.verify import verify as verify_function
from tilewright.lower.graph.fix_dimensions import fix_dimensions
from tilewright.report.arguments import check_kind
from tilewright.report.errors import UserError
from tilewright.runtime.executable import Executable
from tilewright.runtime.inside import Inside
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.machine import measured
from tilewright.runtime.threads import count_threads
from tilewright.target import Target

if TYPE_CHECKING:
    from onnx import ModelProto


def compile_model(
    model: bytes | ModelProto | Module | GraphFunction,
    target: Target,
    threads: int,
    switches: Switches,
    sizes: Mapping[str, int],
    reading: Reading,
) -> Executable:
    """The executable of a model in memory."""
    start = time.perf_counter()
    if isinstance(model, GraphFunction):
        model = Module({model.name: model}, {}, model.name)
    if isinstance(model, Module):
        check_modules(switches, model)
        reading.check_shapes([p.name for p in model.graph.params], [])
    else:
        check_modules(switches)
    module = model if isinstance(model, Module) else read(model, reading)
    executable = compile_module(fix_dimensions(module, sizes), target, threads, switches)
    executable.compile_seconds = time.perf_counter() - start
    return executable


def compile_stored(stored: Stored, threads: int, start: float) -> Executable:
    """The executable of a model file, which is kept for the next time; compiling counts from `start`."""
    check_modules(stored.switches)
    return compile_file(stored, threads, start)


def inside_of(stored: Stored) -> Inside:
    """A look inside what came from the store: it is compiled again."""
    return Inside(lambda: stages_of(compile_again(stored), stored.target), origin=origin_of(stored))


def parse(text: str) -> GraphFunction | Function | Module:
    """The program in `text`: the function when there is one, else the module of all of them, of either level.

    Raises UserError at the line that cannot be read.
    """
    check_kind("text", text, str, "the text of a program", "parse(path.read_text())")
    return _parse(text)


def build(function: Function, *, target: str | Target = "native", threads: int | None = None) -> Kernel:
    """Compiles a loops function to a callable over NumPy arrays, destination-passing: it takes an array for each
    parameter and changes those it writes in place.

        add = tw.build(tw.parse("func add(a: f32[8], b: f32[8], c: f32[8]): …"))
        add(a, b, c)

    `target` and `threads` are those of `compile`; what a `parallel` loop of the function does is dealt out to threads.
    """
    if not isinstance(function, Function):
        raise UserError(
            f"cannot build a {type(function).__name__}",
            why="build takes a loops function",
            fix="compile a graph with tilewright.compile",
        )
    check_kind("target", target, (str, Target), "the name of a machine, or a Target", 'target="native"')
    machine = target if isinstance(target, Target) else measured(Target.parse(target))
    threads = count_threads(threads)
    verify_function(function, family=UserError)
    _check_no_threads(function)
    start = time.perf_counter()
    compiled = lower_function(function, machine)
    inside = Inside(lambda: stages_of(compiled, machine))
    seconds = time.perf_counter() - start
    kernel = Kernel(program_of(compiled, machine), lambda: inside, seconds=seconds, threads=threads)
    kernel.outputs_at = len(function.params) - function.outputs
    kernel.finite = tuple(n for n, p in enumerate(function.params) if p.finite)
    return kernel


def _check_no_threads(function: Function) -> None:
    """Refuses loops bound to a GPU's threads: they are text so far."""
    for s in statements(function.body):
        if isinstance(s, For) and s.kind is LoopKind.THREAD:
            raise UserError(
                f"cannot build {function.name}",
                where=place_of(function, Fault(s, "", part=f"{s.thread} = {s.var.name}")),
                why=f"loop {s.var.name} is bound to {s.thread}, and the target has no such threads",
                fix="build the program before bind, or print it",
            )


def evaluate(module: Module, feeds: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Runs a module in plain NumPy: the meaning that compiled code is compared with. `feeds` are arrays by name."""
    check_kind("module", module, Module, "a module", 'evaluate(Module({"main": graph}, {}, "main"), feeds)')
    check_kind("feeds", feeds, (Mapping, Sequence), "a mapping from names to arrays", 'evaluate(module, {"x": x})')
    return _evaluate(module, feeds)
