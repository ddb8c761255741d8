"""The choice that a template of contractions makes for a kernel by itself, and the schedule of a choice."""

from __future__ import annotations

from typing import Any

import tilewright.plan.choose  # noqa: F401  (registers the package's own)
from tilewright.loops.nodes import Function
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Candidate, registered
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def candidates_of(function: Function, target: Target, template: str = "contraction") -> list[Candidate]:
    """What a template offers for a kernel, the cheapest first; nothing where it does not recognise it."""
    return sorted(registered()[template].candidates(Facts(function), target), key=lambda c: c.seconds)


def choice_for(function: Function, target: Target, template: str = "contraction") -> Any:
    """The cheapest choice of a template for a kernel."""
    return candidates_of(function, target, template)[0].choice


def schedule_for(function: Function, target: Target, choice: Any = None, template: str = "contraction") -> Schedule:
    """A kernel with a choice of a template, the cheapest one where none is given."""
    facts = Facts(function)
    found = registered()[template]
    shape = found.recognise(facts)
    assert shape is not None
    taken = choice_for(function, target, template) if choice is None else choice
    return Candidate(found, shape, taken, 0.0).schedule(facts, target)


def is_transposed(function: Function, target: Target) -> bool:
    """Whether a contraction is cheaper with its rows along the lanes."""
    transposed = candidates_of(function, target, "transposed")
    as_it_lies = candidates_of(function, target)
    return bool(transposed) and (not as_it_lies or transposed[0].seconds < as_it_lies[0].seconds)
