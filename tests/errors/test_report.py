"""What people read: errors, snippets, progress and settings, whole."""

from __future__ import annotations

import io
import pickle
import sys
import time
from pathlib import Path

import pytest

from tilewright.report import settings
from tilewright.report.errors import InternalError, RuntimeFault, TilewrightError, UserError, all_of
from tilewright.report.progress import DELAY, progress
from tilewright.report.snippet import LONGEST_LINE, Snippet, find

LOOPS = "for i in 0..8:\n  for j in 0..10:\n    y[i, j] = 0"

SPLIT = """\
cannot split loop j by 4
   1 | for i in 0..8:
   2 |   for j in 0..10:
     |   ^^^^^^^^^^^^^^^
why:  4 does not divide 10: the last 2 iterations would have no place
fix:  take a factor from [2, 5], or split(j, 4, tail="mask")"""


def split_error() -> UserError:
    return UserError(
        "cannot split loop j by 4",
        where=Snippet(LOOPS, 2),
        why="4 does not divide 10: the last 2 iterations would have no place",
        fix='take a factor from [2, 5], or split(j, 4, tail="mask")',
    )


def test_an_error_has_what_where_why_and_fix() -> None:
    assert str(split_error()) == SPLIT


def test_an_error_of_one_line() -> None:
    assert str(UserError("the file is empty")) == "the file is empty"


def test_a_place_in_words() -> None:
    error = RuntimeFault("index 7 is outside 0..5", where='gather "embed" (model.onnx)', why="a\nb")
    assert str(error) == 'index 7 is outside 0..5\nat:   gather "embed" (model.onnx)\nwhy:  a\n      b'


def test_an_internal_error_says_whose_fault_it_is() -> None:
    expected = "internal error: x\nwhy:  y\nThis is a defect in Tilewright, not in your program."
    assert str(InternalError("x", why="y")) == expected


@pytest.mark.parametrize(("family", "code"), [(UserError, 2), (RuntimeFault, 3), (InternalError, 70)])
def test_errors_travel_between_processes_as_text(family: type[TilewrightError], code: int) -> None:
    error = family("what", where=Snippet(LOOPS, 2), why="why", fix="fix")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is family
    assert str(again) == str(error)
    assert (again.what, again.why, again.fix, again.exit_code) == ("what", "why", "fix", code)


def test_several_errors_are_listed_as_one() -> None:
    one = UserError("no such op: Foo", where="node 3", fix="use Bar")
    two = UserError("opset 0")
    assert all_of("cannot read m.onnx", [one]) is one
    assert str(all_of("cannot read m.onnx", [one, two])) == (
        "cannot read m.onnx: 2 errors\n   1. no such op: Foo\n      at:   node 3\n      fix:  use Bar\n   2. opset 0"
    )


@pytest.mark.parametrize(
    ("snippet", "expected"),
    [
        (Snippet("ab cd", 1, 4, 6, name="f"), "  in f\n   1 | ab cd\n     |    ^^"),
        (Snippet("ab cd", 1, 4), "   1 | ab cd\n     |    ^"),
        (Snippet("a\nb\nc", 2, before=0, after=1), "   2 | b\n     | ^\n   3 | c"),
        (Snippet("a\nb", 9, 9, 12), "   1 | a\n   2 | b\n     |  ^"),
        (Snippet("\tx = 1", 1), "   1 | \tx = 1\n     | \t^^^^^"),
        (Snippet("", 1), "   1 |\n     | ^"),
        (Snippet("ab", 1, 2, 1), "   1 | ab\n     |  ^"),
    ],
)
def test_snippets(snippet: Snippet, expected: str) -> None:
    assert str(snippet) == expected


def test_a_long_line_is_cut_around_the_mark() -> None:
    rows = str(Snippet("x" * 500 + "HERE" + "y" * 500, 1, 501, 505)).split("\n")
    assert len(rows[0]) == LONGEST_LINE + 7
    start, end = rows[1].index("^"), rows[1].rindex("^") + 1
    assert rows[0][start:end] == "HERE"


def test_find_marks_the_first_occurrence() -> None:
    found = find(LOOPS, "j in 0..10", before=0)
    assert str(found) == "   2 |   for j in 0..10:\n     |       ^^^^^^^^^^"
    assert find(LOOPS, "k in") is None
    assert find(LOOPS, "") is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_silent_where_no_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr("tilewright.report.progress.DELAY", 0.0)
    with progress("compiling", total=2) as step:
        time.sleep(0.05)
        step("kernel 1")
    assert stderr.getvalue() == ""


def test_progress_is_silent_while_work_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DELAY >= 1
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress("compiling", total=2) as step:
        step("kernel 1")
    assert stderr.getvalue() == ""


