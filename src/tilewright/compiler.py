"""From a Module to an Executable: the whole pipeline as one list.

graph     simplify · fold · share · drop · orient constants                what is computed, once each
plan      groups of operators, each a loops function                       which operators share a kernel
schedule  loops split, jammed, vectorized, marked parallel                 how each kernel runs
memory    the graph of calls as a loops function with an arena
legal     no blocks, one-dimensional buffers, explicit lanes               nothing left to decide
machine   LLVM IR, object code
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.codegen.assemble import assemble, assembly
from tilewright.codegen.module import generate
from tilewright.codegen.statements import FaultMessage
from tilewright.core.collection import rare_collections
from tilewright.core.passes import Level, Pass, Record, run_passes
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.verify import verify as verify_module
from tilewright.loops.evaluate_copies import evaluate_copies
from tilewright.loops.nodes import Function
from tilewright.loops.text import constants_of
from tilewright.lower.alternate import alternate
from tilewright.lower.bufferize import bufferize
from tilewright.lower.eliminate_common import eliminate_common
from tilewright.lower.eliminate_dead import eliminate_dead
from tilewright.lower.expand_math import expand_math
from tilewright.lower.flatten_buffers import flatten_buffers
from tilewright.lower.fold_constants import fold_constants
from tilewright.lower.full_masks import full_masks
from tilewright.lower.fuse_multiply_add import fuse_multiply_add
from tilewright.lower.hoist_constants import Array, Task, hoist_constants
from tilewright.lower.kernels import make_kernels
from tilewright.lower.lower_blocks import lower_blocks
from tilewright.lower.merge_positions import merge_positions
from tilewright.lower.orient_constants import orient_constants
from tilewright.lower.outline_parallel import outline_parallel
from tilewright.lower.own_results import own_results
from tilewright.lower.own_states import own_states
from tilewright.lower.promote_halves import promote_halves
from tilewright.lower.select_instructions import select_instructions
from tilewright.lower.share_out import share_out
from tilewright.lower.shift_signs import shift_signs
from tilewright.lower.simplify_graph import simplify_graph
from tilewright.lower.simplify_indices import simplify_indices
from tilewright.lower.sink_constants import sink_constants
from tilewright.lower.unroll import unroll
from tilewright.lower.vectorize import vectorize
from tilewright.lower.widen_padding import widen_padding
from tilewright.lower.winograd import winograd
from tilewright.lower.wrap import wrap
from tilewright.plan.decision import Decision
from tilewright.plan.defaults import scheduled
from tilewright.plan.groups import choose
from tilewright.report.settings import Show
from tilewright.runtime.executable import Executable
from tilewright.runtime.inside import Inside, Stages
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.native import NativeCode
from tilewright.target import Target, native
from tilewright.types.tensor import TensorType

GRAPH: Level[Module] = Level("graph", str, verify_module)
LOOPS: Level[Module] = Level("loops", str, verify_module)


def pipeline(target: Target, decisions: dict[str, Decision] | None = None) -> list[Pass[Module]]:
    """Every pass from a front end's module to the program that code generation prints. `decisions`, when given, takes
    for each kernel by its name how it came to its schedule."""
    decided: dict[str, Decision] = {} if decisions is None else decisions

    def each(change: Callable[[Function], Function]) -> Callable[[Module], Module]:
        return lambda module: over_functions(module, change)

    return [
        Pass("simplify", simplify_graph, GRAPH),
        Pass("fold", fold_constants, GRAPH),
        Pass("sink", sink_constants, GRAPH),
        Pass("merge", merge_positions, GRAPH),
        Pass("winograd", lambda module: winograd(module, target), GRAPH),
        Pass("orient", orient_constants, GRAPH),
        Pass("fold-oriented", fold_constants, GRAPH),
        Pass("widen", lambda module: widen_padding(module, target), GRAPH),
        Pass("shift-signs", lambda module: shift_signs(module, target), GRAPH),
        Pass("share", eliminate_common, GRAPH),
        Pass("drop", eliminate_dead, GRAPH),
        Pass("own-results", own_results, GRAPH),
        Pass("plan", lambda module: make_kernels(module, choose), GRAPH),
        Pass("own-states", own_states, GRAPH),
        Pass("schedule", lambda module: schedule_kernels(module, target, decided), GRAPH),
        Pass("hoist", lambda module: hoist_constants(module, run_functions), GRAPH),
        Pass("share-out", each(share_out), GRAPH),
        Pass("bufferize", bufferize, LOOPS),
        Pass("alternate", lambda module: alternate(module, target), LOOPS),
        *legalise(target),
    ]


def legalise(target: Target) -> list[Pass[Module]]:
    """The passes from loops functions with blocks to what code generation takes."""

    def each(change: Callable[[Function], Function]) -> Callable[[Module], Module]:
        return lambda module: over_functions(module, change)

    return [
        Pass("lower-blocks", each(lower_blocks), LOOPS),
        Pass("fuse-multiply-add", each(fuse_multiply_add) if target.has_fma else lambda m: m, LOOPS),
        Pass("promote-halves", each(promote_halves), LOOPS),
        Pass("expand-math", each(lambda f: expand_math(f, target.has_fma)), LOOPS),
        Pass("flatten", each(flatten_buffers), LOOPS),
        Pass("simplify-indices", each(simplify_indices), LOOPS),
        Pass("select-instructions", each(lambda f: select_instructions(f, target)), LOOPS),
        Pass("vectorize", each(vectorize), LOOPS),
        Pass("full-masks", each(full_masks), LOOPS),
        Pass("unroll", each(unroll), LOOPS),
        Pass("outline-parallel", outline_parallel, LOOPS),
    ]


def schedule_kernels(module: Module, target: Target, decisions: dict[str, Decision]) -> Module:
    """The module with every kernel scheduled; what was decided for it goes into `decisions`."""

    def change(function: Function) -> Function:
        made, decisions[function.name] = scheduled(function, target)
        return made

    return over_functions(module, change)


def run_functions(tasks: Sequence[Task]) -> list[tuple[Array, ...]]:
    """Runs each loops function once on its inputs, and returns their outputs. Those that copy elements are evaluated;
    all others are compiled for this machine, together."""
    copied = [evaluate_copies(function, inputs) for function, inputs in tasks]
    compiled = iter(_run_compiled([task for task, made in zip(tasks, copied, strict=True) if made is None]))
    return [next(compiled) if made is None else made for made in copied]


def _run_compiled(tasks: Sequence[Task]) -> list[tuple[Array, ...]]:
    if not tasks:
        return []
    machine = native()
    ports: list[Port] = []
    arrays: list[Array] = []
    results: list[tuple[Array, ...]] = []
    for function, inputs in tasks:
        types = [TensorType(b.dtype, b.shape) for b in function.params]
        made = [np.empty(t.static_shape() or (), t.dtype.numpy) for t in types[len(inputs) :]]
        ports += [Port(f"p{len(ports) + n}", t) for n, t in enumerate(types)]
        arrays += [*inputs, *made]
        results.append(tuple(made))
    module = wrap(*(function for function, _ in tasks))
    compiled = _finish(module, Interface(tuple(ports), (), ()), legalise(machine), machine, Show())
    link(compiled, machine, 0.0)(*arrays)
    return results


def over_functions(module: Module, change: Callable[[Function], Function]) -> Module:
    """The module with every kernel changed; its entry stays as it is."""
    for function in module.functions.values():
        if isinstance(function, Function) and function.name != module.entry:
            changed = change(function)
            if changed is not function:
                module = module.with_function(changed)
    return module


@dataclass(slots=True)
class Compiled:
    """What compiling a module gives: object code, the messages of its checks, every stage on the way, and how each
    kernel came to its schedule."""

    interface: Interface
    code: bytes
    faults: tuple[FaultMessage, ...]
    constants: tuple[str, ...]
    module: Module
    llvm: str
    record: Record[Module] = field(default_factory=Record)
    decisions: dict[str, Decision] = field(default_factory=dict)


def interface_of(graph: GraphFunction) -> Interface:
    """What the executable of a graph function will take and return."""
    inputs = tuple(Port(v.name, v.type) for v in graph.params)
    outputs = tuple(Port(n, v.type) for n, v in zip(graph.result_names, graph.results, strict=True))
    return Interface(inputs, outputs, graph.symbols)


def lower(module: Module, target: Target) -> Compiled:
    """Runs the pipeline and code generation."""
    decisions: dict[str, Decision] = {}
    compiled = _finish(module, interface_of(module.graph), pipeline(target, decisions), target)
    compiled.decisions = decisions
    return compiled


def lower_function(function: Function, target: Target) -> Compiled:
    """Runs the end of the pipeline for a function that a user wrote or scheduled: every parameter is the caller's."""
    ports = tuple(Port(b.name, TensorType(b.dtype, b.shape)) for b in function.params)
    return _finish(wrap(function), Interface(ports, (), function.symbols), legalise(target), target)


