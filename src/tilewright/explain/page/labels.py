"""Places of labels along slanted lines, where none covers another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Point = tuple[float, float]

LETTER, LINE = 4.6, 9.0
"""The width of a letter and the height of a line of the plot's labels."""

ABOVE = 2.5
"""How far above its line a label stands."""

STEP = 4.0
"""How far apart the places are that are tried."""


@dataclass(frozen=True, slots=True)
class Label:
    """A text that begins at a point and runs at an angle, in degrees clockwise."""

    text: str
    x: float
    y: float
    angle: float = 0.0

    def corners(self) -> tuple[Point, Point, Point, Point]:
        """The corners of the room that the text takes."""
        turn, width = math.radians(self.angle), len(self.text) * LETTER
        along, up = (math.cos(turn), math.sin(turn)), (math.sin(turn), -math.cos(turn))
        low = (self.x, self.y)
        far = (low[0] + width * along[0], low[1] + width * along[1])
        return low, far, _moved(far, up, LINE), _moved(low, up, LINE)

    def covers(self, other: Label) -> bool:
        """Whether the rooms of both have a point in common: no side of either has one on one side, one on the other."""
        mine, theirs = self.corners(), other.corners()
        return not any(_separates(angle, mine, theirs) for angle in (self.angle, other.angle))


def along(text: str, start: Point, end: Point, taken: Sequence[Label]) -> Label | None:
    """The label above a line from start to end, as near to its end as what is taken allows; None where there is no
    room."""
    angle = math.degrees(math.atan2(end[1] - start[1], end[0] - start[0]))
    for x, y in _places(text, start, end):
        turn = math.radians(angle)
        label = Label(text, x + ABOVE * math.sin(turn), y - ABOVE * math.cos(turn), angle)
        if not any(label.covers(other) for other in taken):
            return label
    return None


def _places(text: str, start: Point, end: Point) -> Iterator[Point]:
    """Where the text may begin on the line, the last place first."""
    length = math.dist(start, end)
    at = length - len(text) * LETTER - 2 * STEP
    while at >= 0:
        yield start[0] + (end[0] - start[0]) * at / length, start[1] + (end[1] - start[1]) * at / length
        at -= STEP


def _moved(point: Point, way: Point, far: float) -> Point:
    return point[0] + far * way[0], point[1] + far * way[1]


def _separates(angle: float, first: Sequence[Point], second: Sequence[Point]) -> bool:
    """Whether a line across, or along, this angle has one shape on one side and one on the other."""
    turn = math.radians(angle)
    for x, y in ((math.cos(turn), math.sin(turn)), (-math.sin(turn), math.cos(turn))):
        ours, theirs = ([px * x + py * y for px, py in shape] for shape in (first, second))
        if max(ours) <= min(theirs) or max(theirs) <= min(ours):
            return True
    return False