@pytest.mark.parametrize("total", [3, None])
def test_progress_shows_long_work_on_a_terminal(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr("tilewright.report.progress.DELAY", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with progress("compiling", total) as step:
        step("kernel [1]")
        deadline = time.monotonic() + 10
        while "kernel [1]" not in stderr.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    shown = stderr.getvalue()
    assert "compiling" in shown
    assert "kernel [1]" in shown
    assert ("1/3" in shown) == (total == 3)


def test_settings_that_are_unset_have_defaults() -> None:
    for setting in settings.SETTINGS:
        assert setting.read({}) == setting.default
        assert setting.read({setting.name: "  "}) == setting.default


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (settings.SHOW, "1", settings.Show(lines=True)),
        (settings.SHOW, "0", settings.Show()),
        (settings.SHOW, "out/", settings.Show(directory=Path("out"))),
        (settings.STORE, "off", settings.StorePlace(enabled=False)),
        (settings.STORE, "/var/kept", settings.StorePlace(directory=Path("/var/kept"))),
        (settings.VERIFY, "1", True),
        (settings.NUM_THREADS, "8", 8),
        (settings.MEMORY_LIMIT, "4096", 4096),
        (settings.MEMORY_LIMIT, "1.5 GiB", 3 << 29),
        (settings.MEMORY_LIMIT, "512m", 512 << 20),
    ],
)
def test_settings_are_parsed(setting: settings.Setting[object], text: str, value: object) -> None:
    assert setting.read({setting.name: text}) == value


@pytest.mark.parametrize(
    ("setting", "text", "expected"),
    [
        (
            settings.NUM_THREADS,
            "many",
            "cannot use TILEWRIGHT_NUM_THREADS=many\nat:   the environment\nwhy:  it counts threads, from 1 to 4096\n"
            "fix:  set TILEWRIGHT_NUM_THREADS to a number from 1, or unset it",
        ),
        (
            settings.VERIFY,
            "yes",
            "cannot use TILEWRIGHT_VERIFY=yes\nat:   the environment\nwhy:  it is a switch\n"
            "fix:  set TILEWRIGHT_VERIFY to 1 or 0, or unset it",
        ),
        (
            settings.MEMORY_LIMIT,
            "0",
            "cannot use TILEWRIGHT_MEMORY_LIMIT=0\nat:   the environment\n"
            "why:  it is a number of bytes above 0, with a suffix K, M, G or T for powers of 1024\n"
            "fix:  set TILEWRIGHT_MEMORY_LIMIT to a size such as 512M or 8G, or unset it",
        ),
        (
            settings.STORE,
            "kept",
            "cannot use TILEWRIGHT_STORE=kept\nat:   the environment\n"
            "why:  a relative path would name another directory from each place the program is started in\n"
            "fix:  set TILEWRIGHT_STORE to an absolute path, or off, or unset it",
        ),
    ],
)
def test_settings_that_make_no_sense(setting: settings.Setting[object], text: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        setting.read({setting.name: text})
    assert str(caught.value) == expected


@pytest.mark.parametrize("text", ["0", "-1", "5000", "²", "1e3"])
def test_threads_are_counted_in_plain_digits(text: str) -> None:
    with pytest.raises(UserError, match="counts threads"):
        settings.NUM_THREADS.read({settings.NUM_THREADS.name: text})


def test_misspelt_variables_are_found() -> None:
    errors = settings.unknown({"TILEWRIGHT_SHOWS": "1", "TILEWRIGHT_SHOW": "1", "PATH": "", "TILEWRIGHT_QQQ": ""})
    assert [str(e) for e in errors] == [
        "unknown variable TILEWRIGHT_QQQ\nat:   the environment\nfix:  the variables are TILEWRIGHT_SHOW, "
        "TILEWRIGHT_STORE, TILEWRIGHT_VERIFY, TILEWRIGHT_NUM_THREADS, TILEWRIGHT_MEMORY_LIMIT, "
        "TILEWRIGHT_CALIBRATE, TILEWRIGHT_MACHINE, TILEWRIGHT_LEVEL, TILEWRIGHT_CHOICES, TILEWRIGHT_COMPILE_PROCESSES, "
        "TILEWRIGHT_WINOGRAD, TILEWRIGHT_STRASSEN, TILEWRIGHT_TUNED, TILEWRIGHT_CHECK",
        "unknown variable TILEWRIGHT_SHOWS\nat:   the environment\nfix:  did you mean TILEWRIGHT_SHOW?",
    ]


def test_the_table_names_every_variable() -> None:
    lines = settings.table().split("\n")
    assert [line.split()[0] for line in lines] == [s.name for s in settings.SETTINGS]
