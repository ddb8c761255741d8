"""A chart of horizontal bars as the text of an SVG file."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

COLOURS = ("#1f77b4", "#9aa5b1", "#c9a66b", "#7fa88b")
LABEL, BARS, VALUE = 190, 480, 60
"""Widths of the names, of the longest bar, and of the number after it."""
BAR, GAP, TOP = 13, 10, 58


def draw_bars(title: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """A group of bars for each name, a bar for each of its series, in one colour each, with a line at 1."""
    series = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    colours = dict(zip(series, COLOURS, strict=False))
    most = max((value for bars in groups.values() for value in bars.values()), default=1.0)
    step = BARS / max(most, 1.0)
    parts, y = [_text(10, 22, title, weight="bold")], TOP
    for n, name in enumerate(series):
        x = 10 + 130 * n
        parts += [_box(x, 34, 12, 10, colours[name]), _text(x + 18, 43, name)]
    for group, bars in groups.items():
        parts.append(_text(LABEL - 8, y + BAR * len(bars) / 2 + 4, group, anchor="end"))
        for name, value in bars.items():
            parts.append(_box(LABEL, y, value * step, BAR - 2, colours[name]))
            parts.append(_text(LABEL + value * step + 5, y + BAR - 3, f"{value:.2f}"))
            y += BAR
        y += GAP
    parts.append(f'<path d="M{LABEL + step:.1f} {TOP - 4}V{y - GAP + 4}" stroke="#444" stroke-dasharray="3 3"/>')
    width = LABEL + BARS + VALUE
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}"'
    return "\n".join([f'{head} font-family="sans-serif" font-size="12">', *parts, "</svg>", ""])


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" fill="{colour}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
