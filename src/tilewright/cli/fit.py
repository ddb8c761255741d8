"""What is printed on a terminal fits it: tables lose columns, long cells their middle, and sentences are broken.

Where the output is a file or a pipe, nothing is shortened or broken.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

GAP = 2
"""The blanks between two columns."""

LEAST_CELL = 12
"""How few characters a column of text may be shortened to while columns can be left out instead."""

LEAST_WIDTH = 20
"""Narrower terminals are taken for one of this many columns."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_INDENT = 4


def columns(stream: TextIO) -> int | None:
    """How many columns the terminal has that a stream writes to; None for what is no terminal."""
    try:
        width = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return None
    return max(width, LEAST_WIDTH) if width else None


def say(text: str) -> None:
    """Prints sentences and tables: lines that the terminal is too narrow for are broken at blanks."""
    print(fitted(text))


def fitted(text: str) -> str:
    """The text as the terminal of stdout takes it; as it is where that is no terminal."""
    return wrapped(text, columns(sys.stdout))


def wrapped(text: str, width: int | None, indent: int = _INDENT) -> str:
    """The text with lines of at most this width, where blanks allow it; the rest of a line is indented further."""
    if width is None:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        if len(_COLOURS.sub("", line)) <= width:
            lines.append(line)
            continue
        start = len(line) - len(line.lstrip())
        first, rest = " " * start, " " * min(start + indent, width // 2)
        lines += textwrap.wrap(
            line.strip(),
            width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table that fits: its heads and rows, and the heads of the columns that were left out."""

    heads: list[str]
    rows: list[list[str]]
    left_out: tuple[str, ...] = ()


def natural_width(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """How many columns of a terminal a table takes."""
    return sum(_widths(heads, rows)) + GAP * (len(heads) - 1)


def fit(heads: list[str], rows: list[list[str]], whole: frozenset[str], spare: Sequence[str], width: int) -> Fitted:
    """The table in at most this width: columns of text are shortened, sentences before names, and columns of `spare`
    are left out, the first one first, until the rest fits. Columns of `whole`, numbers above all, are never shortened;
    what does not fit then is wider."""
    if natural_width(heads, rows) <= width:
        return Fitted(heads, rows)
    known = [head for head in spare if head in heads]
    for count in range(len(known) + 1):
        kept = [n for n, head in enumerate(heads) if head not in known[:count]]
        names, cells = [heads[n] for n in kept], [[row[n] for n in kept] for row in rows]
        natural = _widths(names, cells)
        least = [w if h in whole else min(w, max(len(h), LEAST_CELL)) for h, w in zip(names, natural, strict=True)]
        room = width - GAP * (len(names) - 1)
        if sum(least) <= room or count == len(known):
            sentences = [n for n, column in enumerate(zip(*cells, strict=True)) if any(" " in cell for cell in column)]
            widths = _shrink(_shrink(natural, least, room, sentences), least, room, range(len(names)))
            short = [[_shorten(cell, w) for cell, w in zip(row, widths, strict=True)] for row in cells]
            return Fitted(names, short, tuple(known[:count]))
    raise AssertionError("the last round returns")


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(heads, *rows, strict=True)]


def _shrink(widths: Sequence[int], least: Sequence[int], room: int, among: Sequence[int]) -> list[int]:
    """The widths, the widest ones among some columns smaller until they fit, none below its least."""
    widths = list(widths)
    for _ in range(sum(widths) - room):
        wide = [n for n in among if widths[n] > least[n]]
        if not wide:
            break
        widths[max(wide, key=lambda n: widths[n])] -= 1
    return widths


def _shorten(cell: str, width: int) -> str:
    """The cell in at most this width: sentences lose their end, names their middle, since names often end alike."""
    if len(cell) <= width:
        return cell
    if " " in cell:
        return f"{cell[: width - 1].rstrip()}…"
    tail = (width - 1) // 2
    return f"{cell[: width - 1 - tail]}…{cell[len(cell) - tail :]}"
