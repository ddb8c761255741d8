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
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.codegen.assemble import assemble, assembly
from tilewright.codegen.module import generate
from tilewright.codegen.statements import FaultMessage
from tilewright.core.passes import Level, Pass, Record, run_passes
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.verify import verify as verify_module
from tilewright.loops.nodes import Function
from tilewright.loops.text import constants_of
from tilewright.lower.bufferize import bufferize
from tilewright.lower.eliminate_common import eliminate_common
from tilewright.lower.eliminate_dead import eliminate_dead
from tilewright.lower.expand_math import expand_math
from tilewright.lower.flatten_buffers import flatten_buffers
from tilewright.lower.fold_constants import fold_constants
from tilewright.lower.fuse_multiply_add import fuse_multiply_add
from tilewright.lower.kernels import make_kernels
from tilewright.lower.lower_blocks import lower_blocks
from tilewright.lower.orient_constants import orient_constants
from tilewright.lower.own_results import own_results
from tilewright.lower.promote_halves import promote_halves
from tilewright.lower.simplify_graph import simplify_graph
from tilewright.lower.simplify_indices import simplify_indices
from tilewright.lower.unroll import unroll
from tilewright.lower.vectorize import vectorize
from tilewright.lower.wrap import wrap
from tilewright.plan.defaults import default_schedule
from tilewright.plan.groups import choose
from tilewright.runtime.executable import Executable
from tilewright.runtime.inside import Inside, Stages
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.native import NativeCode
from tilewright.target import Target, native
from tilewright.types.tensor import TensorType

GRAPH: Level[Module] = Level("graph", str, verify_module)
LOOPS: Level[Module] = Level("loops", str, verify_module)


def pipeline(target: Target) -> list[Pass[Module]]:
    """Every pass from a front end's module to the program that code generation prints."""

    def each(change: Callable[[Function], Function]) -> Callable[[Module], Module]:
        return lambda module: over_functions(module, change)

    return [
        Pass("simplify", simplify_graph, GRAPH),
        Pass("fold", fold_constants, GRAPH),
        Pass("orient", orient_constants, GRAPH),
        Pass("fold-oriented", fold_constants, GRAPH),
        Pass("share", eliminate_common, GRAPH),
        Pass("drop", eliminate_dead, GRAPH),
        Pass("own-results", own_results, GRAPH),
        Pass("plan", lambda module: make_kernels(module, choose(module.graph)), GRAPH),
        Pass("schedule", each(lambda f: default_schedule(f, target)), GRAPH),
        Pass("bufferize", bufferize, LOOPS),
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
        Pass("vectorize", each(vectorize), LOOPS),
        Pass("unroll", each(unroll), LOOPS),
    ]


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
    """What compiling a module gives: object code, the messages of its checks, and every stage on the way."""

    interface: Interface
    code: bytes
    faults: tuple[FaultMessage, ...]
    constants: tuple[str, ...]
    module: Module
    llvm: str
    record: Record[Module] = field(default_factory=Record)


def interface_of(graph: GraphFunction) -> Interface:
    """What the executable of a graph function will take and return."""
    inputs = tuple(Port(v.name, v.type) for v in graph.params)
    outputs = tuple(Port(n, v.type) for n, v in zip(graph.result_names, graph.results, strict=True))
    return Interface(inputs, outputs, graph.symbols)


def lower(module: Module, target: Target) -> Compiled:
    """Runs the pipeline and code generation."""
    return _finish(module, interface_of(module.graph), pipeline(target), target)


def lower_function(function: Function, target: Target) -> Compiled:
    """Runs the end of the pipeline for a function that a user wrote or scheduled: every parameter is the caller's."""
    ports = tuple(Port(b.name, TensorType(b.dtype, b.shape)) for b in function.params)
    return _finish(wrap(function), Interface(ports, (), function.symbols), legalise(target), target)


def _finish(module: Module, interface: Interface, passes: list[Pass[Module]], target: Target) -> Compiled:
    record: Record[Module] = Record()
    level = GRAPH if isinstance(module.main, GraphFunction) else LOOPS
    final = run_passes(module, passes, level=level, record=record)
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
    return Stages(compiled.record, compiled.llvm, lambda: assembly(compiled.llvm, target))


def compile_module(module: Module, target: Target | None = None) -> Executable:
    """Compiles a module whose entry is a graph function. Nothing is read from or written to the store."""
    target = target or native()
    start = time.perf_counter()
    compiled = lower(module, target)
    return link(compiled, target, time.perf_counter() - start)


def link(compiled: Compiled, target: Target, seconds: float) -> Executable:
    """The executable of what was compiled."""
    constants = [compiled.module.constants[name] for name in compiled.constants]
    inside = Inside(lambda: stages_of(compiled, target))
    return Executable(
        compiled.interface, NativeCode(compiled.code, target), compiled.faults, constants, inside, seconds=seconds
    )
