"""Python's logging: the logger `tilewright` says what happens to those who ask, and nothing is printed to others."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tw

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
GRAPH = "graph main[n](x: f32[n, 3]) -> y:\n  y: f32[n, 3] = neg(x)"


def _told(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "tilewright" and r.levelno == level]


def test_passes_are_debugging_and_a_compilation_is_information(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "tilewright"):
        tw.compile(tw.parse(GRAPH))
    steps = _told(caplog, logging.DEBUG)
    assert any(step.startswith("pass bufferize: ") and step.endswith("changed") for step in steps)
    (summary,) = _told(caplog, logging.INFO)
    assert summary.startswith("compiled a model in memory for native in ") and "1 kernel, 0 B of constants" in summary


def test_the_store_and_compiled_files_are_debugging(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    with caplog.at_level(logging.DEBUG, "tilewright"):
        tw.compile(MODEL).save(tmp_path / "digits.tw")
        assert f"{MODEL} is not in the store: it is compiled" in _told(caplog, logging.DEBUG)
        assert len(_told(caplog, logging.INFO)) == 1
        caplog.clear()
        tw.compile(MODEL)
        tw.load(tmp_path / "digits.tw")
    store, load = _told(caplog, logging.DEBUG)
    assert store == f"{MODEL} was compiled before: taken from the store"
    assert load.startswith(f"loaded {tmp_path / 'digits.tw'} in ")
    assert not _told(caplog, logging.INFO)


def test_nothing_is_imported_or_printed_without_being_asked() -> None:
    program = (
        f"import sys, tilewright as tw; tw.load; print('logging' in sys.modules)\n"
        f"import logging; tw.compile(tw.parse({GRAPH!r}))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout.split(), run.stderr) == (0, ["False"], "")
