"""A look inside a compiled program: the text of any stage, the kernels, the assembly.

What was loaded from the store was not compiled in this process, nor all of what several processes compiled; then the
pipeline runs again at the first look, with the same result.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.analysis.arena import ArenaUse, use_of_arena
from tilewright.core.passes import Record
from tilewright.core.switches import Switches
from tilewright.expr.nodes import Var
from tilewright.graph.nodes import AnyFunction, Module
from tilewright.loops.edit import rooms_of, statements
from tilewright.loops.nodes import CallFunction, Function
from tilewright.plan.decision import Decision
from tilewright.report.errors import UserError
from tilewright.runtime.plan_report import Choices, PlanReport
from tilewright.target import Target


def rows_at(sites: Sequence[str], rows: Sequence[str]) -> list[int | None]:
    """The index of the row that each site of a program calls, by the kernels' names; None where there is none. Calls
    are in the plan's order, each at one site or, where a loop alternates between two copies, at several."""
    found: dict[str, list[int]] = {}
    for n, name in enumerate(rows):
        found.setdefault(name, []).append(n)
    names = [name.partition(".")[0] for name in sites]  # functions made from a kernel have its name and a dot
    reached, met = Counter(names), Counter[str]()
    made: list[int | None] = []
    for name in names:
        mine = found.get(name, [])
        made.append(mine[met[name] * len(mine) // reached[name]] if mine else None)
        met[name] += 1
    return made


@dataclass(frozen=True, slots=True)
class Stages:
    """Every stage of one compilation, what code generation made of the last, and what was chosen on the way."""

    record: Record[Module]
    llvm: str
    assembly: Callable[[], str]
    choices: Choices


def no_names() -> Mapping[str, str]:
    """What models have that are no files: no names but those of the program."""
    return {}


@dataclass(frozen=True, slots=True)
class Origin:
    """What a program was compiled from, and how: enough to do any part of it again. `names` are the front end's values,
    each with the operator that makes it; `plan` plans it, and no more."""

    read: Callable[[], Module]
    target: Target
    switches: Switches
    names: Callable[[], Mapping[str, str]] = no_names
    plan: Callable[[Origin], PlanReport] | None = None


class Inside:
    """Stages, made when they are first asked for. How each kernel came to its schedule may be known before; `origin` is
    where a model was compiled."""

    def __init__(
        self, make: Callable[[], Stages], choices: Choices | None = None, origin: Origin | None = None
    ) -> None:
        self._make = make
        self._known = choices
        self.origin = origin

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

    def after(self, stage: str) -> Module:
        """The program after a pass. UserError for one that did not run."""
        return self._stages.record.after(stage).program

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, in the order they are first called."""
        return tuple(_kernels(self.module) if self._known is None else self._known.decisions)

    @property
    def decisions(self) -> dict[str, Decision]:
        """How each kernel came to its schedule; those that the compiler did not schedule are not there."""
        found = self._choices.decisions
        return {name: found[name] for name in self.kernels if name in found}

    @property
    def plan(self) -> PlanReport:
        """What each kernel holds, what it is expected to take, and what else was priced. UserError for a function that
        was compiled without a plan."""
        if self._known is None and "_stages" not in vars(self) and self.origin is not None and self.origin.plan:
            return self._planned
        if self._choices.plan is None:
            raise UserError("there is no plan", why="a loops function is one kernel already", fix="look at its stages")
        return self._choices.plan

    @cached_property
    def _planned(self) -> PlanReport:
        """The plan of what was compiled elsewhere, made without its schedules."""
        assert self.origin is not None
        assert self.origin.plan is not None
        return self.origin.plan(self.origin)

    def predict(self, sizes: Mapping[str, int], sites: Sequence[str]) -> tuple[float | None, ...]:
        """What planning expects of each place that calls a kernel in a call of these sizes; None where that is not
        known."""
        plan = self.plan
        seconds = plan.predict(sizes)
        return tuple(None if n is None else seconds[n] for n in rows_at(sites, [row.name for row in plan.kernels]))

    @property
    def _choices(self) -> Choices:
        return self._stages.choices if self._known is None else self._known

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

    def arena(self, sizes: Mapping[str, int], other: int | None) -> ArenaUse:
        """The buffers of the arena during a call of these sizes, by the names of symbols, `other` for the rest; sizes
        that a call makes larger are what they are at first. UserError where one is missing."""

        def size(symbol: Var) -> int:
            found = sizes.get(symbol.name, other)
            if found is None:
                names = ", ".join(f"{name}={n}" for name, n in sizes.items()) or "none"
                raise UserError(f"no size is given for {symbol.name}", why=f"given are {names}", fix="give it, too")
            return found

        main = self.module.main
        assert isinstance(main, Function)
        functions = {name: f for name, f in self.module.functions.items() if isinstance(f, Function)}
        rooms = rooms_of(main)
        known = {symbol: rooms[symbol] if symbol in rooms else size(symbol) for symbol in main.symbols}
        return use_of_arena(main, functions, known, size)

    def _comments(self, kernel: str, number: int) -> list[str]:
        """How a kernel came to its schedule, where a stage of this number is not before that."""
        decision = self._choices.decisions.get(kernel)
        if decision is None or number < self._stages.record.after("schedule").number:
            return []
        lines = [*self._priced(kernel), f"scheduled by {decision.template}", *map(str, decision.refusals)]
        return [f"# {line}" for line in lines]

    def _priced(self, kernel: str) -> list[str]:
        """What the plan of a kernel was chosen from, where there was a choice."""
        plan = self._choices.plan
        part = None if plan is None else plan.part_of(kernel)
        if part is None or not part.points:
            return []
        others = ", ".join(name for name in part.kernels if name != kernel)
        prices = ", ".join(f"{name} {_microseconds(seconds)}" for name, seconds in part.alternatives)
        alone = f"with {others}" if others else "alone"
        return [f"planned {alone}, expected to take {_microseconds(part.seconds)} ({prices})"]

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


def _microseconds(seconds: float) -> str:
    return "impossible" if math.isinf(seconds) else f"{seconds * 1e6:.1f} µs"


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
