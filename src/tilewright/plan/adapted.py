"""Templates whose schedule is one function of kernel and target: they have a single choice, of a fixed rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tilewright.loops.nodes import Function
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Template, registered
from tilewright.report.errors import UserError
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

WINDOWS = 4
"""Templates of higher ranks are not tried for kernels that a template of windows runs."""


@dataclass(frozen=True, slots=True)
class Only:
    """The only choice."""

    made: Schedule | UserError = field(compare=False)


class Adapted(Template[Facts, Only]):
    """A template around a function that makes a schedule, or None for kernels that it is not for."""

    choice = Only
    priced = False

    def __init__(
        self, name: str, rank: int, schedule: Callable[[Function, Target], Schedule | None], whole: bool = False
    ) -> None:
        self.name, self.whole = name, whole
        self._rank, self._schedule = rank, schedule

    def recognise(self, facts: Facts) -> Facts | None:
        return facts

    def choices(self, shape: Facts, target: Target) -> Iterator[Only]:
        if getattr(shape, "adapted", False) or (self._rank > WINDOWS and _is_of_windows(shape, target)):
            return
        try:
            made = self._schedule(shape.function, target)
        except UserError as error:
            yield Only(error)
            return
        if made is not None:
            shape.adapted = self.name != "attention"  # type: ignore[attr-defined]
            yield Only(made)

    def price(self, choice: Only, shape: Facts, target: Target) -> float:
        return self._rank * 1e-9

    def apply(self, s: Schedule, shape: Facts, choice: Only) -> Schedule:
        if isinstance(choice.made, UserError):
            raise choice.made
        return choice.made


def _is_of_windows(facts: Facts, target: Target) -> bool:
    """Whether a template of windows has a choice for a kernel."""
    windows = [t for t in registered(target.kind) if t.name.startswith("windows")] if facts.windows is not None else []
    return any(t.recognise(facts) and any(True for _ in t.choices(facts.windows, target)) for t in windows)
