"""Text for people and for programs: aligned columns, numbers in few digits, JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence

from tilewright.store import Json

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


def duration(seconds: float) -> str:
    """A time with its unit: 12.3 µs, 4.56 ms, 1.23 s."""
    for unit, scale in (("µs", 1e6), ("ms", 1e3)):
        scaled = seconds * scale
        if scaled < 999.5:
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {unit}"
    return f"{seconds:.2f} s"


def size(count: int) -> str:
    """A number of bytes with its unit: 512 B, 1.5 KiB, 2 GiB."""
    scaled, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if scaled < 1024:
            break
        scaled, unit = scaled / 1024, larger
    return f"{scaled:.3g} {unit}" if scaled < 999.5 else f"{scaled:.0f} {unit}"


def counted(count: int, thing: str) -> str:
    """`1 thread`, `2 threads`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def json_text(record: dict[str, Json]) -> str:
    """JSON as its standard has it: infinities and NaN, which it lacks, become the strings `inf`, `-inf` and `nan`."""
    return json.dumps(_finite(record), indent=2, ensure_ascii=False, allow_nan=False)


def _finite(value: Json) -> Json:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
    return value
