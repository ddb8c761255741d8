"""Templates whose schedule is one function of kernel and target: they have a single choice, of a fixed rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Never

from tilewright.loops.nodes import Function
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Template
from tilewright.report.errors import InternalError, UserError
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Only:
    """The only choice."""

    make: Callable[[], Schedule | None] = field(compare=False)
    """Gives the schedule, or raises UserError where there is none."""


class Adapted(Template[Facts, Only]):
    """A template around a function that makes a schedule, or None for kernels that it is not for. Where `suits` tells
    these kernels from others, the schedule is made when the choice is taken."""

    choice = Only
    priced = False

    def __init__(
        self,
        name: str,
        rank: int,
        schedule: Callable[[Function, Target], Schedule | None],
        whole: bool = False,
        suits: Callable[[Function], bool] | None = None,
    ) -> None:
        self.name, self.whole = name, whole
        self._rank, self._schedule, self._suits = rank, schedule, suits

    def recognise(self, facts: Facts) -> Facts | None:
        return facts

    def choices(self, shape: Facts, target: Target) -> Iterator[Only]:
        make = partial(self._schedule, shape.function, target)
        if self._suits is not None:
            if self._suits(shape.function):
                yield Only(make)
            return
        try:
            made = make()
        except UserError as error:
            yield Only(partial(_refuse, error))
            return
        if made is not None:
            yield Only(lambda: made)

    def price(self, choice: Only, shape: Facts, target: Target) -> float:
        return self._rank * 1e-9

    def apply(self, s: Schedule, shape: Facts, choice: Only) -> Schedule:
        made = choice.make()
        if made is None:
            raise InternalError(f"{self.name} suits {shape.function.name}, and makes no schedule of it")
        return made


def _refuse(error: UserError) -> Never:
    raise error
