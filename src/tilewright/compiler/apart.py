"""Kernels compiled one by one, each from its program down to its object file: the same bytes in any process."""

from __future__ import annotations

from dataclasses import replace

from tilewright.codegen.assemble import assemble
from tilewright.codegen.module import Unit, generate_unit, join
from tilewright.compiler.compiled import Compiled, constant_order, interface_of
from tilewright.compiler.constants import put_down_made
from tilewright.compiler.kernels import Kernel, KernelPass, compile_alone, compile_rest, kernels_of
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import lower, pipeline, plan_of
from tilewright.compiler.processes import useful_processes
from tilewright.core.collection import rare_collections
from tilewright.core.passes import run_passes
from tilewright.core.processes import Workers
from tilewright.core.records import dataclass
from tilewright.core.switches import ALL_ON, Switches
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.loops.transport import dumps, loads
from tilewright.plan.decision import Choices
from tilewright.report import settings
from tilewright.report.logs import debug
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
    first = next(n for n, step in enumerate(passes) if isinstance(step, KernelPass))
    program = put_down_made(run_passes(module, passes[:first], level=GRAPH), module)
    kernels = kernels_of(program)
    largest = sorted(kernels, key=lambda f: -len(f.body.inside()))  # so that no process begins a long one at the end
    found = dict(zip(largest, workers.run(largest, lambda f: make_kernel(f, target)), strict=True))
    made = [found[kernel] for kernel in kernels]
    debug("%d kernels were compiled one by one, in several processes", len(made))
    program = compile_rest(program, passes[first:], {f.name: m.kernel for f, m in zip(kernels, made, strict=True)})
    main = program.main
    assert isinstance(main, Function)
    generated = join((main,), [kernel.unit for kernel in made], target)
    code = (assemble(generated.units[0].text(target), target), *(kernel.code for kernel in made))
    compiled = Compiled(interface_of(module.graph), code, generated.faults, constant_order(program), program, "")
    compiled.choices, compiled.again = choices, lambda: lower(module, target, switches)
    compiled.sites, compiled.origin = generated.sites, Origin(lambda: module, target, switches, plan=plan_of)
    return compiled


@dataclass(frozen=True, slots=True)
class MadeKernel:
    """A kernel compiled alone: what the rest of the program has to know of it, without its functions; its unit, of
    which the definitions are left out; and its object file."""

    kernel: Kernel
    unit: Unit
    code: bytes


def make_kernel(function: Function, target: Target) -> MadeKernel:
    """All that the pipeline does to one kernel alone, and its object file."""
    kernel = compile_alone(function, pipeline(target))
    unit = generate_unit(kernel.functions, target)
    code = assemble(unit.text(target), target)
    assert kernel.outside is not None
    head = None if kernel.head is None else replace(kernel.head, kernel=kernel.outside)
    return MadeKernel(replace(kernel, functions=(), head=head), replace(unit, definitions=""), code)


@rare_collections()
def work(task: bytes) -> bytes:
    """What a worker does: a kernel and the target become the kernel as it is made."""
    function, target = loads(task)
    return dumps(make_kernel(function, target))
