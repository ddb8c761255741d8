"""What a template is: a way to run kernels of some shape, by four answers.

    recognise(facts)                     -> shape | None     what a kernel is, in the template's own terms
    choices(shape, target)               -> iterable         the ways to run it, as data
    price(choice, shape, target)         -> seconds          what one core takes, prologues and packing included
    apply(schedule, shape, choice)                           the steps that a choice stands for

Nothing but `apply` touches a program, and it decides nothing: it takes the steps that the choice says, each of which
proves that it is legal. So a choice can be listed, priced, forced, kept as JSON and applied again.

A template belongs to kinds of targets. Those of the package are rows of plan/templates.py; others are added by
`register`. Of all choices of all templates that recognise a kernel, the cheapest is taken (plan/choose.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tilewright.core import extensions
from tilewright.plan.facts.kernel import Facts
from tilewright.report.errors import UserError
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

ShapeT = TypeVar("ShapeT")
ChoiceT = TypeVar("ChoiceT")


class Template(ABC, Generic[ShapeT, ChoiceT]):
    """A way to run kernels of some shape. `choice` is the dataclass of its choices. A template that is `whole` places
    every nest of a kernel; the nests beside the tiles of all others are scheduled after `apply`. One of a
    later `turn` is asked only for kernels that no choice of a template before runs: prices of fallbacks leave out too
    much of what memory takes to be set against those. The prices
    of one that is not `priced` are ranks, and no seconds."""

    name: str
    choice: type[ChoiceT]
    kinds: tuple[str, ...] = ("cpu",)
    whole: bool = False
    priced: bool = True
    turn: int = 0

    @abstractmethod
    def recognise(self, facts: Facts) -> ShapeT | None:
        """What the kernel is to this template; None where it is not for it."""

    @abstractmethod
    def choices(self, shape: ShapeT, target: Target) -> Iterable[ChoiceT]:
        """The ways to run such a kernel on a target. None, where the target has nothing for it."""

    @abstractmethod
    def price(self, choice: ChoiceT, shape: ShapeT, target: Target) -> float:
        """Seconds that one core takes: sums, prologues and whatever a call packs. An epilogue that all
        choices of all templates run alike may be left out."""

    def begin(self, facts: Facts) -> Schedule:
        """The schedule that `apply` goes on with."""
        return Schedule(facts.function)

    @abstractmethod
    def apply(self, s: Schedule, shape: ShapeT, choice: ChoiceT) -> Schedule:
        """The schedule after the steps that the choice stands for. Raises UserError where a step cannot be proved."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice of a template for a kernel that it recognises, with the seconds that it is expected to take."""

    template: Template[Any, Any]
    shape: Any
    choice: Any
    seconds: float

    def schedule(self, facts: Facts) -> Schedule:
        """The kernel with this choice applied. Raises UserError where a step cannot be proved."""
        return self.template.apply(self.template.begin(facts), self.shape, self.choice)


_BY_KIND: dict[str, dict[str, Template[Any, Any]]] = {}


def register(template: Template[Any, Any]) -> None:
    """Adds a template, for all kinds of targets that it names: models that are compiled from now on may get it.
    UserError where a name is taken."""
    for kind in template.kinds:
        names = _BY_KIND.setdefault(kind, {})
        if template.name in names and type(names[template.name]) is not type(template):
            raise UserError(
                f"there is a template {template.name!r} for targets of kind {kind} already",
                fix="give the template another name",
            )
        names[template.name] = template
    if not extensions.is_own(type(template)):
        extensions.add(f"template {template.name}", extensions.source_of(type(template)))


def unregister(name: str) -> None:
    """Takes a template away from all kinds of targets; nothing where there is none of that name."""
    for names in _BY_KIND.values():
        names.pop(name, None)
    extensions.remove(f"template {name}")


def registered(kind: str) -> tuple[Template[Any, Any], ...]:
    """The templates for a kind of target, in the order in which they were registered."""
    return tuple(_BY_KIND.get(kind, {}).values())


def named(name: str, kind: str = "cpu") -> Template[Any, Any]:
    """The template of a name for a kind of target. Raises KeyError where there is none."""
    return _BY_KIND[kind][name]


def candidates(facts: Facts, target: Target, turn: int = 0) -> Iterator[Candidate]:
    """Every choice of every template that recognises a kernel, priced: of those of one turn."""
    for template in registered(target.kind):
        shape = template.recognise(facts) if template.turn == turn else None
        if shape is not None:
            for choice in template.choices(shape, target):
                yield Candidate(template, shape, choice, template.price(choice, shape, target))
