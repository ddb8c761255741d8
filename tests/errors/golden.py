"""Files of wrong programs with the whole message each must give.

A case is the program, a line of dashes, the message; cases are separated by lines of equal signs. With UPDATE_GOLDEN=1
in the environment the tests write the files anew; the change is reviewed as a difference of text.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tilewright.report.errors import TilewrightError

_case, _message = "\n" + "=" * 20 + "\n", "\n" + "-" * 20 + "\n"


def programs(path: Path) -> list[str]:
    """The programs of a file."""
    return [case.split(_message)[0] for case in path.read_text().split(_case)]


def check(path: Path, run: Callable[[str], object]) -> None:
    """Runs each program, which must fail, and compares the file with what the messages are."""
    found = _case.join(program + _message + _failure(run, program) for program in programs(path)) + "\n"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(found)
    assert found.split(_case) == path.read_text().split(_case)


def _failure(run: Callable[[str], object], program: str) -> str:
    try:
        run(program)
    except TilewrightError as error:
        return str(error)
    raise AssertionError(f"this program is wrong, but nothing says so:\n{program}")
