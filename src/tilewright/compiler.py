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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.codegen.assemble import assemble, assembly
from tilewright.codegen.module import Unit, generate, generate_unit, join
from tilewright.codegen.statements import FaultMessage
from tilewright.core.collection import rare_collections
from tilewright.core.passes import Level, Pass, Record, run_passes
from tilewright.core.processes import Workers
from tilewright.core.switches import ALL_ON, HIGHEST, PLAIN, Switches, read_switches
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.verify import verify as verify_module
from tilewright.loops.evaluate_copies import evaluate_copies
from tilewright.loops.nodes import Alloc, Function, seq
from tilewright.loops.text import constants_of
from tilewright.loops.transport import dumps, loads
from tilewright.lower.alternate import alternate
from tilewright.lower.bufferize import bufferize, lift_temporaries
from tilewright.lower.eliminate_common import eliminate_common
from tilewright.lower.eliminate_dead import eliminate_dead
from tilewright.lower.expand_math import expand_math
from tilewright.lower.flatten_buffers import flatten_buffers
from tilewright.lower.fold_constants import fold_constants
from tilewright.lower.full_masks import full_masks
from tilewright.lower.fuse_multiply_add import fuse_multiply_add
from tilewright.lower.hoist_constants import Array, Hoisted, Task, hoist_constants, hoist_heads, split_head
from tilewright.lower.kernels import make_kernels
from tilewright.lower.lower_blocks import lower_blocks
from tilewright.lower.merge_positions import merge_positions
from tilewright.lower.orient_constants import orient_constants
from tilewright.lower.outline_parallel import outline_parallel
from tilewright.lower.own_results import own_results
from tilewright.lower.own_states import own_states
from tilewright.lower.promote_halves import promote_halves
from tilewright.lower.reduce_precision import reduce_precision
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
from tilewright.plan.decision import Choices, Decision
from tilewright.plan.defaults import scheduled
from tilewright.plan.fusion.explain import report
from tilewright.plan.fusion.planner import Plan, choose, unfused
from tilewright.report import settings
from tilewright.report.settings import Show
from tilewright.runtime.executable import Executable
from tilewright.runtime.inside import Inside, Stages
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.native import NativeCode
from tilewright.target import Target, native
from tilewright.target.host import current_host
from tilewright.types.tensor import TensorType

GRAPH: Level[Module] = Level("graph", str, verify_module)
LOOPS: Level[Module] = Level("loops", str, verify_module)

PLANNED, SCHEDULED = 1, 2
"""The levels from which on operators share kernels, and kernels are scheduled."""

LARGE_MODEL = 64
"""Operators of a model whose kernels take long enough to compile that other processes, which take half a second to
begin, are of use."""


def pipeline(target: Target, choices: Choices | None = None, switches: Switches = ALL_ON) -> list[Pass[Module]]:
    """Every pass from a front end's module to the program that code generation prints, but for those switched off; a
    plan that is switched off has a kernel for each operator, a schedule leaves kernels as they are defined. `choices`,
    when given, takes what was chosen on the way."""
    chosen = choices or Choices()
    fuses, schedules = switches.wants("plan", PLANNED), switches.wants("schedule", SCHEDULED)
    rounds = switches.halves and switches.wants("reduce-precision", HIGHEST)

    def each(change: Callable[[Function], Function]) -> Callable[[Module], Module]:
        return lambda module: over_functions(module, change)

    passes = [
        Pass("simplify", simplify_graph, GRAPH, since=1),
        Pass("fold", fold_constants, GRAPH, since=1),
        Pass("sink", sink_constants, GRAPH, since=1),
        Pass("merge", merge_positions, GRAPH, since=1),
        Pass("winograd", lambda module: winograd(module, target, rounds), GRAPH, since=3),
        Pass("orient", orient_constants, GRAPH, since=2),
        Pass("fold-oriented", fold_constants, GRAPH, since=2),
        Pass("reduce-precision", lambda m: reduce_precision(m, target) if rounds else m, GRAPH, since=HIGHEST),
        Pass("widen", lambda module: widen_padding(module, target), GRAPH, since=2),
        Pass("shift-signs", lambda module: shift_signs(module, target), GRAPH, since=2),
        Pass("share", eliminate_common, GRAPH, since=1),
        Pass("drop", eliminate_dead, GRAPH, since=1),
        Pass("own-results", own_results, GRAPH),
        Pass("plan", lambda module: plan_kernels(module, target, chosen, fuses), GRAPH),
        Pass("own-states", own_states, GRAPH),
        Pass("schedule", lambda m: schedule_kernels(m, target, chosen.decisions) if schedules else m, GRAPH),
        Pass("hoist", lambda module: hoist_constants(module, run_functions), GRAPH, since=2),
        Pass("share-out", each(share_out), GRAPH, since=2),
        Pass("bufferize", bufferize, LOOPS),
        Pass("alternate", lambda module: alternate(module, target), LOOPS, since=2),
    ]
    return [*switches.choose(passes), *legalise(target, switches)]


