"""Kernels compiled a few at a time, from their programs down to an object file: the same bytes in any process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tilewright.codegen.assemble import ENTRY_LEVEL, assemble
from tilewright.codegen.module import Unit, generate_unit, grouped, join, module_of
from tilewright.compiler.compiled import Compiled, constant_order, interface_of, outline_of, sites_code
from tilewright.compiler.constants import put_down_made
from tilewright.compiler.kernels import Kernel, KernelPass, compile_alone, compile_rest, kernels_of
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import lower, pipeline, plan_of
from tilewright.compiler.processes import is_large, is_watched, useful_processes
from tilewright.compiler.subnormals import usual_denormals
from tilewright.core.collection import rare_collections
from tilewright.core.passes import run_passes
from tilewright.core.processes import Workers
from tilewright.core.switches import ALL_ON, Switches
from tilewright.core.tuned import UNTUNED, Tuned
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.loops.transport import dumps, loads
from tilewright.report import settings
from tilewright.report.logs import debug
from tilewright.runtime.inside import Origin
from tilewright.runtime.library.ahead import tell_program
from tilewright.runtime.plan_report import Choices
from tilewright.target import Target

Group = Sequence[Function]
"""Kernels that make an object file together."""


@dataclass(frozen=True, slots=True)
class MadeGroup:
    """Kernels compiled apart from others: what the rest of the program has to know of each, without its functions; and
    their units, of which the definitions are left out."""

    kernels: tuple[Kernel, ...]
    units: tuple[Unit, ...]


Finished = tuple[MadeGroup, Callable[[], bytes]]
"""A group, and what waits for its object file."""


def produce(module: Module, target: Target, switches: Switches = ALL_ON) -> Compiled:
    """What `lower` makes, the same bytes; the kernels of a large model are compiled in several processes, and in this
    one LLVM works in a thread of its own beside the passes: it needs no lock of Python's."""
    if not (switches.all_on and is_large(module)) or is_watched():
        return lower(module, target, switches)

    def encode(group: Group) -> bytes:
        return dumps((tuple(group), target, switches.tuned))

    def decode(answer: bytes) -> Finished:
        made, code = loads(answer)
        return made, lambda: code

    alone = {settings.COMPILE_PROCESSES.name: "1"}
    count = useful_processes(module)
    workers: Workers[Group, Finished] = Workers(
        "tilewright.compiler.apart:work", count - 1, encode, decode, settings=alone
    )
    with workers, ExitStack() as until:
        assembling = ThreadPoolExecutor(1)  # LLVM's functions take turns, whichever threads call them
        until.callback(assembling.shutdown, cancel_futures=True)
        return _produce(module, target, workers, assembling, switches)


@rare_collections()
def _produce(
    module: Module, target: Target, workers: Workers[Group, Finished], assembling: Executor, switches: Switches
) -> Compiled:
    """The pipeline with all that is done for a kernel alone done by workers."""

    def here(group: Group) -> Finished:
        made, text = make_group(group, target, switches.tuned)
        return made, assembling.submit(assemble, text, target).result

    choices = Choices()
    passes = pipeline(target, choices, switches)
    first = next(n for n, step in enumerate(passes) if isinstance(step, KernelPass))
    program = put_down_made(run_passes(module, passes[:first], level=GRAPH), module)
    groups = grouped(kernels_of(program))
    largest = sorted(groups, key=lambda g: -sum(len(f.body.inside()) for f in g))  # no process begins a long one last
    found = dict(zip(map(id, largest), workers.run(largest, here), strict=True))
    finished = [(group, *found[id(group)]) for group in groups]  # none where all results are inputs and constants
    kernels = {f.name: k for group, made, _ in finished for f, k in zip(group, made.kernels, strict=True)}
    debug("%d kernels were compiled in %d groups", len(kernels), len(groups))
    program = compile_rest(program, passes[first:], kernels)
    main = program.main
    assert isinstance(main, Function)
    generated = join((main,), [unit for _, made, _ in finished for unit in made.units], target)
    compiled = Compiled(interface_of(module.graph), (), generated.faults, constant_order(program), program, "")
    compiled.denormals = usual_denormals(module, target, switches.level)
    tell_program(lambda: outline_of(compiled, target), generated.forks)
    entry = assemble(module_of(generated.units[:1], target), target, ENTRY_LEVEL)
    compiled.code = (entry, *(code() for _, _, code in finished), *sites_code(generated, target))
    compiled.choices, compiled.again = choices, lambda: lower(module, target, switches)
    compiled.sites, compiled.origin = generated.sites, Origin(lambda: module, target, switches, plan=plan_of)
    return compiled


def make_group(functions: Group, target: Target, tuned: Tuned = UNTUNED) -> tuple[MadeGroup, str]:
    """All that the pipeline does to kernels alone, and their LLVM IR."""
    passes = pipeline(target, switches=Switches(tuned=tuned))
    made = [compile_alone(function, passes) for function in functions]
    units = [generate_unit(kernel.functions, target) for kernel in made]
    seen = tuple([_from_outside(kernel) for kernel in made])
    return MadeGroup(seen, tuple([replace(unit, definitions="") for unit in units])), module_of(units, target)


def _from_outside(kernel: Kernel) -> Kernel:
    """What the rest of a program has to know of a kernel."""
    assert kernel.outside is not None
    head = None if kernel.head is None else replace(kernel.head, kernel=kernel.outside)
    return replace(kernel, functions=(), head=head)


@rare_collections()
def work(task: bytes) -> bytes:
    """What a worker does: a group of kernels and the target become the group as it is made, and its object file."""
    functions, target, tuned = loads(task)
    made, text = make_group(functions, target, tuned)
    return dumps((made, assemble(text, target)))
