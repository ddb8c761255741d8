"""Output that fits the terminal: tables that lose columns, sentences that are broken, pipes that get everything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli_models import invoke, save_affine
from tilewright.cli import fit as fit_module
from tilewright.cli import tables
from tilewright.cli.fit import wrapped
from tilewright.cli.tables import table

HEADS = ("kernel", "time", "share", "holds")
ROWS = [
    ("contract_pad_add_relu_2", "1.2 µs", "10%", "Conv 'a', Relu 'b', and more of them"),
    ("x", "120 µs", "9%", "Conv 'a'"),
]
NUMBERS = frozenset(("time", "share"))


def _at(width: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets all streams be terminals of this width; None: pipes."""
    for module in (fit_module, tables):
        monkeypatch.setattr(module, "columns", lambda stream: width)


def test_a_pipe_gets_all_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    _at(None, monkeypatch)
    whole = table(HEADS, ROWS, NUMBERS, ("share",))
    _at(200, monkeypatch)
    assert table(HEADS, ROWS, NUMBERS, ("share",)) == whole
    assert "and more of them" in whole


def test_sentences_are_shortened_before_names_and_columns_go_last(monkeypatch: pytest.MonkeyPatch) -> None:
    _at(60, monkeypatch)
    assert table(HEADS, ROWS, NUMBERS, ("share",)).splitlines() == [
        "kernel                     time  share  holds",
        "contract_pad_add_relu_2  1.2 µs    10%  Conv 'a', Relu 'b',…",
        "x                        120 µs     9%  Conv 'a'",
    ]
    _at(44, monkeypatch)
    assert table(HEADS, ROWS, NUMBERS, ("share",)).splitlines() == [
        "kernel             time  share  holds",
        "contrac…_relu_2  1.2 µs    10%  Conv 'a', R…",
        "x                120 µs     9%  Conv 'a'",
    ]
    _at(36, monkeypatch)
    assert table(HEADS, ROWS, NUMBERS, ("share",)).splitlines() == [
        "kernel            time  holds",
        "contrac…relu_2  1.2 µs  Conv 'a', R…",
        "x               120 µs  Conv 'a'",
        "(36 columns: without share)",
    ]


@pytest.mark.parametrize("width", range(20, 90, 5))
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _at(width, monkeypatch)
    for text in (table(HEADS, ROWS, NUMBERS, ("share", "holds")), table(HEADS, ROWS, NUMBERS, below="holds")):
        assert max(map(len, text.splitlines())) <= width


def test_a_column_comes_below_its_row_and_names_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    _at(34, monkeypatch)
    assert table(HEADS, ROWS, NUMBERS, ("share",), below="holds", whole=frozenset(("kernel",))).splitlines() == [
        "kernel                     time",
        "contract_pad_add_relu_2  1.2 µs",
        "    Conv 'a', Relu 'b', and more",
        "    of them",
        "x                        120 µs",
        "    Conv 'a'",
        "(34 columns: without share)",
    ]


def test_sentences_are_broken_at_blanks() -> None:
    text = "a call takes 20 ms\n  indented more than that is\n\033[1mbold\033[0m twelve"
    assert wrapped(text, 14) == (
        "a call takes\n    20 ms\n  indented\n      more\n      than\n      that is\n\033[1mbold\033[0m twelve"
    )
    assert wrapped(text, None) == text


def test_what_is_no_terminal_has_no_width(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        assert fit_module.columns(file) is None


COMMANDS = (
    ("run", "--random", "--compare"),
    ("bench", "--rounds", "1", "--vs", "none"),
    ("bench", "--rounds", "1", "--vs", "none", "--callers", "2"),
    ("profile", "--seconds", "0.01"),
    ("show", "--plan"),
    ("show", "--memory"),
    ("show", "--stages"),
    ("why",),
    ("why", "y"),
    ("cache", "ls"),
    ("doctor",),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_fits_every_terminal(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *options = command
    model = [] if name in ("cache", "doctor") else [save_affine(tmp_path)]
    words = [name, *([*options, *model] if name == "cache" else [*model, *options])]
    if command == ("why", "y"):
        words = ["why", model[0], "value:y"]
    for width in (60, 80, 200):
        _at(width, monkeypatch)
        outcome = invoke(*words)
        assert outcome.code == 0, outcome.err
        wide = [line for line in outcome.out.splitlines() if len(line) > width and " " in line.strip()]
        assert not wide, width
    assert sys.stdout is not None