def read_pass_switches(level: int, off: Iterable[str], precision: str = PLAIN) -> Switches:
    """The switches that a user asks for, as `core.switches.read_switches` reads them."""
    since = {p.name: p.since for p in pipeline(native())} | {"plan": PLANNED, "schedule": SCHEDULED}
    return read_switches(level, off, since, precision)


def legalise(target: Target, switches: Switches = ALL_ON) -> list[Pass[Module]]:
    """The passes from loops functions with blocks to what code generation takes."""

    def each(change: Callable[[Function], Function]) -> Callable[[Module], Module]:
        return lambda module: over_functions(module, change)

    passes = [
        Pass("lower-blocks", each(lower_blocks), LOOPS),
        Pass("fuse-multiply-add", each(fuse_multiply_add) if target.has_fma else lambda m: m, LOOPS, since=2),
        Pass("promote-halves", each(promote_halves), LOOPS),
        Pass("expand-math", each(lambda f: expand_math(f, target.has_fma)), LOOPS),
        Pass("flatten", each(flatten_buffers), LOOPS),
        Pass("simplify-indices", each(simplify_indices), LOOPS, since=1),
        Pass("select-instructions", each(lambda f: select_instructions(f, target)), LOOPS),
        Pass("vectorize", each(vectorize), LOOPS),
        Pass("full-masks", each(full_masks), LOOPS, since=2),
        Pass("unroll", each(unroll), LOOPS),
        Pass("outline-parallel", outline_parallel, LOOPS),
    ]
    return switches.choose(passes)


def plan_kernels(module: Module, target: Target, choices: Choices, fuses: bool = True) -> Module:
    """The module with calls of kernels in its graph functions, each of one operator unless `fuses`; the report on their
    plans goes into `choices`."""
    plans: dict[str, Plan] = {}

    def planned(graph: GraphFunction) -> Plan:
        plans[graph.name] = choose(graph, target) if fuses else unfused(graph, target)
        return plans[graph.name]

    made = make_kernels(module, planned)
    choices.plan = report(plans, made)
    return made


def schedule_kernels(module: Module, target: Target, decisions: dict[str, Decision]) -> Module:
    """The module with every kernel scheduled; what was decided for it goes into `decisions`."""

    def change(function: Function) -> Function:
        made, decisions[function.name] = scheduled(own_symbols(function), target)
        return made

    return over_functions(module, change)


def run_functions(tasks: Sequence[Task]) -> list[tuple[Array, ...]]:
    """Runs each loops function once on its inputs, and returns their outputs. Those that copy elements are evaluated,
    by a few threads, since copies wait for memory; all others are compiled for this machine, together."""
    with ThreadPoolExecutor(_most_processes()) as threads:
        copied = list(threads.map(lambda task: evaluate_copies(*task), tasks))
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
    """What compiling a module gives: object files, that of its entry first, the messages of its checks, every stage on
    the way, and what was chosen on it. Where other processes compiled kernels, stages are not kept: `again` compiles
    the same in this one."""

    interface: Interface
    code: tuple[bytes, ...]
    faults: tuple[FaultMessage, ...]
    constants: tuple[str, ...]
    module: Module
    llvm: str
    record: Record[Module] = field(default_factory=Record)
    choices: Choices = field(default_factory=Choices)
    again: Callable[[], Compiled] | None = None


