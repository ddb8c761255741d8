"""How a kernel came to its schedule: by which template, and which templates refused it before.

A template schedules a whole kernel of some shape, by steps that prove what they need. A size that only a call knows can
be any expression, so that a proof may fail where the template was meant for the kernel: then the next one is taken, and
that is written down.

    attempts = Attempts()
    made = attempts.schedule("contraction", lambda: schedule_contraction(function, target, attempts))
    attempts.decision("nests")      # contraction, or nests where no template made a schedule; and what was refused
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.plan.fusion.explain import PlanReport
from tilewright.report.errors import UserError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.step import Refused
from tilewright.schedule.trace import Trace


@dataclass(frozen=True, slots=True)
class Refusal:
    """A template that refused a kernel: the step that could not be taken, as a trace writes it, what it would have
    done, and why it could not. `step` is empty where the template gave up between two steps."""

    template: str
    step: str
    what: str
    why: str

    def __str__(self) -> str:
        place = f" at {self.step}" if self.step else ""
        return f"{self.template} refused{place}: {self.what}{': ' if self.why else ''}{self.why}"


@dataclass(frozen=True, slots=True)
class Decision:
    """The template that scheduled a kernel, those that had refused it, in the order they were tried, and the steps of
    the schedule, where they are all of it."""

    template: str
    refusals: tuple[Refusal, ...] = ()
    trace: Trace | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class Choices:
    """What was chosen while a module was compiled: what shares a kernel, where there was a graph, and how each kernel
    came to its schedule, by name."""

    plan: PlanReport | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)


class Attempts:
    """The templates that are tried for one kernel."""

    def __init__(self) -> None:
        self._template: str | None = None
        self._refusals: list[Refusal] = []

    def schedule(self, template: str, make: Callable[[], Schedule | None]) -> Schedule | None:
        """The schedule that a template makes; None where the kernel is not of its shape, or a step is refused. One
        template may try others: the innermost that succeeds is the kernel's."""
        try:
            made = make()
        except UserError as error:
            step = error.step if isinstance(error, Refused) else ""
            self._refusals.append(Refusal(template, step, _line(error.what), _line(error.why or "")))
            self._template = None
            return None
        if made is not None and self._template is None:
            self._template = template
        return made

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The templates that refused the kernel so far."""
        return tuple(self._refusals)

    def decision(self, otherwise: str, trace: Trace | None = None) -> Decision:
        """What was decided; `otherwise` is how kernels are scheduled for which no template made a schedule."""
        return Decision(self._template or otherwise, self.refusals, trace)


def _line(text: str) -> str:
    return " ".join(text.split())
