"""Passes with a part that works on one kernel at a time: one process runs it for all kernels, or several, each for its
own.

run(module)            the whole pass
alone(kernel)          the part for a kernel alone
rest(module, kernels)  what is left then, in a module that knows kernels from outside: parameters and memory
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.core.passes import Level, Pass
from tilewright.core.switches import NEEDED
from tilewright.graph.nodes import AnyFunction, Module
from tilewright.loops.nodes import Function
from tilewright.lower.kernels.hoist_constants import Hoisted
from tilewright.plan.decision import Decision


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel on its way to code: its functions, itself first and the bodies of its parallel loops behind it; how it
    came to its schedule; what it computes from constants alone; and from bufferize on `outside`, a function with its
    parameters that allocates the memory it needs, which is all that its callers see."""

    functions: tuple[Function, ...]
    decision: Decision | None = None
    head: Hoisted | None = None
    outside: Function | None = None

    def with_functions(self, functions: Iterable[Function]) -> Kernel:
        """The kernel of other functions."""
        return replace(self, functions=tuple(functions))


Kernels = Mapping[str, Kernel]
Alone = Callable[[Kernel], Kernel]
Rest = Callable[[Module, Kernels], Module]


def _nothing(module: Module, kernels: Kernels) -> Module:
    return module


@dataclass(frozen=True, slots=True)
class KernelPass(Pass[Module]):
    """A pass with a part for each kernel alone."""

    alone: Alone = field(kw_only=True)
    rest: Rest = field(default=_nothing, kw_only=True)


def on_kernels(name: str, alone: Alone, level: Level[Module], since: int = NEEDED, rest: Rest = _nothing) -> KernelPass:
    """A pass that does to every kernel what it does to one alone, and the rest afterwards."""

    def run(module: Module) -> Module:
        kernels = {f.name: alone(Kernel((f,))) for f in kernels_of(module)}
        return rest(_with_kernels(module, kernels), kernels)

    return KernelPass(name, run, level, since, alone=alone, rest=rest)


def on_functions(
    name: str, change: Callable[[Function], Function], level: Level[Module], since: int = NEEDED
) -> KernelPass:
    """A pass that changes every function of a kernel by itself."""
    return on_kernels(name, lambda kernel: kernel.with_functions(map(change, kernel.functions)), level, since)


def kernels_of(module: Module) -> list[Function]:
    """The loops functions of a module but for its entry."""
    return [f for f in module.functions.values() if isinstance(f, Function) and f.name != module.entry]


def _with_kernels(module: Module, kernels: Kernels) -> Module:
    """The module with the functions of each kernel in its place."""
    functions: dict[str, AnyFunction] = {}
    for name, function in module.functions.items():
        functions |= {f.name: f for f in kernels[name].functions} if name in kernels else {name: function}
    changed = len(functions) != len(module.functions) or any(f is not module.functions[n] for n, f in functions.items())
    return replace(module, functions=functions) if changed else module


def compile_alone(function: Function, passes: Sequence[Pass[Module]]) -> Kernel:
    """A kernel after all that these passes do to it alone, in their order."""
    kernel = Kernel((function,))
    for step in passes:
        if isinstance(step, KernelPass):
            kernel = step.alone(kernel)
    return kernel


def compile_rest(module: Module, passes: Sequence[Pass[Module]], kernels: Kernels) -> Module:
    """The module after the rest of these passes, for kernels that went through their own part: what stands for one is
    what is seen of it from outside."""
    for kernel in kernels.values():
        assert kernel.outside is not None
        module = module.with_function(kernel.outside)
    for step in passes:
        module = step.rest(module, kernels) if isinstance(step, KernelPass) else step.run(module)
    return module