@rare_collections()
def _finish(
    module: Module, interface: Interface, passes: list[Pass[Module]], target: Target, show: Show | None = None
) -> Compiled:
    record: Record[Module] = Record()
    level = GRAPH if isinstance(module.main, GraphFunction) else LOOPS
    final = run_passes(module, passes, level=level, record=record, show=show)
    functions = {name: f for name, f in final.functions.items() if isinstance(f, Function)}
    generated = generate(functions, final.entry, target)
    code = assemble(generated.text, target)
    return Compiled(interface, code, generated.faults, constant_order(final), final, generated.text, record)


def constant_order(module: Module) -> tuple[str, ...]:
    """The names of the constants in the order the entry point takes them."""
    main = module.main
    assert isinstance(main, Function)
    return tuple(b.name for b in constants_of(main))


def stages_of(compiled: Compiled, target: Target) -> Stages:
    """The stages for a look inside."""
    return Stages(compiled.record, compiled.llvm, lambda: assembly(compiled.llvm, target), compiled.decisions)


def compile_module(module: Module, target: Target | None = None, threads: int | None = None) -> Executable:
    """Compiles a module whose entry is a graph function. No program is read from or written to the store."""
    target = target or native()
    start = time.perf_counter()
    compiled = lower(module, target)
    return link(compiled, target, time.perf_counter() - start, threads)


def link(compiled: Compiled, target: Target, seconds: float, threads: int | None = None) -> Executable:
    """The executable of what was compiled; its calls use this many threads, the default number unless given."""
    constants = [compiled.module.constants[name] for name in compiled.constants]
    inside = Inside(lambda: stages_of(compiled, target))
    native = NativeCode(compiled.code, target)
    return Executable(compiled.interface, native, compiled.faults, constants, inside, seconds=seconds, threads=threads)
