"""`tilewright show --memory`: the arena as a picture and as JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_models import Outcome, invoke
from tilewright.analysis.arena import ArenaUse, Resident
from tilewright.cli.arena_table import COLUMNS, arena_text

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")


def show(*words: str) -> Outcome:
    return invoke("show", DIGITS, "-O", "1", *words)


def test_the_picture_has_a_row_for_each_buffer() -> None:
    lines = show("--memory", "--size", "n=8").out.splitlines()
    record = json.loads(show("--memory", "--size", "n=8", "--json").out)
    assert [line.split()[0] for line in lines[1:-2]] == [row["buffer"] for row in record["buffers"]]
    assert record["bound"] == max(record["alive"]) <= record["reserved"]
    for line, row in zip(lines[1:-2], record["buffers"], strict=True):
        life = "".join("█" if any(a <= n <= b for a, b in row["alive"]) else "·" for n in range(len(record["kernels"])))
        assert line.endswith(f" {life}")
    assert lines[-1].startswith("the arena has ") and lines[-1].endswith(f"({len(record['kernels'])} kernels)")


def test_sizes_are_those_of_a_call() -> None:
    one, eight = (json.loads(show("--memory", "--json", *words).out) for words in ([], ["--size", "n=8"]))
    assert 1 < eight["bound"] / one["bound"] <= 8


def test_a_long_program_has_several_kernels_in_a_column() -> None:
    moments = tuple(f"k{n}" for n in range(2 * COLUMNS))
    text = arena_text(
        ArenaUse(128, moments, (Resident("a", 0, 64, ((2, 4), (9, 9))), Resident("b", 64, 64, ((4, 5),))), ())
    )
    rows = [line.split()[-1] for line in text.splitlines()[1:3]]
    assert rows == ["·██·█" + "·" * (COLUMNS - 5), "··█" + "·" * (COLUMNS - 3)]
    assert text.endswith(
        "the arena has 128 B; at most 128 B are alive at once, in kernel 4, k4 (a column is 2 kernels of 128)"
    )
    assert arena_text(ArenaUse(0, ("k",), (), ())) == "the arena has 0 B: no kernel needs memory for another one"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--memory", "--plan"], "--plan goes alone"),
        (["--memory", "--stages"], "--stages goes alone"),
        (["--memory", "--after", "plan"], "--memory goes alone"),
        (["--size", "n=3"], "--size goes with --memory or --html"),
        (["--json"], "--json goes with --plan or --memory"),
        (["--memory", "--size", "n=many"], "cannot use --size n=many"),
    ],
)
def test_what_does_not_go_together(words: list[str], why: str) -> None:
    outcome = show(*words)
    assert outcome.code == 2 and outcome.err.startswith(why)
