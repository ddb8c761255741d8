"""Memory of the nine networks: the arena and its bound, and what a process holds that compiles or runs one.

    python -m benchmarks.memory [--only REGEX] [--quick] [--json] [--models DIR] [--write PAGE]

Each network is compiled by a fresh process into an empty store, then run by another one from there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import add_models, deliver, page_command
from benchmarks.contest import Options
from benchmarks.failures import exit_on_failures
from benchmarks.network_models.builder import Graph
from benchmarks.network_race import Prepared, Run, each_network
from benchmarks.networks import chosen_networks
from benchmarks.report import Report

MIB = 1 << 20
NUMBER_BYTES = 4
ARENA_BAR = 1.05
"""How many times its bound an arena may have."""
RUN_BAR = 150 * MIB
"""What a process that runs a network may hold beside weights and arena."""
COMPILE_BAR = 300 * MIB
"""What processes that compile it may hold beside two times the weights."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A network: bytes of its weights, and the figures of the processes that compiled and ran it."""

    name: str
    weights: int
    compiled: Mapping[str, int]
    run: Mapping[str, int]

    @property
    def ratio(self) -> float:
        """The arena over its bound."""
        return self.compiled["arena"] / self.compiled["bound"] if self.compiled["bound"] else 1.0

    @property
    def compile_peak(self) -> int:
        """The peak of the process that compiles, and those of all that it started."""
        return self.compiled["peak"] + self.compiled["workers"]

    @property
    def compile_bar(self) -> int:
        return 2 * self.weights + COMPILE_BAR

    @property
    def run_bar(self) -> int:
        return self.weights + self.compiled["arena"] + RUN_BAR

    @property
    def is_within(self) -> tuple[bool, bool, bool]:
        """Whether the arena, compiling and running keep to their bars."""
        return self.ratio <= ARENA_BAR, self.compile_peak <= self.compile_bar, self.run["peak"] <= self.run_bar


def measure(prepared: Prepared, weights: int, store: Path) -> Measured:
    """The network, compiled and run by a process each. RuntimeError where one fails."""
    compiled, run = (_ask(task, prepared, store) for task in ("compile", "run"))
    return Measured(prepared.name, weights, compiled, run)


def _ask(task: str, prepared: Prepared, store: Path) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.memory_worker", task, str(prepared.model), str(prepared.feeds)]
    environment = {**os.environ, "TILEWRIGHT_STORE": str(store)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{task}: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
    found: dict[str, int] = json.loads(done.stdout)
    return found


def report_memory(measured: Sequence[Measured]) -> Report:
    """A row for each network."""
    heads = ("network", "weights", "arena", "bound", "ratio", f"≤ {ARENA_BAR}")
    heads += ("compile", "workers", "bar", "", "run", "bar", "", "kept", "private")
    report = Report("memory", "Memory of networks, in MiB", heads)
    for one in measured:
        report.add(*describe(one))
    report.note = (
        "compile, run: the most that was resident in the process, pages of mapped files and libraries among them; "
        "workers: the same of the processes that it started, which the bar counts with it; kept: what is resident "
        "after compiling, private: the part of it that no file holds"
    )
    return report


def describe(one: Measured) -> tuple[list[str], dict[str, object]]:
    """A row, and what it says as data."""
    arena, compiling, running = ("ok" if good else "over" for good in one.is_within)
    cells = [one.name, _mib(one.weights), *(f"{one.compiled[name] / MIB:.2f}" for name in ("arena", "bound"))]
    cells += [f"{one.ratio:.3f}", arena, *(_mib(one.compiled[name]) for name in ("peak", "workers"))]
    cells += [f"≤ {_mib(one.compile_bar)}", compiling, _mib(one.run["peak"]), f"≤ {_mib(one.run_bar)}", running]
    cells += [_mib(one.compiled[name]) for name in ("kept", "private")]
    data: dict[str, object] = {"network": one.name, "weights": one.weights, "ratio": one.ratio}
    return cells, data | {"compile": dict(one.compiled), "run": dict(one.run)}


def _mib(size: int) -> str:
    return f"{size / MIB:.0f}"


def measure_all(options: Options, models: Path | None) -> list[Report]:
    """All reports that have a row, failures last."""
    measured: list[Measured] = []

    def one(run: Run, prepared: Prepared, graph: Graph) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="store-", dir=run.scratch) as store:
                measured.append(measure(prepared, NUMBER_BYTES * graph.parameters, Path(store)))
        except RuntimeError as error:
            run.failures.cases.append((prepared.name, str(error)))

    run = each_network(options, models, chosen_networks(options), one)
    return [report for report in (report_memory(measured), *run.failures.reports("network")) if report.rows]


def main() -> None:
    """Measures, prints."""
    parser = page_command("memory", __doc__, "networks", quick="the small networks, for a first look")
    add_models(parser)
    asked = parser.parse_args()
    reports = measure_all(Options(only=asked.only, quick=asked.quick), asked.models)
    deliver(asked, "memory", reports)
    exit_on_failures(reports)


if __name__ == "__main__":
    main()
