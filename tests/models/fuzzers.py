"""The fuzzers of this folder as commands, in processes of their own, which have no threads when they fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tilewright as tw

HERE = Path(__file__).parent
Ran = subprocess.CompletedProcess[str]


def run(command: str, *options: str) -> Ran:
    """A fuzzer, `file_runs.py`, or a program that imports what is here, after it ended."""
    environment = {**os.environ, "PYTHONPATH": str(Path(tw.__file__).parents[1])}
    given = [str(HERE / command)] if command.endswith(".py") else ["-c", command]
    return subprocess.run(
        [sys.executable, *given, *options], capture_output=True, text=True, check=False, env=environment, cwd=HERE
    )


def counts(ran: Ran) -> dict[str, int]:
    """How many cases came out how, as the last line says; no defects."""
    assert ran.returncode == 0, f"{ran.stdout[-8000:]}\n{ran.stderr[-2000:]}\n--show NUMBER draws one again"
    parts = ran.stdout.strip().splitlines()[-1].split(", ")
    return {word: int(number.replace(",", "")) for number, word in (part.split() for part in parts)}
