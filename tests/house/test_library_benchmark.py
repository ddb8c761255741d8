"""What `make bench-library` says of libraries that were loaded and called."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.library_start import MIB, SMALL, Measured, report_calls, report_making, report_start

from libraries import linux, needs_cc


def test_a_row_has_what_goes_beyond_a_call_and_its_bar() -> None:
    def run(first: float, peak: int) -> dict[str, object]:
        return {"load": 0.001, "first": first, "calls": [0.02, 0.01], "faults": 7, "arena": 2 * MIB, "peak": peak * MIB}

    good = Measured("MLP", 30 * MIB, [run(0.02, 33), run(0.039, 34)], [0.004, 0.003])
    bad = Measured("LSTM", 30 * MIB, [run(0.06, 33), run(0.05, 43)], [0.004])
    figures = [row[5:] for row in report_start([good, bad]).rows]
    assert figures == [
        ("11.0", "30.0", "ok", "48%", "7", "2.0", "ok"),
        ("41.0", "51.0", "OVER", "20%", "7", "11.0", "OVER"),
    ]


def test_making_is_judged_by_what_it_takes_beyond_a_copy_or_compiling() -> None:
    good, bad = (Measured("MLP", MIB, [], [], made, [0.03, 0.02]) for made in ([0.06, 0.05, 0.09], [0.09, 0.08]))
    both = Measured("MLP", MIB, [], [], [0.05], [0.02], [2.0, 2.1, 2.2], [2.2, 2.2, 2.3], [2.02, 2.15, 2.151])
    assert [row[2:] for row in report_making([good, bad, both]).rows] == [
        ("50", "60", "20", "25", "30", "35", "ok"),
        ("80", "85", "20", "25", "60", "60", "OVER"),
        ("50", "50", "20", "20", "30", "30", "ok"),
        ("2020", "2150", "2000", "2100", "20", "50", "ok"),
        ("2020", "2150", "2200", "2200", "-180", "-50", "ok"),
    ]


@linux
@needs_cc
def test_calls_of_small_programs_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.library_start.SMALL_CALLS", 100)
    report = report_calls(tmp_path, 2)
    assert [row["program"] for row in report.data] == list(SMALL)
    assert all(0 < seconds < 1e-3 for row in report.data for seconds in row["seconds"])
