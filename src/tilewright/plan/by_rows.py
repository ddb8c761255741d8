"""Templates of kernels with a dynamic number of rows that run in several ways by how many rows there are.

    if b*s <= 8: each tile prefetches its own panel
    else if b*s <= 27: two tiles share the next panel      else: sixteen tiles share it

All ways are choices of one template, and read the same packed constants, so that these are in memory once. The last one
is the best without a dispatch. Each way before it has to be worth its code: in the mean over calls of few rows and of
many, it saves more than prices err by (`MARGIN`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from tilewright.analysis.sizes import rows_of_calls
from tilewright.core.paths import cheapest_path
from tilewright.expr.nodes import Expr
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.price.contraction import MARGIN
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

    def for_rows(self, choice: ChoiceT, rows: int) -> ChoiceT:
        """The choice as it is best for calls of so many rows."""
        return choice

    @abstractmethod
    def are_alike(self, one: ChoiceT, other: ChoiceT) -> bool:
        """Whether two choices have constants packed in the same way."""


@dataclass(frozen=True, slots=True)
class ByRows:
    """Calls of at most `bounds[n]` rows run by the choice `ways[n]`, those of more rows by the last one. Templates say
    of which type these are."""

    bounds: tuple[int, ...]
    ways: tuple[Any, ...]

    def of(self, rows: int) -> Any:
        """The choice that a call of so many rows runs by."""
        return self.ways[bisect_left(self.bounds, rows)]


class DispatchByRows(Template[ShapeT, ByRows]):
    """Kernels of a template, called its name and "-by-rows", by several of its choices; `choice` has their type."""

    def __init__(self, inner: OfRows[ShapeT, Any], choice: type[ByRows]) -> None:
        self._inner, self.choice, self.name = inner, choice, f"{inner.name}-by-rows"
        self.listed = frozenset({f"ways.{field}" for field in inner.listed})

    def recognise(self, facts: Facts) -> ShapeT | None:
        shape = self._inner.shape_of(facts)
        rows = None if shape is None else self._inner.rows(shape)
        return shape if rows is not None and rows.variables <= set(facts.function.symbols) else None

    def choices(self, shape: ShapeT, target: Target) -> Iterator[ByRows]:
        """The best way for many rows, behind those for fewer that are worth their code."""
        inner, sizes = self._inner, rows_of_calls()
        found = list(inner.choices(shape, target))
        many = min(found, key=lambda c: inner.price(c, shape, target), default=None)
        if many is None:
            return
        alike, best = [c for c in found if inner.are_alike(c, many)], [many]
        for rows in sizes:
            fitting = (inner.for_rows(c, rows) for c in alike)
            best.append(min(fitting, key=lambda c: self._seconds(c, shape, rows, target)))
        best = list(dict.fromkeys(best))
        parts = [[self._part(way, many, shape, rows, target) for rows in sizes] for way in best]
        never_dearer = [[part if part <= 1 else math.inf for part in way] for way in parts]
        path = [best[n] for n in cheapest_path(never_dearer, len(sizes) * (MARGIN - 1))]
        pairs = zip(pairwise(sizes), pairwise(path), strict=True)
        changes = [(*rows, ways) for rows, ways in pairs if ways[0] != ways[1]]
        if changes:
            bounds = [self._bound(least, most, ways, shape, target) for least, most, ways in changes]
            yield self.choice(tuple(bounds), tuple(way for way, _ in groupby(path)))

    def price(self, choice: ByRows, shape: ShapeT, target: Target) -> float:
        """What many rows take by the last way, times the part of it that calls take in the mean."""
        many = choice.ways[-1]
        parts = [self._part(choice.of(rows), many, shape, rows, target) for rows in rows_of_calls()]
        return self._inner.price(many, shape, target) * sum(parts) / len(parts)

    def schedule(self, facts: Facts, shape: ShapeT, choice: ByRows, target: Target) -> Schedule:
        if not all(self._inner.are_alike(way, choice.ways[-1]) for way in choice.ways):
            why = "each of them reads constants in a layout of its own, which would then be in memory twice"
            raise UserError("these choices are no ways of one program", why=why, fix="take panels of one width")
        traces = [self._inner.schedule(facts, shape, way, target).printed() for way in choice.ways]
        s = Schedule(facts.function)
        s.schedule_by_size(str(self._inner.rows(shape)), choice.bounds, traces)
        return s

    def _seconds(self, choice: Any, shape: ShapeT, rows: int, target: Target) -> float:
        """Seconds of a call of so many rows."""
        return self._inner.price(choice, self._inner.of_call(shape, rows), target)

    def _part(self, choice: Any, many: Any, shape: ShapeT, rows: int, target: Target) -> float:
        """What a call of so many rows takes, as a part of what it takes by `many`."""
        seconds = self._seconds(many, shape, rows, target)
        return self._seconds(choice, shape, rows, target) / seconds if seconds else 1.0

    def _bound(self, least: int, most: int, ways: tuple[Any, Any], shape: ShapeT, target: Target) -> int:
        """The most rows, from `least` to less than `most`, that the first of two ways is not dearer for."""

        def is_dearer(rows: int) -> bool:
            one, other = (self._seconds(way, shape, rows, target) for way in ways)
            return one > other

        return bisect_left(range(most), True, lo=least + 1, key=is_dearer) - 1
