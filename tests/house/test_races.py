"""Processes compile one model at once with one store, and are killed at random: results are right, entries are whole.

One round here; `make stress` makes twenty.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli_models import invoke, save_affine
from tilewright.store import Store

ROOT = Path(__file__).parents[2]
PROCESSES, KILLED = 8, 3
PROGRAM = """
import numpy as np, tilewright as tw
(y,) = tw.compile("affine.onnx")(np.ones((2, 3), np.float32), np.full(3, 4, np.float32))
print(y.tolist())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_affine(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    return tmp_path


def test_processes_that_compile_at_once_and_die(folder: Path, request: pytest.FixtureRequest) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    choose = random.Random(0)
    long = float(request.config.getoption("stress_seconds")) > 2
    for _ in range(20 if long else 1):
        Store.default().clear()
        running = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
            )
            for _ in range(PROCESSES)
        ]
        for victim in choose.sample(running, KILLED):
            time.sleep(choose.random())
            victim.send_signal(signal.SIGKILL)
        for process in running:
            out, _ = process.communicate(timeout=120)
            assert process.returncode in (0, -signal.SIGKILL)
            if process.returncode == 0:
                assert json.loads(out) == [[5.0] * 3] * 2
        assert Store.default().verify().damaged == {}
        assert invoke("cache", "verify").code == 0
        assert all(path.suffix == ".entry" for path in (folder / "store").iterdir())
