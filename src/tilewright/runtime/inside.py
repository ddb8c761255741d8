"""A look inside a compiled program: the text of any stage, the kernels, the assembly.

What was loaded from the store was not compiled in this process, nor all of what several processes compiled; then the
pipeline runs again when somebody first looks, and gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.core.passes import Record
from tilewright.graph.nodes import AnyFunction, Module
from tilewright.loops.edit import statements
from tilewright.loops.nodes import CallFunction, Function
from tilewright.plan.decision import Decision
from tilewright.report.errors import UserError


@dataclass(frozen=True, slots=True)
class Stages:
    """Every stage of one compilation, what code generation made of the last, and how each kernel, by its name, came to
    its schedule."""

    record: Record[Module]
    llvm: str
    assembly: Callable[[], str]
    decisions: Mapping[str, Decision]


class Inside:
    """Stages, made when they are first asked for. How each kernel came to its schedule may be known before."""

    def __init__(self, make: Callable[[], Stages], decisions: Mapping[str, Decision] | None = None) -> None:
        self._make = make
        self._known = decisions

    @cached_property
    def _stages(self) -> Stages:
        return self._make()

    @property
    def names(self) -> tuple[str, ...]:
        """The stages in order; `llvm` and `assembly` are the last."""
        return (*(stage.name for stage in self._stages.record), "llvm", "assembly")

    @property
    def module(self) -> Module:
        """The program after the last pass."""
        return self._stages.record.stages[-1].program

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, in the order they are first called."""
        return tuple(self._known or _kernels(self.module))

    @property
    def decisions(self) -> dict[str, Decision]:
        """How each kernel came to its schedule; those that the compiler did not schedule are not there."""
        found = self._known or self._stages.decisions
        return {name: found[name] for name in self.kernels if name in found}

    def report(self) -> str:
        """A line for each pass, with its time."""
        return self._stages.record.report()

    def show(self, after: str | None = None, kernel: int | str | None = None, *, explain: bool = False) -> str:
        """The text after a stage (the last pass, unless named), of the whole program or of one kernel; with `explain`,
        comments above a scheduled kernel say how it came to its schedule."""
        if after == "llvm":
            return self._stages.llvm
        if after == "assembly":
            return self._stages.assembly()
        record = self._stages.record
        if after is not None and all(stage.name != after for stage in record):
            raise UserError(f"no stage is called {after}", why=f"the stages are {', '.join(self.names)}")
        stage = record.stages[-1] if after is None else record.after(after)
        if kernel is None:
            return stage.text()
        function = self._kernel(stage.program, kernel, stage.name)
        comments = self._comments(function.name, stage.number) if explain else []
        return "\n".join([*comments, str(function)])

    def _comments(self, kernel: str, number: int) -> list[str]:
        """How a kernel came to its schedule, where a stage of this number is not before that."""
        decision = self._stages.decisions.get(kernel)
        if decision is None or number < self._stages.record.after("schedule").number:
            return []
        return [f"# scheduled by {decision.template}", *(f"# {refusal}" for refusal in decision.refusals)]

    def _kernel(self, module: Module, kernel: int | str, stage: str) -> AnyFunction:
        names = _kernels(module)
        if isinstance(kernel, int) or kernel.isdigit():
            number = int(kernel)
            if number < len(names):
                return module.functions[names[number]]
        elif kernel in module.functions and kernel != module.entry:
            return module.functions[kernel]
        listed = ", ".join(f"{n} {name}" for n, name in enumerate(names))
        why = (
            f"its kernels are {listed}" if names else f"there are no kernels before the plan, and {stage} is before it"
        )
        raise UserError(f"no kernel {kernel} after {stage}", why=why)


def _kernels(module: Module) -> list[str]:
    """The functions that the entry calls: not those that only other kernels do, as the bodies of their loops."""
    inner = {
        s.callee
        for name, f in module.functions.items()
        if isinstance(f, Function) and name != module.entry
        for s in statements(f.body)
        if isinstance(s, CallFunction)
    }
    return [name for name in module.functions if name != module.entry and name not in inner]
