"""The space of a kernel's search: what its templates list, and the choices beside these.

    space_of(task, target)      Choice, Choice, …  the cheapest by price first, but for the default

Templates list few choices, where closed forms say which block or tile is best. Where these are wrong by a little, what
is better differs in a field from a choice that is listed: a number is twice or half of it, or one more or less; a flag
is turned; or the field has a value that another choice has. Such neighbours of all that are priced near the cheapest
belong to the space, too, where their price is near it. Fields that a template says are `listed`, the lanes of a tile
say, have no values but those. None is expected to be faster than the choice it is a neighbour of: prices are written
for what is listed. Whether steps are legal shows when they are made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tilewright.core.records import record_of
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Candidate, candidates
from tilewright.report.errors import UserError
from tilewright.target import Target
from tilewright.tune.features import Features, Place, fields_of
from tilewright.tune.records import name_of
from tilewright.tune.task import Task

WITHIN = 3.0
"""Choices that are listed belong to a space where they take up to so many times as long as the cheapest, by price."""

NEAR = 1.5
"""The same of those whose neighbours belong to it, and of these."""

TILED = ("rows", "columns", "vectors", "lanes", "channels")
"""The fields of choices that are extents of a tile of registers, as the cost model knows them, too (`features.py`)."""

MOST = 5000
"""Choices of a space, the cheapest of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A choice that could be measured: its name among records, itself, the seconds it should take, and what the cost
    model sees of it."""

    name: str
    template: str
    record: Any
    price: float
    features: Mapping[str, float] = field(default_factory=dict)

    @property
    def asked(self) -> Mapping[str, Any]:
        """What a compilation is asked for."""
        return {"template": self.template, "choice": self.record}

    @property
    def tile(self) -> str:
        """Its tiles of registers, as text: choices that share it differ in numbers of their traces. Its name where it
        says nothing of a tile."""
        return " ".join(_of_tile(self.record)) or self.name


def _of_tile(record: Any, place: str = "") -> Iterator[str]:
    """What a record says of extents of tiles."""
    for name, value in record.items() if isinstance(record, dict) else ():
        yield from _of_tile(value, f"{place}{name}.")
        if name in TILED:
            yield f"{place}{name}={value}"


def least_price(task: Task, target: Target) -> float:
    """The seconds that a kernel should take; nothing where its templates list one choice only."""
    ranked = candidates(Facts(task.function), target)
    return ranked[0].seconds if len(ranked) > 1 else 0.0


def space_of(task: Task, target: Target) -> list[Choice]:
    """The choices of a kernel, the cheapest by price first, but for the default and those much dearer than that; none
    where its templates list one only."""
    facts = Facts(task.function)
    ranked = candidates(facts, target)
    if len(ranked) < 2:
        return []
    first = _first_legal(ranked, facts, target)
    least = ranked[0].seconds
    found = [c for c in ranked if c is not first and c.seconds <= WITHIN * least]
    found += _neighbours([c for c in ranked if c.seconds <= NEAR * least], target, NEAR * least)
    found.sort(key=lambda c: c.seconds)
    seen = Features(facts.function, task.sizes, target)
    return [_choice(candidate, seen, least) for candidate in found[:MOST]]


def _choice(candidate: Candidate, seen: Features, least: float) -> Choice:
    name, record, price = candidate.template.name, record_of(candidate.choice), candidate.seconds
    features = seen.of(candidate.shape, candidate.choice, price, least)
    return Choice(name_of(name, record), name, record, price, features)


def _first_legal(ranked: Sequence[Candidate], facts: Facts, target: Target) -> Candidate | None:
    """The choice that is taken without tuning."""
    for candidate in ranked:
        try:
            candidate.schedule(facts, target)
        except UserError:
            continue
        return candidate
    return None


def _neighbours(listed: Sequence[Candidate], target: Target, most: float) -> Iterator[Candidate]:
    """The choices that differ in a field from one that is listed, and should take so many seconds at most."""
    used: dict[tuple[str, Place], dict[Any, None]] = {}
    for c in listed:
        for place, value in fields_of(c.choice):
            used.setdefault((c.template.name, place), {})[value] = None
    known = {(c.template.name, c.choice) for c in listed}
    for c in listed:
        for place, value in fields_of(c.choice):
            values = used[c.template.name, place]
            field = ".".join(part for part in place if not part.isdigit())
            for other in values if field in c.template.listed else _beside(value, values):
                choice = _with(c.choice, place, other)
                if (c.template.name, choice) in known:
                    continue
                known.add((c.template.name, choice))
                seconds = c.template.price(choice, c.shape, target)
                if 0 < seconds <= most:
                    yield Candidate(c.template, c.shape, choice, max(seconds, c.seconds))


def _with(choice: Any, place: Place, value: Any) -> Any:
    """The choice with another value at a place."""
    if not place:
        return value
    name, *rest = place
    if isinstance(choice, tuple):
        return tuple(_with(v, tuple(rest), value) if str(n) == name else v for n, v in enumerate(choice))
    return dataclasses.replace(choice, **{name: _with(getattr(choice, name), tuple(rest), value)})


def _beside(value: Any, used: Mapping[Any, None]) -> list[Any]:
    """The values that a field may have in a neighbour."""
    found = list(used)
    if isinstance(value, bool):
        found.append(not value)
    elif isinstance(value, Enum):
        found += type(value)
    elif isinstance(value, int):
        found += [2 * value, value // 2, value + 1, value - 1]
    whole = [n for n in found if type(n) is not int or n > 0 or n in used]
    return [n for n in dict.fromkeys(whole) if n != value or type(n) is not type(value)]
