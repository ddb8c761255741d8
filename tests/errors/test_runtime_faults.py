"""Bad values at run time: a fault that names the node, or a defined result; and the executable works afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from compiled_models import FLOAT, INT64, model
from onnx import helper

import tilewright as tw
from tilewright.report.errors import RuntimeFault

HERE = Path(__file__).parent
GOLDEN = HERE / "runtime_faults.txt"


def test_every_bad_value_is_a_fault_or_has_a_defined_result() -> None:
    """One process for all, with 256 MiB of address space beside what it starts with."""
    source = str(Path(tw.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(HERE)]), "TILEWRIGHT_MEMORY_LIMIT": "128M"}
    ran = subprocess.run(
        [sys.executable, str(HERE / "fault_cases.py")], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, f"ended with {ran.returncode} after\n{ran.stdout[-300:]}\n{ran.stderr[-2000:]}"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(ran.stdout)
    assert ran.stdout.splitlines() == GOLDEN.read_text().splitlines()


def test_faults_name_the_node() -> None:
    for line in GOLDEN.read_text().splitlines():
        case, _, outcome = line.partition(" => ")
        family = outcome.split()[0]
        assert family in ("gives", "RuntimeFault:", "UserError:"), line
        general = ("needs more memory" in outcome, "the inputs are too small" in outcome, case == "view")
        assert family == "gives" or " 'it'" in outcome or any(general), line


def test_an_executable_works_after_faults_in_every_thread() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["h"]), helper.make_node("Gather", ["h", "i"], ["y"], name="pick")]
    exe = tw.compile(model(nodes, {"x": (FLOAT, ["n", 3]), "i": (INT64, ["k"])}))
    wrong: list[str] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).random((5 + seed, 3), np.float32)
        for turn in range(50):
            index = np.arange(turn % 5)
            if turn % 2:
                index = np.append(index, 5 + seed)
            try:
                (y,) = exe(x, index)
                np.testing.assert_allclose(y, np.exp(x)[index], rtol=1e-5)
                if turn % 2:
                    wrong.append(f"turn {turn} went through")
            except RuntimeFault as fault:
                limit = 5 + seed
                expected = f"Gather 'pick' along axis 0: index {limit} is outside [-{limit}, {limit})"
                if not turn % 2 or str(fault) != expected:
                    wrong.append(str(fault))
            except AssertionError as error:
                wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_memory_limit_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MEMORY_LIMIT", "64K")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("ReduceMax", ["h"], ["y"], keepdims=0)]
    exe = tw.compile(model(nodes, {"x": (FLOAT, ["n", 4]), "w": (FLOAT, [4, 64])}))
    assert exe(np.ones((2, 4), np.float32), np.ones((4, 64), np.float32))[0] == 4
    with pytest.raises(RuntimeFault) as caught:
        exe(np.ones((1000, 4), np.float32), np.ones((4, 64), np.float32))
    lines = str(caught.value).split("\n")
    assert lines[0] == "the call needs more memory than it may take"
    assert lines[1].startswith("why:  its buffers take ") and lines[1].endswith("and the limit is 65,536")
    assert lines[2] == "fix:  call it with smaller inputs, or set TILEWRIGHT_MEMORY_LIMIT"
    assert exe(np.ones((3, 4), np.float32), np.ones((4, 64), np.float32))[0] == 4
