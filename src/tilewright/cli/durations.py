"""Times as the command line takes them: `5s`, `500ms`, `2m`, or a number of seconds."""

from __future__ import annotations

import math
import re

from tilewright.report.errors import UserError

MOST_SECONDS = 86400.0
_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_FORM = re.compile(rf"([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*({'|'.join(filter(None, _UNITS))})?", re.IGNORECASE)


def read_duration(text: str, option: str) -> float:
    """The seconds in the text that an option has. UserError for what is no time, or longer than a day."""
    match = _FORM.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[(match[2] or "").lower()] if match else math.nan
    if 0 <= seconds <= MOST_SECONDS:
        return seconds
    why = "it is longer than a day" if seconds > MOST_SECONDS else f"{text!r} is no time"
    raise UserError(f"cannot use {option} {text}", why=why, fix=f"write {option} 5s, {option} 500ms or {option} 2m")
