"""Kernels compiled apart: each from its program down to its object file, in whatever process, the same bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.codegen.assemble import assemble
from tilewright.codegen.module import Unit, generate_unit, join
from tilewright.compiler.compiled import Compiled, constant_order, interface_of
from tilewright.compiler.constants import put_down_made, run_functions
from tilewright.compiler.legalise import GRAPH, legalise
from tilewright.compiler.pipeline import lower, own_symbols, pipeline, plan_of
from tilewright.compiler.processes import useful_processes
from tilewright.core.collection import rare_collections
from tilewright.core.passes import run_passes
from tilewright.core.processes import Workers
from tilewright.core.switches import ALL_ON, Switches
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Alloc, Function, seq
from tilewright.loops.transport import dumps, loads
from tilewright.lower.kernels.hoist_constants import Hoisted, hoist_heads, split_head
from tilewright.lower.kernels.overwrite import overwrite
from tilewright.lower.kernels.share_out import share_out
from tilewright.lower.memory.bufferize import bufferize, lift_temporaries
from tilewright.plan.choose import scheduled
from tilewright.plan.decision import Choices, Decision
from tilewright.report import settings
from tilewright.runtime.inside import Origin
from tilewright.target import Target


def produce(module: Module, target: Target, switches: Switches = ALL_ON) -> Compiled:
    """What `lower` makes, the same bytes; the kernels of a large model are compiled in several processes."""
    count = useful_processes(module) if switches.all_on else 1
    if count == 1:
        return lower(module, target, switches)

    def encode(kernel: Function) -> bytes:
        return dumps((kernel, target))

    alone = {settings.COMPILE_PROCESSES.name: "1"}
    workers: Workers[Function, MadeKernel] = Workers(
        "tilewright.compiler.apart:work", count - 1, encode, loads, settings=alone
    )
    with workers:
        return _produce(module, target, workers, switches)


@rare_collections()
def _produce(module: Module, target: Target, workers: Workers[Function, MadeKernel], switches: Switches) -> Compiled:
    """The pipeline with all that is done for a kernel alone done by workers."""
    choices = Choices()
    passes = pipeline(target, choices, switches)
    planned = [p.name for p in passes].index("plan") + 1
    program = put_down_made(run_passes(module, passes[:planned], level=GRAPH), module)
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
    compiled.sites, compiled.origin = generated.sites, Origin(lambda: module, target, switches, plan=plan_of)
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
    kernel = overwrite(share_out(kernel if head is None else head.kernel))
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