def interface_of(graph: GraphFunction) -> Interface:
    """What the executable of a graph function will take and return."""
    inputs = tuple(Port(v.name, v.type) for v in graph.params)
    outputs = tuple(Port(n, v.type) for n, v in zip(graph.result_names, graph.results, strict=True))
    return Interface(inputs, outputs, graph.symbols)


def lower(module: Module, target: Target, switches: Switches = ALL_ON) -> Compiled:
    """Runs the pipeline and code generation."""
    choices = Choices()
    compiled = _finish(module, interface_of(module.graph), pipeline(target, choices, switches), target)
    compiled.choices = choices
    return compiled


def lower_function(function: Function, target: Target) -> Compiled:
    """Runs the end of the pipeline for a function that a user wrote or scheduled: every parameter is the caller's."""
    ports = tuple(Port(b.name, TensorType(b.dtype, b.shape)) for b in function.params)
    return _finish(wrap(function), Interface(ports, (), function.symbols), legalise(target), target)


def produce(module: Module, target: Target, switches: Switches = ALL_ON) -> Compiled:
    """What `lower` makes, the same bytes; the kernels of a large model are compiled in several processes."""
    count = _useful_processes(module) if switches.all_on else 1
    if count == 1:
        return lower(module, target, switches)

    def encode(kernel: Function) -> bytes:
        return dumps((kernel, target))

    alone = {settings.COMPILE_PROCESSES.name: "1"}
    workers: Workers[Function, MadeKernel] = Workers(
        "tilewright.compiler:work", count - 1, encode, loads, settings=alone
    )
    with workers:
        return _produce(module, target, workers, switches)


def _useful_processes(module: Module) -> int:
    """How many processes are to compile the kernels of a module. A compilation that somebody watches stays in one."""
    show = settings.SHOW.read()
    watched = show.lines or show.directory is not None or settings.VERIFY.read()
    return _most_processes() if is_large(module) and not watched else 1


def _most_processes() -> int:
    """How many processes, or threads, may work on one compilation."""
    return settings.COMPILE_PROCESSES.read() or current_host().cores


def is_large(module: Module) -> bool:
    """Whether kernels become object files of their own, which several processes may make: a file takes LLVM two
    milliseconds beside what is in it."""
    plain = len(module.functions) == 1 and isinstance(module.main, GraphFunction)
    return plain and len(module.graph.nodes) >= LARGE_MODEL


@rare_collections()
def _produce(module: Module, target: Target, workers: Workers[Function, MadeKernel], switches: Switches) -> Compiled:
    """The pipeline with all that is done for a kernel alone done by workers."""
    choices = Choices()
    passes = pipeline(target, choices, switches)
    planned = [p.name for p in passes].index("plan") + 1
    program = run_passes(module, passes[:planned], level=GRAPH)
    kernels = [f for f in program.functions.values() if isinstance(f, Function)]
    largest = sorted(kernels, key=lambda f: -len(f.body.inside()))  # so that no process begins a long one at the end
    found = dict(zip(largest, workers.run(largest, lambda f: make_kernel(f, target)), strict=True))
    made = {kernel.name: found[kernel] for kernel in kernels}
    for kernel in made.values():
        program = program.with_function(kernel.outside)
    heads = {name: kernel.head for name, kernel in made.items() if kernel.head is not None}
    program = bufferize(hoist_heads(program, heads, run_functions))
    main = program.main
    assert isinstance(main, Function)
    generated = join((main,), [kernel.unit for kernel in made.values()], target)
    code = (assemble(generated.units[0].text(target), target), *(kernel.code for kernel in made.values()))
    choices.decisions = {name: kernel.decision for name, kernel in made.items()}
    compiled = Compiled(interface_of(module.graph), code, generated.faults, constant_order(program), program, "")
    compiled.choices, compiled.again = choices, lambda: lower(module, target, switches)
    return compiled


