"""Kernels compiled a few at a time, from their programs down to an object file: the same bytes in any process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

import tilewright.ops as _ops  # noqa: F401  (registers the operators that modules name)
from tilewright.codegen.assemble import ENTRY_LEVEL, assemble
from tilewright.codegen.module import Unit, generate_unit, grouped, join, module_of
from tilewright.compiler.compiled import Compiled, constant_order, interface_of, outline_of, sites_code
from tilewright.compiler.constants import put_down_made
from tilewright.compiler.kernels import Kernel, KernelPass, compile_alone, compile_rest, kernels_of
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import lower, pipeline, plan_of
from tilewright.compiler.processes import (
    begin_workers,
    is_large,
    is_watched,
    processes_for_modules,
    useful_processes,
)
from tilewright.compiler.subnormals import usual_denormals
from tilewright.core.collection import rare_collections
from tilewright.core.passes import Pass, run_passes
from tilewright.core.processes import Batch, Workers
from tilewright.core.switches import ALL_ON, Switches
from tilewright.core.tuned import UNTUNED, Tuned
from tilewright.graph.constants import held
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.loops.transport import dumps, loads
from tilewright.report.logs import debug
from tilewright.runtime.inside import Origin
from tilewright.runtime.library.ahead import tell_program
from tilewright.runtime.plan_report import Choices, PlanReport
from tilewright.target import Target

LIGHT_BYTES = 1 << 20
"""Constants of more bytes do not go to another process and back for the sake of a plan."""

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


@dataclass(frozen=True, slots=True)
class Planned:
    """A module, the program of kernels that it becomes, and the report on its plan, all of one process."""

    module: Module
    program: Module
    plan: PlanReport | None


def produce(module: Module, target: Target, switches: Switches = ALL_ON, workers: Workers | None = None) -> Compiled:
    """What `lower` makes, the same bytes; the kernels of a large model are compiled in several processes, and in this
    one LLVM works in a thread of its own beside the passes: it needs no lock of Python's. `workers` are those that have
    begun; they end with it."""
    with ExitStack() as until:
        if workers is not None:
            until.enter_context(workers)
        if not (switches.all_on and is_large(module)) or is_watched():
            return lower(module, target, switches)
        if workers is None:
            workers = until.enter_context(begin_workers(useful_processes(module)))
        return _Shop(target, switches, workers).compile(module)


def produce_both(
    first: Module, second: Module, target: Target, switches: Switches = ALL_ON, workers: Workers | None = None
) -> tuple[Compiled, Callable[[], Compiled]]:
    """What `produce` makes of two modules, of the second when it is asked for. Where both are large, another process
    plans it while this one plans the first, and whichever process is free compiles kernels of either. `workers` are
    those that have begun; they end with it."""
    count = processes_for_modules() if is_large(first) and is_large(second) else 1
    with ExitStack() as until:
        if workers is not None:
            until.enter_context(workers)
        if count == 1 or not switches.all_on or not _is_light(second):
            return produce(first, target, switches), lambda: produce(second, target, switches)
        if workers is None:
            workers = until.enter_context(begin_workers(count))
        shop, process = _Shop(target, switches, workers), os.getpid()
        ahead = _Ahead(shop, second)
        compiled = shop.compile(first)
        workers.rest()
        until.pop_all()

    def rest() -> Compiled:
        if os.getpid() != process:  # a fork has none of its workers
            return produce(second, target, switches)
        with workers:
            workers.resume()
            return shop.complete(second, *ahead.finish())

    return compiled, rest


def _is_light(module: Module) -> bool:
    """Whether a module may go through a pipe."""
    return sum(array.nbytes for array in held(module.constants).values()) <= LIGHT_BYTES


class _Shop:
    """Where modules become code: this process, and workers."""

    def __init__(self, target: Target, switches: Switches, workers: Workers) -> None:
        self.target, self.switches, self.workers = target, switches, workers

    @rare_collections()
    def compile(self, module: Module) -> Compiled:
        """The pipeline with all that is done for a kernel alone shared with workers."""
        planned = _plan(module, self.target, self.switches)
        return self.complete(module, planned, self.begin(planned))

    def encode(self, task: Module | Group) -> bytes:
        """A task for a worker."""
        return dumps((task if isinstance(task, Module) else tuple(task), self.target, self.switches))

    def begin(self, planned: Planned) -> Batch[Group, Finished]:
        """Has workers begin with the kernels of a module, in an order in which no process begins a long one last."""

        def decode(answer: bytes) -> Finished:
            made, code = loads(answer)
            return made, lambda: code

        groups = grouped(kernels_of(planned.program))
        groups.sort(key=lambda group: -sum(len(f.body.inside()) for f in group))
        return self.workers.begin(groups, self.encode, decode)

    @rare_collections()
    def complete(self, module: Module, planned: Planned, batch: Batch[Group, Finished]) -> Compiled:
        """What is compiled of a module that was planned, when all of its kernels are."""
        target, switches, choices = self.target, self.switches, Choices(planned.plan)
        with ExitStack() as until:
            assembling = ThreadPoolExecutor(1)  # LLVM's functions take turns, whichever threads call them
            until.callback(assembling.shutdown, cancel_futures=True)

            def here(group: Group) -> Finished:
                made, text = make_group(group, target, switches.tuned)
                return made, assembling.submit(assemble, text, target).result

            program = put_down_made(planned.program, planned.module)
            found = {group[0].name: (group, *made) for group, made in zip(batch.tasks, batch.finish(here), strict=True)}
            finished = [found[g[0].name] for g in grouped(kernels_of(program))]  # none where results are inputs
            kernels = {f.name: k for group, made, _ in finished for f, k in zip(group, made.kernels, strict=True)}
            debug("%d kernels were compiled in %d groups", len(kernels), len(finished))
            passes = pipeline(target, choices, switches)
            program = compile_rest(program, passes[_first_alone(passes) :], kernels)
            main = program.main
            assert isinstance(main, Function)
            generated = join((main,), [unit for _, made, _ in finished for unit in made.units], target)
            interface = interface_of(planned.module.graph)
            compiled = Compiled(interface, (), generated.faults, constant_order(program), program, "")
            compiled.denormals = usual_denormals(module, target, switches.level)
            tell_program(lambda: outline_of(compiled, target), generated.forks)
            entry = assemble(module_of(generated.units[:1], target), target, ENTRY_LEVEL)
            compiled.code = (entry, *(code() for _, _, code in finished), *sites_code(generated, target))
        compiled.choices, compiled.again = choices, lambda: lower(module, target, switches)
        compiled.sites, compiled.origin = generated.sites, Origin(lambda: module, target, switches, plan=plan_of)
        return compiled


class _Ahead:
    """A module that a worker plans; its kernels are begun as soon as it has answered."""

    def __init__(self, shop: _Shop, module: Module) -> None:
        self._shop = shop
        self._kernels: dict[int, Batch[Group, Finished]] = {}
        self._plan: Batch[Module, Planned] = shop.workers.begin([module], shop.encode, loads, self._begin)

    def _begin(self, planned: Planned) -> None:
        self._kernels[id(planned)] = self._shop.begin(planned)

    def finish(self) -> tuple[Planned, Batch[Group, Finished]]:
        """The module as it was planned, by this process if no other one has; and its kernels."""
        (planned,) = self._plan.finish(lambda module: _plan(module, self._shop.target, self._shop.switches))
        return planned, self._kernels.get(id(planned)) or self._shop.begin(planned)


@rare_collections()
def _plan(module: Module, target: Target, switches: Switches) -> Planned:
    """The pipeline until kernels are alone."""
    choices = Choices()
    passes = pipeline(target, choices, switches)
    program = run_passes(module, passes[: _first_alone(passes)], level=GRAPH)
    return Planned(module, program, choices.plan)


def _first_alone(passes: Sequence[Pass[Module]]) -> int:
    return next(n for n, step in enumerate(passes) if isinstance(step, KernelPass))


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
    """What a worker does for a target: it plans a module, or makes a group of kernels and its object file."""
    given, target, switches = loads(task)
    if isinstance(given, Module):
        return dumps(_plan(given, target, switches))
    made, text = make_group(given, target, switches.tuned)
    return dumps((made, assemble(text, target)))
