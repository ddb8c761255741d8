"""What `make bench-memory` says: figures of processes, and which of them are over their bars."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from benchmarks.memory import MIB, Measured, measure, report_memory
from benchmarks.network_models import NETWORKS
from benchmarks.network_race import Prepared

GOOD = Measured(
    "net",
    100 * MIB,
    {"peak": 300 * MIB, "workers": 200 * MIB, "kept": 200 * MIB, "private": MIB, "arena": 105, "bound": 100},
    {"peak": 250 * MIB},
)


def test_a_row_says_what_is_over_its_bar() -> None:
    assert verdicts(GOOD) == ["ok", "ok", "ok"]
    assert verdicts(replace(GOOD, compiled={**GOOD.compiled, "arena": 106})) == ["over", "ok", "ok"]
    assert verdicts(replace(GOOD, compiled={**GOOD.compiled, "workers": 201 * MIB})) == ["ok", "over", "ok"]
    assert verdicts(replace(GOOD, run={"peak": 251 * MIB})) == ["ok", "ok", "over"]


def verdicts(one: Measured) -> list[str]:
    (row,) = report_memory([one]).rows
    return [cell for cell in row if cell in ("ok", "over")]


def test_processes_are_measured(tmp_path: Path) -> None:
    """A small network: what it holds is mostly Python and the compiler."""
    graph = next(network for network in NETWORKS if network.name == "MLP").build_tiny()
    prepared = Prepared("MLP", tmp_path / "mlp.onnx", tmp_path / "mlp.npz", graph.flops)
    onnx.save(graph.model(), prepared.model)
    np.savez(prepared.feeds, **graph.feeds)  # type: ignore[arg-type]
    found = measure(prepared, 4 * graph.parameters, tmp_path / "store")
    assert 20 * MIB < found.run["kept"] <= found.run["peak"] < found.compiled["peak"] < 400 * MIB
    assert 0 < found.compiled["bound"] <= found.compiled["arena"] <= 1.05 * found.compiled["bound"]
