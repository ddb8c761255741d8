"""Texts that are kept in files: `make snapshots` (pytest --snapshot-update) writes them anew, to be reviewed as a
difference."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def check(request: pytest.FixtureRequest, name: str, text: str) -> None:
    """The file `name` holds the text."""
    path = GOLDEN / name
    if request.config.getoption("update_snapshots", default=False):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert path.exists(), f"there is no {path}: write it with make snapshots"
    assert (text + "\n").split("\n") == path.read_text(encoding="utf-8").split("\n")


def check_folder(request: pytest.FixtureRequest, folder: str, names: Iterable[str]) -> None:
    """The folder holds these files and no other."""
    wanted = set(names)
    for path in (GOLDEN / folder).iterdir():
        if path.name not in wanted and request.config.getoption("update_snapshots", default=False):
            path.unlink()
    assert {path.name for path in (GOLDEN / folder).iterdir()} == wanted
