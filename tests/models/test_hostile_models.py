"""A slice of the models with extreme integers that `make fuzz-attributes` draws, and what its harness notices."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import hostile_runs
import pytest
from hostile_models import draw

COUNT = 110
HERE = Path(__file__).parent


def test_an_error_or_a_right_result() -> None:
    found = hostile_runs.run_chunk(0, COUNT)
    defects = [(seed, text) for seed, kind, text in found if kind == "defect"]
    assert not defects, "python tests/models/hostile_runs.py --show NUMBER draws it again"
    kinds = Counter(kind for _, kind, _ in found)
    assert sum(kinds.values()) == COUNT
    assert min(kinds[kind] for kind in ("refused", "fault", "result")) >= COUNT // 20, kinds


def test_a_case_is_the_same_each_time() -> None:
    one, two = draw(7), draw(7)
    assert one.model == two.model and all((a == two.feeds[name]).all() for name, a in one.feeds.items())
    assert len({draw(seed).kind for seed in range(300)}) > 50


@pytest.mark.parametrize(("at_end", "place"), [(True, "8"), (False, "-1")])
def test_reading_beside_a_guarded_array_ends_the_process(at_end: bool, place: str) -> None:
    program = (
        "import ctypes, numpy as np, hostile_runs\n"
        f"a = hostile_runs.Guarded().copy(np.arange(8.0), {at_end})\n"
        "assert a.sum() == 28\n"
        "print('here', flush=True)\n"
        f"ctypes.c_double.from_address(a.ctypes.data + 8 * {place}).value\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=HERE)
    assert ran.stdout == "here\n"
    assert ran.returncode < 0


def test_a_crash_and_a_hang_are_defects_of_their_case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker that dies at one case and hangs at another: the others still run."""
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import os, sys, hostile_runs\n"
        "hostile_runs.SECONDS = 1\n"
        "def outcome(seed):\n"
        "    if seed == 2: os.abort()\n"
        "    while seed == 4: pass\n"
        "    return 'result', ''\n"
        "hostile_runs.outcome = outcome\n"
        "hostile_runs.work(int(sys.argv[2]), int(sys.argv[3]))\n"
    )
    monkeypatch.setattr(hostile_runs, "__file__", str(worker))
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=":")
    found = hostile_runs.run_chunk(0, 6)
    assert [(seed, kind) for seed, kind, _ in found] == [
        (0, "result"), (1, "result"), (2, "defect"), (3, "result"), (4, "defect"), (5, "result")
    ]  # fmt: skip
    assert "ends the process with -6" in found[2][2] and "runs on" in found[4][2]
