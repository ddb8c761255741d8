"""The ways to run a kernel that were priced: the one that it got and the cheapest of all templates beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.plan.decision import Decision
from tilewright.store import Json


@dataclass(frozen=True, slots=True)
class Way:
    """A template and a choice of it, as JSON says it. `seconds` is what one core should take; `times` is that by the
    seconds of the one that was `taken`."""

    template: str
    choice: Any
    seconds: float
    times: float | None
    taken: bool

    def record(self) -> dict[str, Json]:
        """The row as JSON says it; `template` and `choice` can be asked for as they stand (docs/templates.md)."""
        made: dict[str, Json] = {"template": self.template, "choice": self.choice, "taken": self.taken}
        return {**made, "seconds": self.seconds, "times": self.times}


def ways_of(decision: Decision) -> tuple[Way, ...]:
    """The cheapest ways, the cheapest first, and the one that was taken among them or behind them."""
    taken = decision.taken
    if taken is None:
        return ()
    rows = list(decision.alternatives)
    own = [(row.template, row.choice) == (taken.template, taken.choice) for row in rows]
    if not any(own):
        rows, own = [*rows, taken], [*own, True]
    return tuple(
        Way(row.template, row.choice, row.seconds, row.seconds / taken.seconds if taken.seconds > 0 else None, is_taken)
        for row, is_taken in zip(rows, own, strict=True)
    )


def verdict(ways: Sequence[Way], decision: Decision) -> str:
    """What was chosen, and by which factor the next cheapest is slower."""
    taken = next(way for way in ways if way.taken)
    if decision.tuned:
        return f"{taken.template} was found by tuning{_beside(ways, 'the cheapest of the others')}"
    if decision.forced:
        return f"{taken.template} was asked for{_beside(ways, 'the cheapest of the others')}"
    if ways[0] is not taken:
        return f"{taken.template} is the cheapest whose steps can be proved{_beside(ways, 'the cheapest of all')}"
    return f"{taken.template} is the cheapest{_beside(ways, 'the next')}"


def _beside(ways: Sequence[Way], name: str) -> str:
    other = next((way for way in ways if not way.taken and way.times is not None), None)
    if other is None or other.times is None:
        return ", and nothing else is priced"
    if other.times < 1:
        return f"; {name}, of {other.template}, is priced {1 / other.times:.2f} times as fast"
    return f"; {name}, of {other.template}, is priced {other.times:.2f} times as long"


def choice_text(way: Way, beside: Way) -> str:
    """The fields of a choice; of one of the same template as `beside`, those in which it differs."""
    own, other = flat(way.choice), flat(beside.choice)
    if way is beside or way.template != beside.template:
        return ", ".join(f"{name} {_value(value)}" for name, value in own.items())
    differing = {name: value for name, value in own.items() if other.get(name) != value}
    return ", ".join(f"{name} {_value(value)}" for name, value in differing.items())


def flat(choice: Any) -> dict[str, Any]:
    """The fields of a choice by their names, those of records inside with dots."""
    if not isinstance(choice, Mapping):
        return {}
    found: dict[str, Any] = {}
    for name, value in choice.items():
        if isinstance(value, Mapping):
            found.update({f"{name}.{inner}": v for inner, v in flat(value).items()})
        else:
            found[name] = value
    return found


def _value(value: Any) -> str:
    return json.dumps(value)
