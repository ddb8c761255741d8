"""Labelled bars, and figures in words."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.explain.page.markup import Markup, element
from tilewright.report.quantities import duration


def bar(part: float, kind: str) -> Markup:
    """A bar as long as this part of the room."""
    width = 100 * min(max(part, 0.0), 1.0)
    rect = element("rect", width=max(width, 0.4), height=10.0, class_=kind)
    return element("svg", rect, class_="bar", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")


def bars(rows: Sequence[tuple[str, float | None, str, str]], wide: bool = False) -> Markup:
    """A row for each: a label, an amount (None for what cannot be), how it reads, and the bar's kind; with long labels,
    `wide`."""
    most = max((amount for _, amount, _, _ in rows if amount is not None), default=0.0) or 1.0
    cells = [
        element(
            "div",
            element("span", label),
            bar(amount / most, kind) if amount is not None else element("span", class_="bar"),
            element("span", shown, class_="value"),
        )
        for label, amount, shown, kind in rows
    ]
    return element("div", *cells, class_="bars wide-labels" if wide else "bars")


def took(seconds: float) -> str:
    """A time, also one that is too short for its digits."""
    return "< 0.01 µs" if 0 < seconds < 5e-9 else duration(seconds)


def share(part: float) -> str:
    """A part in per cent."""
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.1f} %"


def quantity(count: int) -> str:
    """A large number: 1.23 G."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return str(count)
