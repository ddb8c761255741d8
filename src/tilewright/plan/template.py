"""What a template is: a way to run kernels of some shape, by four answers.

    recognise(facts)                     -> shape | None     what a kernel is, in the template's own terms
    choices(shape, target)               -> iterable         the ways to run it, as data
    price(choice, shape, target)         -> seconds          what one core takes, prologues and packing included
    apply(schedule, shape, choice)                           the steps that a choice stands for

Nothing but `apply` touches a program, and it decides nothing: it takes the steps that the choice says, each of which
proves that it is legal. So a choice can be listed, priced, forced, kept as JSON and applied again.

A template belongs to kinds of targets. Those of the package are rows of plan/choose.py; others are added by
`register`. Of all choices of all templates that recognise a kernel, `cheapest` takes that of the lowest price whose
steps are all legal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tilewright.core import extensions
from tilewright.plan.decision import Refusal
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.nests.passes import schedule_beside
from tilewright.report.errors import UserError
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

TRIES = 12
"""How many choices of a template are tried: a step that one cannot prove may be left out by the next, a prefetch
say; but a kernel that refuses all of these would take long to refuse the rest."""

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


def cheapest(facts: Facts, target: Target) -> tuple[Schedule, Candidate, list[Refusal], list[Candidate]]:
    """The schedule of a kernel, the choice that made it, the refusals on the way, and all that was priced, the cheapest
    first."""
    refusals: list[Refusal] = []
    ranked: list[Candidate] = []
    for turn in sorted({template.turn for template in registered(target.kind)}):
        found = sorted(candidates(facts, target, turn), key=lambda c: c.seconds)
        ranked += found
        legal = _first_legal(found, facts, target, refusals)
        if legal is not None:
            made, taken = legal
            refusals += [Refusal.of(taken.template.name, error) for error in made.refused]
            return made, taken, refusals, ranked
    raise UserError(
        f"no template schedules {facts.function.name} for {target.name}",
        why="; ".join(map(str, refusals)) or f"there is none for targets of kind {target.kind}",
    )


def _first_legal(
    ranked: Sequence[Candidate], facts: Facts, target: Target, refusals: list[Refusal]
) -> tuple[Schedule, Candidate] | None:
    """The cheapest candidate whose steps are all legal; the refusals are appended, one for each template."""
    tried: Counter[str] = Counter()
    for candidate in ranked:
        name = candidate.template.name
        if tried[name] < TRIES:
            try:
                return finish(candidate, facts, target), candidate
            except UserError as error:
                tried[name] += 1
                if tried[name] == 1:
                    refusals.append(Refusal.of(name, error))
    return None


def finish(candidate: Candidate, facts: Facts, target: Target) -> Schedule:
    """The candidate's schedule, with the nests beside its tiles scheduled, too."""
    made = candidate.schedule(facts)
    if not candidate.template.whole:
        schedule_beside(made, target)
    return made
