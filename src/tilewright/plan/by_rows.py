"""Templates of kernels with a dynamic number of rows that run one way where rows are few, another where they are many.

    if b*s <= 8: tiles that come without prefetching      else: tiles that ask for the next panel while they compute

Both ways are choices of one template, and read the same packed constants, so that these are in memory once. The way for
many rows is the best one without a dispatch; a program that has the code of both must save more, over calls of few rows
and of many, than prices err by.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tilewright.analysis.sizes import FEW, rows_of_calls
from tilewright.expr.nodes import Expr
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.price.contraction import pays
from tilewright.plan.template import ChoiceT, ShapeT, Template
from tilewright.report.errors import UserError
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class OfRows(Template[ShapeT, ChoiceT]):
    """A template whose kernels may have a dynamic number of rows."""

    @abstractmethod
    def rows(self, shape: ShapeT) -> Expr | None:
        """How many rows there are, where that is dynamic; else None."""

    @abstractmethod
    def of_call(self, shape: ShapeT, rows: int) -> ShapeT:
        """The kernel in a call of so many rows, to price choices for it."""

    @abstractmethod
    def are_alike(self, few: ChoiceT, many: ChoiceT) -> bool:
        """Whether two choices have constants packed in the same way."""


@dataclass(frozen=True, slots=True)
class ByRows:
    """Calls of at most `most` rows run by the choice `few`, all others by `many`. Templates say of which type these
    are."""

    most: int
    few: Any
    many: Any


class DispatchByRows(Template[ShapeT, ByRows]):
    """Kernels of a template, called its name and "-by-rows", by two of its choices; `choice` has their type."""

    def __init__(self, inner: OfRows[ShapeT, Any], choice: type[ByRows]) -> None:
        self._inner, self.choice, self.name = inner, choice, f"{inner.name}-by-rows"
        self.listed = frozenset({f"{way}.{field}" for way in ("few", "many") for field in inner.listed})

    def recognise(self, facts: Facts) -> ShapeT | None:
        shape = self._inner.shape_of(facts)
        rows = None if shape is None else self._inner.rows(shape)
        return shape if rows is not None and rows.variables <= set(facts.function.symbols) else None

    def choices(self, shape: ShapeT, target: Target) -> Iterator[ByRows]:
        """The best way for many rows, each with the best ways for a few. These run up to the last but one number of
        rows that they are cheaper for: next to where they lose, they save no more than prices err by."""
        inner, ways = self._inner, list(self._inner.choices(shape, target))
        many = min(ways, key=lambda c: inner.price(c, shape, target), default=None)
        alike = [c for c in ways if many is not None and inner.are_alike(c, many)]
        sizes = rows_of_calls()
        calls = [inner.of_call(shape, rows) for rows in sizes if rows <= FEW and alike]
        for few in dict.fromkeys(self._cheapest(alike, call, target) for call in calls):
            saved = (self._saved(few, many, shape, rows, target) for rows in sizes)
            cheaper = len(list(takewhile(lambda part: part > 0, saved)))
            if cheaper < 2:
                continue
            choice = self.choice(sizes[cheaper - 2], few, many)
            if pays(inner.price(many, shape, target), self.price(choice, shape, target)):
                yield choice

    def price(self, choice: ByRows, shape: ShapeT, target: Target) -> float:
        """What many rows take, less the part that `few` saves in the mean over calls of few rows and of many."""
        ran = [rows for rows in rows_of_calls() if rows <= choice.most]
        saved = sum(self._saved(choice.few, choice.many, shape, rows, target) for rows in ran)
        return self._inner.price(choice.many, shape, target) * (1 - saved / len(rows_of_calls()))

    def schedule(self, facts: Facts, shape: ShapeT, choice: ByRows, target: Target) -> Schedule:
        if not self._inner.are_alike(choice.few, choice.many):
            why = "each of them reads constants in a layout of its own, which would then be in memory twice"
            raise UserError("these two choices are no ways of one program", why=why, fix="take panels of one width")
        few, many = (self._inner.schedule(facts, shape, way, target) for way in (choice.few, choice.many))
        s = Schedule(facts.function)
        s.schedule_by_size(str(self._inner.rows(shape)), [choice.most], [few.printed(), many.printed()])
        return s

    def _cheapest(self, ways: list[Any], call: ShapeT, target: Target) -> Any:
        return min(ways, key=lambda c: self._inner.price(c, call, target))

    def _saved(self, few: Any, many: Any, shape: ShapeT, rows: int, target: Target) -> float:
        """The part of what `many` takes for so many rows that `few` does not."""
        call = self._inner.of_call(shape, rows)
        seconds = self._inner.price(many, call, target)
        return 1 - self._inner.price(few, call, target) / seconds if seconds else 0.0
