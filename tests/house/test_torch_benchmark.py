"""The tables of `make bench-torch`, of figures that are given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from benchmarks.allocated import counted
from benchmarks.timing import Samples
from benchmarks.torch_models import CASES
from benchmarks.torch_speed import Found, report_between, report_calls, report_speed

TAKEN = {"tilewright": Samples((0.002, 0.003)), "inductor": Samples((0.003, 0.004)), "eager": Samples((0.005, 0.005))}


def test_a_row_has_ratios_starts_and_memory() -> None:
    whole = Found("ViT", "training", 1, TAKEN, {"tilewright": (9.0, 8.0), "inductor": (30.0, 5.0)})
    whole.step = {"tilewright": 3 << 20, "inductor": 2 << 20, "eager": 1 << 20}
    quick = Found("ViT", "inference", 2, TAKEN)
    report = report_speed([whole, quick])
    first, second = report.rows
    assert first[:5] == ("ViT", "training", "1", "2.00", "2.50")
    assert first[5:] == ("1.50", "9.0", "30.0", "8.0", "5.0", "3.0", "2.0", "1.0")
    assert second[6:] == ("-",) * 7
    assert {len(row) for row in report.rows} == {len(report.heads)}


def test_calls_are_told_in_microseconds() -> None:
    taken = {engine: samples.seconds for engine, samples in TAKEN.items()}
    report = report_calls({("MLP", 1): {"parameters": 6, **taken}})
    assert report.rows == [("MLP", "1", "6", "2000.0", "3000.0", "5000.0")]


def test_eager_operators_between_calls_are_compared_with_those_between_eager_calls() -> None:
    report = report_between({("MLP", 2): {"alone": [0.002], "eager": [0.0021, 0.0020], "tilewright": [0.0022, 0.0021]}})
    assert report.rows == [("MLP", "2", "2.000", "2.000", "2.100", "1.05")]


def test_what_a_process_allocates_is_counted_to_the_byte() -> None:
    if shutil.which("cc") is None or sys.platform != "linux":
        pytest.skip("it needs a C compiler")
    program = """
import numpy as np
from benchmarks.allocated import Peak
kept = np.ones(1 << 20, np.uint8)
with Peak() as peak:
    del kept
    for size in (3 << 20, 5 << 20, 2 << 20):
        np.ones(size, np.uint8)
print(peak.bytes)
"""
    with counted() as variables:
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True, text=True, check=True
        )
    assert 0 <= int(done.stdout) - (4 << 20) < 1 << 16


def test_names_of_networks_differ() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
