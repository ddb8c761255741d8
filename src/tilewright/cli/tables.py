"""Text for people and for programs: aligned columns, numbers in few digits, JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence

from tilewright.cli.fit import GAP, columns, fit, natural_width, wrapped
from tilewright.report.printable import printable
from tilewright.report.quantities import counted, duration, size
from tilewright.store import Json

__all__ = ["counted", "duration", "is_coloured", "json_text", "number", "size", "table"]

BOLD, PLAIN = "\033[1m", "\033[0m"
_NOTE_INDENT = 4


def is_coloured() -> bool:
    """Whether stdout takes colours: it is a terminal, and neither NO_COLOR nor a dumb terminal says otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: frozenset[str] = frozenset(),
    spare: Sequence[str] = (),
    below: str | None = None,
    whole: frozenset[str] = frozenset(),
) -> str:
    """Columns under their heads, two blanks apart; those named in `right` end together, for numbers.

    On a terminal that is too narrow, cells of text are shortened, and columns of `spare` left out, the first one first,
    which a last line says; the column `below` comes below its row, and those of `whole` stay as they are. The heads are
    bold where stdout takes colours.
    """
    width, names, cells = columns(sys.stdout), list(heads), [[printable(cell) for cell in row] for row in rows]
    notes: list[str] = []
    if width is None or natural_width(names, cells) <= width:
        lines = _aligned(names, cells, right)
    else:
        if below is not None:
            at = names.index(below)
            notes = [wrapped(" " * _NOTE_INDENT + row.pop(at), width, 0) for row in cells]
            del names[at]
        fitted = fit(names, cells, right | whole, spare, width)
        lines = [line[:width] for line in _aligned(fitted.heads, fitted.rows, right)]
        for n, text in reversed(list(enumerate(notes, 1))):
            lines.insert(n + 1, text)
        if fitted.left_out:
            lines.append(wrapped(f"({width} columns: without {', '.join(fitted.left_out)})", width, 1))
    if is_coloured():
        lines[0] = BOLD + lines[0] + PLAIN
    return "\n".join(lines)


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str]) -> list[str]:
    """The lines of a table, that of the heads first."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = []
    for row in (heads, *rows):
        cells = [
            cell.rjust(width) if head in right else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ]
        lines.append((" " * GAP).join(cells).rstrip())
    return lines


def number(value: float) -> str:
    """A number in four digits; whole numbers as they are."""
    if float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.4g}"


def json_text(record: dict[str, Json]) -> str:
    """JSON as its standard has it: infinities and NaN, which it lacks, become the strings `inf`, `-inf` and `nan`."""
    text = json.dumps(_finite(record), indent=2, ensure_ascii=False, allow_nan=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _finite(value: Json) -> Json:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
    return value
