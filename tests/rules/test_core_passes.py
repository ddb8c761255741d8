"""The pass runner: order, records, what it shows, and what becomes of errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.core.passes import Level, Pass, Record, dump, run_passes
from tilewright.report.errors import InternalError, RuntimeFault, UserError
from tilewright.report.settings import Show


def check(program: str) -> None:
    if "bad" in program:
        raise InternalError("a bad word", where="line 1", why="it is bad")


GRAPH: Level[str] = Level("graph", str, check)
LOOPS: Level[str] = Level("loops", str.upper, check)


def append(word: str, name: str | None = None, level: Level[str] = GRAPH) -> Pass[str]:
    return Pass(name or word, lambda program: f"{program} {word}", level)


def fail(error: Exception) -> Pass[str]:
    def run(program: str) -> str:
        raise error

    return Pass("fail", run, GRAPH)


KEEP: Pass[str] = Pass("keep", lambda program: program, GRAPH)
QUIET = Show()


def test_passes_run_in_order_and_are_recorded() -> None:
    record: Record[str] = Record()
    assert run_passes("a", [append("b"), KEEP], record=record, show=QUIET) == "a b"
    assert run_passes("a b", [append("c", level=LOOPS)], record=record, show=QUIET) == "a b c"
    assert [(s.number, s.name, s.program, s.changed) for s in record] == [
        (1, "b", "a b", True),
        (2, "keep", "a b", False),
        (3, "c", "a b c", True),
    ]
    assert record.after("c").text() == "A B C"
    assert all(s.milliseconds >= 0 for s in record)
    assert run_passes("a", [], show=QUIET) == "a"


def test_the_last_stage_of_a_name_is_found() -> None:
    record: Record[str] = Record()
    run_passes("a", [append("b", "x"), append("c", "x")], record=record, show=QUIET)
    assert record.after("x").program == "a b c"
    with pytest.raises(UserError) as caught:
        record.after("split")
    assert str(caught.value) == "no pass is called split\nwhy:  the passes that ran: x"


def test_a_line_for_each_pass(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_SHOW", "1")
    run_passes("a", [append("b"), KEEP])
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = [re.sub(r" +\d+\.\d\d ms", " 0.00 ms", line) for line in shown.err.splitlines()]
    assert lines == ["   1  b 0.00 ms  changed", "   2  keep 0.00 ms  same"]


def test_a_report_ends_in_the_total() -> None:
    record: Record[str] = Record()
    run_passes("a", [append("b"), KEEP], record=record, show=QUIET)
    names = [line.split("ms")[0].rsplit(maxsplit=1)[0].strip() for line in record.report().splitlines()]
    assert names == ["1  b", "2  keep", "in all"]


def test_a_file_for_each_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_SHOW", str(tmp_path / "deep" / "dir"))
    run_passes("a", [append("b", "simplify constants/all"), append("c", level=LOOPS)])
    files = {path.name: path.read_text() for path in (tmp_path / "deep" / "dir").iterdir()}
    assert files == {"01-simplify-constants-all.graph": "a b\n", "02-c.loops": "A B C\n"}


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError) as caught:
        dump("text", "01-x.graph", blocked)
    assert str(caught.value) == (
        f"cannot write {blocked}/01-x.graph\nwhy:  File exists\nfix:  set TILEWRIGHT_SHOW to a directory you may write"
    )


def test_the_verifier_runs_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_VERIFY", raising=False)
    passes = [append("b"), append("bad")]
    assert run_passes("a", passes, show=QUIET) == "a b bad"
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    with pytest.raises(InternalError) as caught:
        run_passes("a", passes, show=Show(directory=tmp_path))
    assert str(caught.value) == (
        f"internal error: pass bad made a program that is not valid\nat:   {tmp_path}/02-fault-bad.graph\n"
        "why:  a bad word\n      line 1\n      it is bad\nfix:  report it with that file\n"
        "This is a defect in Tilewright, not in your program."
    )
    assert (tmp_path / "02-fault-bad.graph").read_text() == "a b bad\n"


def test_an_exception_names_the_pass_and_the_program_before_it(tmp_path: Path) -> None:
    error = ZeroDivisionError("division by zero")
    with pytest.raises(InternalError) as caught:
        run_passes("a", [append("b", level=LOOPS), fail(error)], show=Show(directory=tmp_path))
    assert str(caught.value) == (
        f"internal error: pass fail failed\nat:   {tmp_path}/02-fault-fail.loops\n"
        "why:  ZeroDivisionError: division by zero\nfix:  report it with that file\n"
        "This is a defect in Tilewright, not in your program."
    )
    assert caught.value.__cause__ is error
    assert (tmp_path / "02-fault-fail.loops").read_text() == "A B\n"


def test_the_first_pass_dumps_what_it_was_given(tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        run_passes("a", [fail(KeyError("k"))], level=LOOPS, show=Show(directory=tmp_path))
    assert (tmp_path / "01-fault-fail.loops").read_text() == "A\n"


def test_a_program_that_cannot_be_printed_hides_no_error() -> None:
    def broken(program: str) -> str:
        raise RuntimeError("no text")

    with pytest.raises(InternalError) as caught:
        run_passes("a", [fail(KeyError("k"))], level=Level("graph", broken, check), show=QUIET)
    assert caught.value.where is None
    assert caught.value.why == "KeyError: 'k'"


@pytest.mark.parametrize("error", [UserError("yours"), RuntimeFault("at run time")])
def test_errors_of_the_user_pass_through(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        run_passes("a", [fail(error)], show=QUIET)
    assert caught.value is error
