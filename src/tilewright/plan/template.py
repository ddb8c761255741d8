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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tilewright.core import extensions
from tilewright.core.code import code_of, is_own
from tilewright.core.records import record_of
from tilewright.plan.decision import Alternative, Decision, Refusal
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.nests.passes import schedule_beside
from tilewright.report.errors import UserError
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

TRIES = 12
"""How many choices of a template are tried: a step that one cannot prove may be left out by the next, a prefetch
say; but a kernel that refuses all of these would take long to refuse the rest."""

SHOWN = 5
"""How many of the cheapest choices a decision keeps for `why`: as many as a reader compares."""

ShapeT = TypeVar("ShapeT")
ChoiceT = TypeVar("ChoiceT")


class Template(ABC, Generic[ShapeT, ChoiceT]):
    """A way to run kernels of some shape. `choice` is the dataclass of its choices. A template that is `whole` places
    every nest of a kernel; the nests beside the tiles of all others are scheduled after `apply`. One of a
    later `turn` is asked only for kernels that no choice of a template before runs: prices of fallbacks leave out too
    much of what memory takes to be set against those. The fields in `listed` ("tile.lanes") have the values that
    `choices` lists for a kernel and no others; tuning asks for the price of any value of other fields."""

    name: str
    choice: type[ChoiceT]
    kinds: tuple[str, ...] = ("cpu",)
    whole: bool = False
    turn: int = 0
    listed: frozenset[str] = frozenset()

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
        return Schedule(facts.function, facts.taken)

    def apply(self, s: Schedule, shape: ShapeT, choice: ChoiceT) -> Schedule:
        """The schedule after the steps that the choice stands for. Raises UserError where a step cannot be proved."""
        why = "it defines neither `apply` nor a `schedule` of its own"
        raise UserError(f"template {self.name} has no steps", why=why, fix="define apply(s, shape, choice)")

    def schedule(self, facts: Facts, shape: ShapeT, choice: ChoiceT, target: Target) -> Schedule:
        """The kernel with a choice applied, and the nests beside its tiles scheduled, too; templates whose choices hold
        those of others make it of these. Raises UserError where a step cannot be proved."""
        made = self.apply(self.begin(facts), shape, choice)
        if not self.whole:
            schedule_beside(made, target)
        return made

    def shape_of(self, facts: Facts) -> ShapeT | None:
        """What the kernel is to this template, found once for all its choices."""
        if self not in facts.shapes:
            facts.shapes[self] = self.recognise(facts)
        shape: ShapeT | None = facts.shapes[self]
        return shape

    def candidates(self, facts: Facts, target: Target) -> Iterator[Candidate]:
        """Its choices for a kernel, priced; none where it does not recognise the kernel."""
        shape = self.shape_of(facts)
        if shape is not None:
            for choice in self.choices(shape, target):
                yield Candidate(self, shape, choice, self.price(choice, shape, target))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice of a template for a kernel that it recognises, with the seconds that it is expected to take."""

    template: Template[Any, Any]
    shape: Any
    choice: Any
    seconds: float

    def schedule(self, facts: Facts, target: Target) -> Schedule:
        """The kernel scheduled by this choice. Raises UserError where a step cannot be proved."""
        return self.template.schedule(facts, self.shape, self.choice, target)

    def decision(self, ranked: Sequence[Candidate], refusals: Iterable[Refusal] = (), forced: bool = False) -> Decision:
        """That this one was taken, of these, the cheapest first."""
        taken, *rows = (Alternative(c.template.name, c.seconds, record_of(c.choice)) for c in (self, *ranked[:SHOWN]))
        return Decision(taken.template, tuple(refusals), tuple(rows), taken, forced)


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
    if not is_own(type(template)):
        extensions.add(f"template {template.name}", code_of(template), for_kernels=True)


def unregister(name: str) -> None:
    """Takes a template away from all kinds of targets; nothing where there is none of that name."""
    for names in _BY_KIND.values():
        names.pop(name, None)
    extensions.remove(f"template {name}")


def registered(kind: str = "cpu") -> Mapping[str, Template[Any, Any]]:
    """The templates for a kind of target by name, in the order in which they were registered."""
    return _BY_KIND.get(kind, {})


def candidates(facts: Facts, target: Target, turn: int = 0) -> list[Candidate]:
    """Every choice of every template of one turn that recognises a kernel, the cheapest first."""
    asked = [template for template in registered(target.kind).values() if template.turn == turn]
    return sorted((c for t in asked for c in t.candidates(facts, target)), key=lambda c: c.seconds)


def cheapest(facts: Facts, target: Target) -> tuple[Schedule, Decision]:
    """The schedule of a kernel by the cheapest choice whose steps are all legal, and how it came to it: with the first
    refusal of each template on the way. UserError where there is none."""
    refusals: list[Refusal] = []
    ranked: list[Candidate] = []
    tried: Counter[str] = Counter()
    for turn in sorted({template.turn for template in registered(target.kind).values()}):
        found = candidates(facts, target, turn)
        ranked += found
        for candidate in found:
            name = candidate.template.name
            if tried[name] == TRIES:
                continue
            try:
                made = candidate.schedule(facts, target)
            except UserError as error:
                refusals += [] if tried[name] else [Refusal.of(name, error)]
                tried[name] += 1
            else:
                refusals += [Refusal.of(name, error) for error in made.refused]
                return made, candidate.decision(ranked, refusals)
    raise UserError(
        f"no template schedules {facts.function.name} for {target.name}",
        why="; ".join(map(str, refusals)) or f"there is none for targets of kind {target.kind}",
    )
