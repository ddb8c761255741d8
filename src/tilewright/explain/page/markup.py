"""Elements of HTML and SVG as text. What is not `Markup` is escaped: names in models are anybody's.

element("a", "x < y", href="#k", class_="on")      <a href="#k" class="on">x &lt; y</a>
"""

from __future__ import annotations

import html

VOID = frozenset({"meta", "br", "rect", "path", "circle", "line", "polyline"})
"""Elements that hold nothing."""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, *children: str | None, **attributes: str | float | bool | None) -> Markup:
    """An element. An attribute's underscores are hyphens, one at its end keeps it from being a word of Python; one that
    is None or False is left out, True stands alone. Numbers get two decimals at most; children that are None are left
    out."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = key.removesuffix("_").replace("_", "-")
        words.append(shown if value is True else f'{shown}="{_attribute(value)}"')
    opening = f"<{' '.join(words)}>"
    if name in VOID:
        return Markup(opening if name in ("meta", "br") else f"{opening[:-1]}/>")
    return Markup(f"{opening}{join(*children)}</{name}>")


def join(*children: str | None) -> Markup:
    """The children one behind the other, escaped where they are no markup."""
    return Markup("".join(c if isinstance(c, Markup) else html.escape(c) for c in children if c is not None))


def _attribute(value: str | float) -> str:
    return html.escape(value) if isinstance(value, str) else decimal(value)


def decimal(value: float) -> str:
    """A number as SVG takes it, without needless digits."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def shorten(text: str, most: int) -> str:
    """The text in so many characters at most: its beginning and its end, which tell names of a model apart."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"
