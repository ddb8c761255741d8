"""What starting work takes: measured by the runtime, kept beside what the target measures, put in for compilations."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

import tilewright as tw
from cli_models import invoke, save_affine
from tilewright.artifact.stored import Stored
from tilewright.core.switches import Switches
from tilewright.runtime.machine import STARTS, measured
from tilewright.runtime.starts import measure_starts
from tilewright.target import Target, calibrate, native
from tilewright.target.host import current_host

PAIRS = "x86.avx512bf16.dot_bf16"


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(calibrate, "_measured", {})
    return tmp_path / "store"


def test_starts_are_measured() -> None:
    """All that one thread can measure; of two, what they can while the machine lets both run."""
    found = measure_starts(native(), current_host())
    starts = {"call_seconds", "fork_seconds", "wake_seconds"}
    assert set(found) == (starts if min(native().cores, current_host().cores) > 1 else {"call_seconds"})
    settled = {name: seconds for name, seconds in found.items() if seconds is not None}
    assert all(math.isfinite(seconds) and seconds > 1e-8 for seconds in settled.values())
    assert settled.get("call_seconds", 0.0) < 1e-3


def test_one_core_has_no_loops_to_fork() -> None:
    alone = dataclasses.replace(native(), cores=1)
    assert set(measure_starts(alone, current_host())) == {"call_seconds"}


def test_what_was_measured_before_is_not_measured_with_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CALIBRATE", "1")
    calls: list[str] = []

    def core(target: Target, host: object) -> dict[str, float]:
        calls.append("machine")
        return {"gather_cycles": target.core.gather_cycles + 1}

    def starts(target: Target, host: object) -> dict[str, float]:
        calls.append("starts")
        return {"call_seconds": target.core.call_seconds * 2}

    monkeypatch.setattr("tilewright.target.measure.measure", core)
    monkeypatch.setattr("tilewright.runtime.starts.measure_starts", starts)
    assert calibrate.measured(native()).origin("call_seconds") == "estimate"
    found = measured(native())
    assert calls == ["machine", "starts"]
    assert found.core.call_seconds == pytest.approx(2 * native().core.call_seconds)
    assert found.core.gather_cycles == native().core.gather_cycles + 1
    calibrate._measured.clear()
    assert measured(native()) == found and len(calls) == 2
    assert STARTS.name == "starts" and found.origin("kernel_seconds") == "estimate"


def test_compile_measures_and_doctor_shows_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CALIBRATE", "1")
    monkeypatch.setattr("tilewright.target.measure.measure", lambda target, host: {"gather_cycles": 17.25})
    monkeypatch.setattr("tilewright.runtime.starts.measure_starts", lambda target, host: {"call_seconds": 9.0})
    executable = tw.compile(save_affine(tmp_path))
    assert executable.program.target == measured(native())
    assert executable.program.target.core.gather_cycles == 17.0
    out = invoke("doctor").out
    assert "gather_cycles" in out and "17  cycles  measured" in out
    assert "estimate: measured 9, but the estimate is 3e-06" in out
    record = json.loads(invoke("doctor", "--json").out)
    assert record["machine"] == measured(native()).rates
    assert record["target"]["origins"]["gather_cycles"] == "measured"
    assert json.loads(invoke("doctor", "--no-calibrate", "--json").out)["machine"] == native().rates


def test_rates_put_in_by_hand_are_kept_by_programs_files_and_the_store(tmp_path: Path) -> None:
    model = save_affine(tmp_path)
    mine = native().with_core(gather_cycles=123.0, kernel_seconds=5e-6).with_peaks(memory_gbs=3.0)
    executable = tw.compile(model, target=mine)
    assert executable.program.target == mine and executable.program.target.origin("gather_cycles") == "given"
    executable.save(tmp_path / "model.tw")
    assert tw.load(tmp_path / "model.tw").program.target == mine
    keys = {Stored.of_file(model, target, Switches(), {}).key for target in (native(), mine)}
    assert len(keys) == 2
    assert tw.compile(model, target=mine).cached and not tw.compile(model).cached


def test_a_file_of_rates_is_what_compile_goes_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = json.loads(invoke("doctor", "--no-calibrate", "--json").out)
    record["machine"]["core"]["gather_cycles"] = 321.0
    (tmp_path / "machine.json").write_text(json.dumps(record))
    monkeypatch.setenv("TILEWRIGHT_MACHINE", str(tmp_path / "machine.json"))
    assert tw.compile(save_affine(tmp_path)).program.target == native().with_core(gather_cycles=321.0)
    (tmp_path / "machine.json").write_text("{")
    outcome = invoke("doctor", "--json")
    assert outcome.code == 1
    (problem,) = json.loads(outcome.out)["problems"]
    assert problem.startswith("cannot use TILEWRIGHT_MACHINE=") and "it is no JSON" in problem
