"""Long drawings folded into columns, and the way of an edge from the foot of one to the head of the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]

LANE = 6.0
"""The distance between two edges that go from column to column beside each other."""

MARGIN = 10.0
SLACK = 0.3
"""A column may be shorter or longer than the mean by this part of it, to end where fewer edges are cut."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The column of each row, how far right it is shifted, and where it begins; the right ends and feet of columns, and
    the size of the whole."""

    of: tuple[int, ...]
    shifts: tuple[Point, ...]
    rights: tuple[float, ...]
    feet: tuple[float, ...]
    top: float
    width: float
    height: float

    def way_round(self, column: int, lane: int, start: Point, end: Point) -> list[Point]:
        """The points between the foot of a column and the head of the next, for the edge of this number there."""
        aside = self.rights[column] + MARGIN + lane * LANE
        under = self.feet[column] + MARGIN + lane * LANE
        over = self.top - MARGIN - lane * LANE
        return [(start[0], under), (aside, under), (aside, over), (end[0], over)]


def fold(
    cuts: Sequence[int],
    tops: Sequence[float],
    total: float,
    lefts: Sequence[float],
    rights: Sequence[float],
    gap: float,
    ratio: float | None,
) -> Columns:
    """Rows that begin at `tops`, `total` high in all, in columns; `cuts` is how many edges leave each row downward."""
    width = max(rights) - min(lefts)
    count = 1 if ratio is None else max(round(math.sqrt(ratio * total / max(width + gap, 1.0))), 1)
    firsts = [0, *_breaks(cuts, tops, total, count)]
    ends = [*firsts[1:], len(tops)]
    lanes = max((cuts[end - 1] for end in ends[:-1]), default=0)
    top = MARGIN + lanes * LANE if lanes else 0.0
    of: list[int] = []
    shifts: list[Point] = []
    right_ends, feet, x = [], [], 0.0
    below = [*tops[1:], total]
    for column, (first, end) in enumerate(zip(firsts, ends, strict=True)):
        left, right = min(lefts[first:end]), max(rights[first:end])
        for row in range(first, end):
            of.append(column)
            shifts.append((x - left, top + tops[row] - tops[first]))
        right_ends.append(x + right - left)
        feet.append(top + below[end - 1] - tops[first])
        x = right_ends[-1] + gap + LANE * (cuts[end - 1] if end < len(tops) else 0)
    height = max(feet) + (MARGIN + lanes * LANE if lanes else 0.0)
    return Columns(tuple(of), tuple(shifts), tuple(right_ends), tuple(feet), top, right_ends[-1], height)


def _breaks(cuts: Sequence[int], tops: Sequence[float], total: float, count: int) -> list[int]:
    """The rows that begin the columns after the first: near to where columns would be alike, where few edges are
    cut."""
    breaks: list[int] = []
    mean = total / count
    for column in range(1, count):
        aim, least = column * mean, breaks[-1] + 1 if breaks else 1
        near = [row for row in range(least, len(tops)) if abs(tops[row] - aim) <= SLACK * mean]
        if near:
            breaks.append(min(near, key=lambda row: (cuts[row - 1], abs(tops[row] - aim))))
    return breaks
