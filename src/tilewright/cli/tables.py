"""Text for people and for programs: aligned columns, numbers in few digits, JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence

from tilewright.report.printable import printable
from tilewright.report.quantities import counted, duration, size
from tilewright.store import Json

__all__ = ["counted", "duration", "is_coloured", "json_text", "number", "size", "table"]

BOLD, PLAIN = "\033[1m", "\033[0m"


def is_coloured() -> bool:
    """Whether stdout takes colours: it is a terminal, and neither NO_COLOR nor a dumb terminal says otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()) -> str:
    """Columns under their heads, two blanks apart; those named in `right` end together, for numbers.

    Nothing is cut or wrapped. The heads are bold where stdout takes colours.
    """
    heads, rows = list(heads), [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = []
    for row in [heads, *rows]:
        cells = [
            cell.rjust(width) if head in right else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    if is_coloured():
        lines[0] = BOLD + lines[0] + PLAIN
    return "\n".join(lines)


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
