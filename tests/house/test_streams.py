"""Standard streams that are closed, that nobody reads, or that take nothing more: a command ends with an exit code that
shells know, and never with a traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli_models import save_affine
from tilewright.cli.streams import UNREAD

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")


@pytest.fixture(autouse=True, scope="module")
def _store(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The model is compiled once for all commands that run it."""
    ENVIRONMENT["TILEWRIGHT_STORE"] = str(tmp_path_factory.mktemp("store"))


def shell(words: str, folder: Path) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of `tilewright WORDS`, redirections included, in a folder of its own."""
    save_affine(folder)
    command = f"{shlex.quote(sys.executable)} -m tilewright {words}"
    run = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert "Traceback" not in run.stderr and "Exception ignored" not in run.stderr
    return run.returncode, run.stdout, run.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("run affine.onnx --random --size n=2 --save-output out.npz >&-", 0),
        ("run affine.onnx --random --size n=2 --save-output out.npz >&- 2>&- <&-", 0),
        ("run none.onnx >&- 2>&-", 2),
        ("--help >&-", 0),
        ("--version >&- 2>&-", 0),
        ("walk >&- 2>&-", 2),
        ("run affine.onnx --random --size n=2 <&- >&-", 0),
    ],
)
def test_a_closed_stream_leads_nowhere(words: str, code: int, tmp_path: Path) -> None:
    """And no file that the command opens gets what was to be printed."""
    before = save_affine(tmp_path).read_bytes()
    found, out, _ = shell(words, tmp_path)
    assert (found, out) == (code, "")
    assert (tmp_path / "affine.onnx").read_bytes() == before
    assert (tmp_path / "out.npz").exists() == ("out.npz" in words)
    assert not (tmp_path / "out.npz").exists() or (tmp_path / "out.npz").read_bytes().startswith(b"PK")


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ("show affine.onnx --after llvm | true; exit ${PIPESTATUS[0]}", {UNREAD}),
        ("run none.onnx 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}", {2}),
        ("run affine.onnx --random 2>&1 | true; exit ${PIPESTATUS[0]}", {UNREAD}),
        ("show affine.onnx --after llvm | head -1 | wc -l", {0}),
    ],
)
def test_a_reader_that_has_gone(words: str, codes: set[int], tmp_path: Path) -> None:
    found, _, err = shell(words, tmp_path)
    assert found in codes and err == ""


@full
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("run affine.onnx --random --size n=2 >/dev/full", 3),
        ("show affine.onnx --after llvm >/dev/full", 3),
        ("--version >/dev/full", 3),
    ],
)
def test_output_that_does_not_fit_is_told_of(words: str, code: int, tmp_path: Path) -> None:
    found, _, err = shell(words, tmp_path)
    assert found == code
    assert err == "cannot write the output\nwhy:  No space left on device\nfix:  send it elsewhere, or make room\n"


@full
def test_an_error_that_cannot_be_told_keeps_its_code(tmp_path: Path) -> None:
    assert shell("run none.onnx 2>/dev/full", tmp_path) == (2, "", "")
