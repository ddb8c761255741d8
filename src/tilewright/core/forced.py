"""Forced choices: by the name of a kernel, a template, and how it is to run.

    {"dense1": {"template": "contraction", "choice": {"tile": {"rows": 6, …}, …}}}

Without `choice`, the template's cheapest one is taken. `seconds`, which a record of a decision has too, is not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tilewright.report.errors import UserError

Forced = Mapping[str, Any]
"""What is asked for one kernel."""

EXAMPLE = '{"dense1": {"template": "contraction"}}'

_FIELDS = ("template", "choice", "seconds")


def read_forced(choices: Mapping[str, Forced], where: str) -> str:
    """The choices as one text, alike for equal ones; empty for none. UserError, at `where`, for what has not the form
    above; whether kernels and templates exist, compiling tells."""
    if not isinstance(choices, Mapping):
        raise _wrong(where, f"a {type(choices).__name__} came")
    for kernel, asked in choices.items():
        if not isinstance(kernel, str) or not isinstance(asked, Mapping):
            raise _wrong(where, f"{kernel!r} has {_shown(asked)}")
        unknown = [str(name) for name in asked if name not in _FIELDS]
        if unknown:
            raise _wrong(where, f"kernel {kernel} has {', '.join(unknown)}; the fields are template and choice")
        if not isinstance(asked.get("template"), str):
            raise _wrong(where, f"kernel {kernel} has no name of a template at `template`")
    kept = {name: {f: asked[f] for f in _FIELDS[:2] if f in asked} for name, asked in choices.items()}
    try:
        return json.dumps(kept, sort_keys=True, allow_nan=False) if kept else ""
    except (TypeError, ValueError) as error:
        raise _wrong(where, f"it is no JSON: {error}") from None


def forced_in(text: str) -> dict[str, Forced]:
    """The choices that `read_forced` made a text of."""
    made: dict[str, Forced] = json.loads(text) if text else {}
    return made


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def _wrong(where: str, why: str) -> UserError:
    return UserError("cannot use the choices that are asked for", where=where, why=why, fix=f"write {EXAMPLE}")
