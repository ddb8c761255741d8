"""Layered drawings of graphs without circles: where boxes are, and how edges run between them.

    a            every edge goes down, from a row to one below it; rows are ordered so that few edges cross; an edge
    | \\          that passes rows has a place of its own in each; a long drawing is folded into columns, where few
    b  c         edges are cut
    | /
    d

The method is that of Sugiyama, Tagawa and Toda ("Methods for visual understanding of hierarchical system structures",
1981): rows by longest paths, orders by barycenters. Places in a row are the closest to those of the neighbours, in the
sense of least squares, that keep boxes apart. The same graph gets the same drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tilewright.explain.page.folds import Columns, fold

Point = tuple[float, float]

SWEEPS = 8
PASSING = 10.0
"""The width that an edge has in a row that it passes."""

YIELD = 0.01
"""How hard an edge that passes a row stays where it would like to be, where a box does with 1."""


@dataclass(frozen=True, slots=True)
class Spacing:
    """The gaps between boxes of a row, between rows, and between columns."""

    across: float = 14.0
    down: float = 22.0
    columns: float = 46.0


@dataclass(frozen=True, slots=True)
class Layout:
    """The upper left corner of each box, the points of each edge in the order given, and the size of the whole. Two
    points beside or above each other are joined by a line, others by a curve that leaves and arrives downward."""

    corners: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out(
    sizes: Sequence[Point], edges: Sequence[tuple[int, int]], spacing: Spacing = Spacing(), ratio: float | None = None
) -> Layout:
    """The drawing of boxes of these widths and heights. An edge is a pair of places in `sizes`, the first smaller than
    the second. With a `ratio`, it is folded into columns so that it is about so many times wider than high."""
    if not sizes:
        return Layout((), (), 0.0, 0.0)
    rows = _Rows(sizes, edges)
    rows.order()
    centres = rows.centres(spacing.across)
    tops, total = list[float](), 0.0
    for height in rows.row_heights:
        tops.append(total)
        total += height + spacing.down
    columns = fold(rows.cuts(), tops, total - spacing.down, *rows.extents(centres), spacing.columns, ratio)
    return _drawn(rows, centres, columns, edges)


def _drawn(rows: _Rows, centres: Sequence[float], columns: Columns, edges: Sequence[tuple[int, int]]) -> Layout:
    """The corners and routes, when all places are known."""

    def place(item: int) -> Point:
        x, y = columns.shifts[rows.rank[item]]
        return centres[item] + x, y

    corners = tuple((place(n)[0] - rows.widths[n] / 2, place(n)[1]) for n in range(rows.boxes))
    routes = []
    lanes: dict[int, dict[int, int]] = {}
    for n, _ in enumerate(edges):
        points: list[Point] = []
        for above, below in pairwise(rows.paths[n]):
            (x, y), end = place(above), place(below)
            bottom = y + rows.row_heights[rows.rank[above]]
            points += [(x, y if above >= rows.boxes else y + rows.heights[above]), (x, bottom)]
            if columns.of[rows.rank[above]] != columns.of[rows.rank[below]]:
                column = columns.of[rows.rank[above]]
                taken = lanes.setdefault(column, {})
                points += columns.way_round(column, taken.setdefault(above, len(taken)), (x, bottom), end)
        points.append(place(rows.paths[n][-1]))
        routes.append(tuple(dict.fromkeys(points)))
    return Layout(corners, tuple(routes), columns.width, columns.height)


@dataclass(slots=True)
class _Rows:
    """The boxes, and behind them the places where edges pass rows, one for all edges of a box, row by row; the
    neighbours of each above and below; the items that each edge goes through."""

    sizes: Sequence[Point]
    edges: Sequence[tuple[int, int]]
    widths: list[float] = field(default_factory=list)
    heights: list[float] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    items: list[list[int]] = field(default_factory=list)
    above: list[list[int]] = field(default_factory=list)
    below: list[list[int]] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)
    row_heights: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.widths = [width for width, _ in self.sizes]
        self.heights = [height for _, height in self.sizes]
        self.rank = _ranks(len(self.sizes), self.edges)
        passing: dict[tuple[int, int], int] = {}
        for first, last in self.edges:
            path = [first]
            for rank in range(self.rank[first] + 1, self.rank[last]):
                if (first, rank) not in passing:
                    passing[first, rank] = len(self.rank)
                    self.rank.append(rank)
                    self.widths.append(PASSING)
                    self.heights.append(0.0)
                path.append(passing[first, rank])
            self.paths.append([*path, last])
        self.above = [[] for _ in self.rank]
        self.below = [[] for _ in self.rank]
        for upper, lower in dict.fromkeys(pair for path in self.paths for pair in pairwise(path)):
            self.below[upper].append(lower)
            self.above[lower].append(upper)
        self.items = [[] for _ in range(max(self.rank) + 1)]
        for item, rank in enumerate(self.rank):
            self.items[rank].append(item)
        self.row_heights = [max(self.heights[item] for item in row) for row in self.items]

    @property
    def boxes(self) -> int:
        return len(self.sizes)

    def order(self) -> None:
        """Orders each row by the mean places of the neighbours, downward and upward in turns; the order with the fewest
        crossings that was met stays."""
        best, fewest = self.items, self._crossings()
        for sweep in range(SWEEPS):
            if not fewest:
                break
            self.items = [list(row) for row in self.items]
            down = sweep % 2 == 0
            for row in self.items if down else reversed(self.items):
                place = {item: n for other in self._beside(row, down) for n, item in enumerate(other)}
                near = self.above if down else self.below
                own = {item: n for n, item in enumerate(row)}
                row.sort(key=lambda i: _mean([place[o] for o in near[i]], own[i]))
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = self.items, crossings
        self.items = best

    def _beside(self, row: list[int], down: bool) -> Iterable[list[int]]:
        rank = self.rank[row[0]] + (-1 if down else 1)
        return [self.items[rank]] if 0 <= rank < len(self.items) else []

    def _crossings(self) -> int:
        place = {item: n for row in self.items for n, item in enumerate(row)}
        total = 0
        for row in self.items:
            ends: list[int] = []
            for item in row:
                found = [place[o] for o in self.below[item]]
                total += sum(end > other for other in found for end in ends)
                ends += found
        return total

    def centres(self, gap: float) -> list[float]:
        """The horizontal centre of each item."""
        xs = [0.0] * len(self.rank)
        for row in self.items:
            start = -sum(self.widths[i] + gap for i in row) / 2
            for item in row:
                xs[item] = start + self.widths[item] / 2
                start += self.widths[item] + gap
        for sweep in range(2 * SWEEPS):
            down = sweep % 2 == 0
            near = self.above if down else self.below
            for row in self.items if down else reversed(self.items):
                wanted = [self._pulled(i, near[i], xs) for i in row]
                weights = [1.0 if i < self.boxes else YIELD for i in row]
                apart = [(self.widths[a] + self.widths[b]) / 2 + gap for a, b in pairwise(row)]
                for item, x in zip(row, spread(wanted, apart, weights), strict=True):
                    xs[item] = x
        return xs

    def _pulled(self, item: int, near: Sequence[int], xs: Sequence[float]) -> float:
        """Where an item would like to be. A box that boxes are next to follows these alone, so that chains are straight
        beside what skips them."""
        boxes = [other for other in near if other < self.boxes] if item < self.boxes else []
        return _mean([xs[o] for o in boxes or near], xs[item])

    def cuts(self) -> list[int]:
        """How many items of each row have edges to the next."""
        return [sum(bool(self.below[i]) for i in row) for row in self.items]

    def extents(self, centres: Sequence[float]) -> tuple[list[float], list[float]]:
        """Where each row begins and ends."""
        lefts = [min(centres[i] - self.widths[i] / 2 for i in row) for row in self.items]
        rights = [max(centres[i] + self.widths[i] / 2 for i in row) for row in self.items]
        return lefts, rights


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The row of each box: below all that it reads from; one that reads nothing is just above its first reader."""
    rank = [0] * count
    below: list[list[int]] = [[] for _ in range(count)]
    reads = [False] * count
    for first, last in sorted(edges, key=lambda edge: edge[1]):
        rank[last] = max(rank[last], rank[first] + 1)
        below[first].append(last)
        reads[last] = True
    for box in range(count):
        if below[box] and not reads[box]:
            rank[box] = min(rank[other] for other in below[box]) - 1
    least = min(rank)
    return [r - least for r in rank]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def spread(wanted: Sequence[float], apart: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The places closest to those wanted, by weighted least squares, of which each is at least so far `apart` from the
    one before it (pool adjacent violators)."""
    offsets = [0.0]
    for gap in apart:
        offsets.append(offsets[-1] + gap)
    pools: list[tuple[float, float, int]] = []
    for want, offset, weight in zip(wanted, offsets, weights, strict=True):
        mean, mass, count = want - offset, weight, 1
        while pools and pools[-1][0] > mean:
            other, more, others = pools.pop()
            mean = (other * more + mean * mass) / (more + mass)
            mass, count = mass + more, count + others
        pools.append((mean, mass, count))
    flat = [mean for mean, _, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(flat, offsets, strict=True)]