@dataclass(frozen=True, slots=True)
class MadeKernel:
    """A kernel compiled alone: `outside` is what its callers see of it, its parameters and the memory it needs; `head`
    what it computes from constants alone; then how it came to its schedule, its unit, of which the definitions are left
    out, and its object file."""

    outside: Function
    head: Hoisted | None
    decision: Decision
    unit: Unit
    code: bytes


def make_kernel(function: Function, target: Target) -> MadeKernel:
    """All passes after the plan for one kernel, in the order of the pipeline, and its object file."""
    function = own_symbols(function)
    kernel, decision = scheduled(function, target)
    head = split_head(kernel)
    kernel = share_out(kernel if head is None else head.kernel)
    lifted, memory = lift_temporaries(kernel)
    outside = kernel.replace(body=seq(*[Alloc(buffer) for buffer in memory]))
    module = Module({lifted.name: lifted})
    for step in legalise(target):
        module = step.run(module)
    unit = generate_unit([f for f in module.functions.values() if isinstance(f, Function)], target)
    code = assemble(unit.text(target), target)
    if head is not None:
        head = replace(head, kernel=outside)
    return MadeKernel(outside, head, decision, replace(unit, definitions=""), code)


@rare_collections()
def work(task: bytes) -> bytes:
    """What a worker does: a kernel and the target become the kernel as it is made."""
    function, target = loads(task)
    return dumps(make_kernel(function, target))


def own_symbols(function: Function) -> Function:
    """The function with symbols of its own. Expressions over them are made with it then, and in the same order wherever
    it is compiled, whatever other kernels have made."""
    made: Function = loads(dumps(function)) if function.symbols else function
    return made


@rare_collections()
def _finish(
    module: Module, interface: Interface, passes: list[Pass[Module]], target: Target, show: Show | None = None
) -> Compiled:
    record: Record[Module] = Record()
    level = GRAPH if isinstance(module.main, GraphFunction) else LOOPS
    final = run_passes(module, passes, level=level, record=record, show=show)
    functions = {name: f for name, f in final.functions.items() if isinstance(f, Function)}
    generated = generate(functions, final.entry, target)
    texts = [unit.text(target) for unit in generated.units] if is_large(module) else [generated.text]
    code = tuple(assemble(text, target) for text in texts)
    return Compiled(interface, code, generated.faults, constant_order(final), final, generated.text, record)


def constant_order(module: Module) -> tuple[str, ...]:
    """The names of the constants in the order the entry point takes them."""
    main = module.main
    assert isinstance(main, Function)
    return tuple(b.name for b in constants_of(main))


def stages_of(compiled: Compiled, target: Target) -> Stages:
    """The stages for a look inside."""
    if compiled.again is not None:
        compiled = compiled.again()
    return Stages(compiled.record, compiled.llvm, lambda: assembly(compiled.llvm, target), compiled.choices)


def compile_module(
    module: Module, target: Target | None = None, threads: int | None = None, switches: Switches = ALL_ON
) -> Executable:
    """Compiles a module whose entry is a graph function. No program is read from or written to the store."""
    target = target or native()
    start = time.perf_counter()
    compiled = produce(module, target, switches)
    return link(compiled, target, time.perf_counter() - start, threads)


def link(compiled: Compiled, target: Target, seconds: float, threads: int | None = None) -> Executable:
    """The executable of what was compiled; its calls use this many threads, the default number unless given."""
    constants = [compiled.module.constants[name] for name in compiled.constants]
    inside = Inside(lambda: stages_of(compiled, target), compiled.choices if compiled.again is not None else None)
    native = NativeCode(compiled.code, target)
    return Executable(compiled.interface, native, compiled.faults, constants, inside, seconds=seconds, threads=threads)
