"""The roofline of a machine with the kernels of a program on it, as SVG: both axes are logarithmic.

    GFLOP/s │      ______________ peak
            │    /    o    o
            │  / o      o            time >= max(flops / peak, bytes / bandwidth of a level)
            └──────────────────── flops per byte

A kernel is one circle, with its call's key; kernels without arithmetic have no place on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.explain.page.drawing import style
from tilewright.explain.page.facts import Call, Facts
from tilewright.explain.page.labels import LETTER, LINE, Label, Point, along
from tilewright.explain.page.markup import Markup, element, join

WIDTH, HEIGHT = 420.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 12.0, 14.0, 34.0


def point_of(call: Call) -> tuple[float, float] | None:
    """Operations for each byte, and 10^9 operations a second; None where a call has none, or they are not known."""
    if not call.reached or not call.flops or not call.bytes or not call.seconds:
        return None
    return call.flops / call.bytes, call.flops / call.seconds / 1e9


def levels(facts: Facts) -> list[tuple[str, float]]:
    """The levels of memory, nearest first, with what the cores in use read from them in GB/s."""
    peaks = facts.target.peaks
    rates = [(f"L{n}", gbs * facts.cores) for n, gbs in enumerate(peaks.cache_gbs, 1)]
    return [*rates, ("memory", min(peaks.memory_gbs * facts.cores, peaks.memory_gbs_all))]


def roofline(facts: Facts) -> Markup:
    """The plot of all calls."""
    points = [(call, point) for call in facts.calls if (point := point_of(call))]
    peak, rates = facts.peak / 1e9, levels(facts)
    axes = Axes([p for _, p in points], peak, rates)
    circles = [
        element("circle", cx=axes.x(x), cy=axes.y(y), r=3.2, class_=f"point {style(call.template)}", data_key=call.key)
        for call, (x, y) in points
    ]
    drawn = join(*axes.grid(), *_roofs(axes, peak, rates), *circles)
    box = f"0 0 {WIDTH:.0f} {HEIGHT:.0f}"
    label = f"Roofline of {len(points)} kernel calls"
    return element("svg", drawn, id="roofline", viewBox=box, role="img", aria_label=label)


class Axes:
    """The ranges of both axes: whole powers of two across, of ten upward, with all points and the ridges inside."""

    def __init__(self, points: Sequence[tuple[float, float]], peak: float, rates: Sequence[tuple[str, float]]) -> None:
        ridges = [peak / gbs for _, gbs in rates]
        across = [x for x, _ in points] + ridges
        self.left = math.floor(math.log2(max(min(across), 2.0**-8)))
        self.right = math.ceil(math.log2(max(*across, 2 * min(ridges)))) + 1
        self.low = math.log10(max(min([y for _, y in points] + [peak / 30]), peak * 1e-6)) - 0.15
        self.high = math.log10(max([y for _, y in points] + [peak])) + 0.15

    def x(self, intensity: float) -> float:
        part = (math.log2(max(intensity, 2.0**self.left)) - self.left) / (self.right - self.left)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y(self, gflops: float) -> float:
        part = (math.log10(max(gflops, 10**self.low)) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> list[Markup]:
        """Faint lines with their numbers, and what the axes are."""
        rows: list[Markup] = []
        step = max((self.right - self.left) // 6, 1)
        for power in range(self.left, self.right + 1, step):
            x = self.x(2.0**power)
            rows.append(element("line", class_="grid", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM))
            shown = str(2**power) if power >= 0 else f"1/{2**-power}"
            rows.append(element("text", shown, class_="faint", x=x, y=HEIGHT - BOTTOM + 13, text_anchor="middle"))
        for power in range(math.ceil(self.low), math.floor(self.high) + 1):
            y = self.y(10.0**power)
            rows.append(element("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
            shown = f"{10.0**power:g}"
            rows.append(element("text", shown, class_="faint", x=LEFT - 5, y=y + 3.5, text_anchor="end"))
        rows.append(element("text", "flops per byte", class_="faint", x=WIDTH - RIGHT, y=HEIGHT - 5, text_anchor="end"))
        rows.append(element("text", "GFLOP/s", class_="faint", x=2.0, y=TOP - 3))
        return rows


def _roofs(axes: Axes, peak: float, rates: Sequence[tuple[str, float]]) -> list[Markup]:
    """A line for each level up to the peak, and the peak from the first of them on, with labels that do not overlap."""
    rows, labels = [], roof_labels(axes, peak, rates)
    for _, gbs in rates:
        (x1, y1), (x2, y2) = _roof(axes, peak, gbs)
        rows.append(element("line", class_="roof", x1=x1, y1=y1, x2=x2, y2=y2))
    x = axes.x(peak / max(gbs for _, gbs in rates))
    rows.append(element("line", class_="roof", x1=x, y1=axes.y(peak), x2=WIDTH - RIGHT, y2=axes.y(peak)))
    for label in labels:
        place = f"translate({label.x:.1f} {label.y:.1f}) rotate({label.angle:.1f})"
        rows.append(element("text", label.text, class_="label", transform=place))
    return rows


def roof_labels(axes: Axes, peak: float, rates: Sequence[tuple[str, float]]) -> list[Label]:
    """The label of the peak and of each level, nearest levels first: above its line or, where there is no room, in the
    lower right corner, which is below all lines."""
    text = f"{peak:.0f} GFLOP/s"
    labels = [Label(text, WIDTH - RIGHT - len(text) * LETTER, axes.y(peak) - 4)]
    corner: list[str] = []
    for name, gbs in rates:
        found = along(f"{name} {gbs:.0f} GB/s", *_roof(axes, peak, gbs), labels)
        if found is None:
            corner.append(f"{name} {gbs:.0f} GB/s")
        else:
            labels.append(found)
    for n, text in enumerate(reversed(corner)):
        labels.append(Label(text, WIDTH - RIGHT - len(text) * LETTER - 4, HEIGHT - BOTTOM - 5 - n * (LINE + 2)))
    return labels


def _roof(axes: Axes, peak: float, gbs: float) -> tuple[Point, Point]:
    """The ends of the line of a level that gives so much."""
    start = max(2.0**axes.left, 10**axes.low / gbs)
    return (axes.x(start), axes.y(start * gbs)), (axes.x(peak / gbs), axes.y(peak))
