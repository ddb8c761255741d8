"""Integers from a model that sizes are computed with: bounded, so that sums of a few of them stay far from 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.graph.op import LARGEST
from tilewright.report.errors import UserError

Refusal = Callable[[str, str | None], UserError]
"""Makes the error for a reason and a way to fix it."""


def bounded(values: Iterable[int], entry: Callable[[int], str], refuse: Refusal) -> tuple[int, ...]:
    """The integers, none larger in magnitude than `LARGEST`. Raises what `refuse` makes of the first that is, which
    `entry` names by its place."""
    found = tuple(int(v) for v in values)
    for place, value in enumerate(found):
        if abs(value) > LARGEST:
            why = f"{entry(place)} is {value}; sizes are computed with numbers from {-LARGEST} to {LARGEST}"
            raise refuse(why, "give the attribute a number that the model's sizes call for")
    return found
