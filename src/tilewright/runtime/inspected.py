"""What a compiled program can be asked about how it came about: stages, kernels, decisions, the plan, the arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.report.arguments import check_kind, check_size
from tilewright.report.errors import UserError
from tilewright.runtime.program import Program

if TYPE_CHECKING:
    from tilewright.analysis.arena import ArenaUse
    from tilewright.graph.nodes import Module
    from tilewright.plan.decision import Decision
    from tilewright.runtime.inside import Inside, Origin
    from tilewright.runtime.plan_report import PlanReport


class Inspected:
    """A compiled `program` and a look inside, which `look` makes when it is first needed; None where there is nothing
    to look into."""

    def __init__(self, program: Program, look: Callable[[], Inside] | None) -> None:
        self.program, self._look = program, look

    @cached_property
    def _inside(self) -> Inside:
        """The stages and kernels, made when they are first asked for."""
        if self._look is None:
            raise UserError(
                "there is nothing to look into",
                why="the program was loaded from a file, which holds machine code and not how it came about",
                fix="compile the model, and look into what that returns",
            )
        return self._look()

    @property
    def module(self) -> Module:
        """The program after the last pass."""
        return self._inside.module

    def after(self, stage: str) -> Module:
        """The program after a pass, by its name among `stages`. UserError for one that did not run."""
        return self._inside.after(stage)

    @property
    def stages(self) -> tuple[str, ...]:
        """What `show(after=…)` takes, in order."""
        return self._inside.names

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels."""
        return self._inside.kernels

    @property
    def decisions(self) -> dict[str, Decision]:
        """How each kernel came to its schedule, by name: the `template` that made it, and the `refusals` of those that
        were tried before. Empty where the caller made the schedule, as for what `build` compiles."""
        return self._inside.decisions

    @property
    def plan(self) -> PlanReport:
        """What each kernel holds and is expected to take, and what else was priced when operators were put together.
        UserError where there was nothing to plan, as for what `build` compiles."""
        return self._inside.plan

    @property
    def origin(self) -> Origin | None:
        """What the program was compiled from, and how; None for what `build` compiles. UserError for what was loaded
        from a file."""
        return self._inside.origin

    def show(self, after: str | None = None, kernel: int | str | None = None, *, explain: bool = False) -> str:
        """The program as text after a stage (the last, unless named), or one kernel of it by number or name. With
        `explain`, comments above a kernel say how it came to its schedule, from the stage `schedule` on.

        Raises UserError, with the names there are, for a stage or kernel that does not exist.
        """
        if kernel is not None:
            check_kind("kernel", kernel, (int, str), "the number or the name of a kernel", "kernel=0")
        return self._inside.show(after, kernel, explain=explain)

    def arena(self, sizes: Mapping[str, int] | None = None, *, other: int | None = None) -> ArenaUse:
        """The buffers of the arena during a call, kernel by kernel, and the least that any layout would need, for
        these sizes of dynamic dimensions and `other` for those not named. UserError where one is missing."""
        form = "a mapping from names of dimensions to their sizes"
        check_kind("sizes", {} if sizes is None else sizes, Mapping, form, 'sizes={"n": 1}')
        for size in (*(sizes or {}).values(), other or 0):
            check_size(size)
        return self._inside.arena(sizes or {}, other)

    def predict(self, sizes: Mapping[str, int]) -> tuple[float | None, ...]:
        """The seconds on one core that planning expects of each of `program.sites`, in a call of these sizes by the
        names of the symbols. None where a kernel's sizes are not given, or where they are computed during the call; of
        what was loaded from a compiled file, which has no plan, wherever they depend on the call."""
        sites = self.program.sites
        known = tuple(site.predicted for site in sites)
        if self._look is None or all(site.predicted is not None or not site.template for site in sites):
            return known
        return self._inside.predict(sizes, [site.kernel for site in sites])
