"""torch.compile with this backend, with Inductor, and eager PyTorch: networks of torch.nn, inferred and trained.

    python -m benchmarks.torch_speed [--only REGEX] [--threads N,N] [--rounds N] [--quick] [--used] [--json]
                                     [--write PAGE]

In steady state the engines take turns in one process, and their results are compared first. The first call, with all
that is compiled for it, is timed in a fresh process with empty caches, the second start in another one with the caches
that the first left. With `--used` each engine has compiled a small network before, a training step of which it finds
in its caches: what it keeps for a machine, rates or compiled headers, is there. The memory of a training step is what
it has allocated at most, counted, which needs a C compiler. `--quick` has the steady state alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.allocated import counted
from benchmarks.command import deliver, page_command
from benchmarks.contest import numbers
from benchmarks.failures import Failures, exit_on_failures
from benchmarks.report import Report
from benchmarks.timing import Samples, compare
from benchmarks.torch_models import CASES
from benchmarks.torch_worker import ENGINES
from tilewright.report.progress import progress

TASKS = ("inference", "training")
MIB = 1 << 20
SMALL = "MLP"
ROUNDS, QUICK_ROUNDS = 12, 4


@dataclass(slots=True)
class Found:
    """What was measured of a task of a network with so many threads: seconds of each engine in turns; seconds to the
    first result by engine, of a first and of a second process; bytes of a step by engine."""

    network: str
    task: str
    threads: int
    taken: Mapping[str, Samples]
    first: dict[str, tuple[float, float]] = field(default_factory=dict)
    step: dict[str, int] = field(default_factory=dict)


def ask(measure: str, network: str, task: str, threads: int, last: object, caches: str = "", **variables: str) -> Any:
    """What a process of the worker says, with these variables in its environment. RuntimeError where it fails."""
    command = [sys.executable, "-m", "benchmarks.torch_worker", measure, network, task, str(threads), str(last)]
    environment = {**os.environ, "TILEWRIGHT_NUM_THREADS": str(threads), **variables}
    if caches:
        environment |= {"TILEWRIGHT_STORE": f"{caches}/store", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
        environment["TMPDIR"] = caches  # where Inductor keeps the headers that it compiles, whatever its cache
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def measure(network: str, task: str, threads: int, rounds: int, whole: bool, used: bool) -> Found:
    """One row. RuntimeError where a process fails."""
    taken = ask("race", network, task, threads, rounds)
    found = Found(network, task, threads, {engine: Samples(tuple(taken[engine])) for engine in ENGINES})
    for engine in ENGINES[:2] if whole else ():
        with tempfile.TemporaryDirectory(prefix="caches-") as caches:
            if used:
                ask("first", SMALL, "training", threads, engine, caches)
            starts = [ask("first", network, task, threads, engine, caches)["seconds"] for _ in range(2)]
        found.first[engine] = (starts[0], starts[1])
    if whole and task == "training":
        with counted() as variables:
            for engine in ENGINES:
                found.step[engine] = ask("memory", network, task, threads, engine, **variables)["bytes"]
    return found


def report_speed(found: Sequence[Found]) -> Report:
    """A row for each network, task and number of threads."""
    heads = ("network", "task", "threads", "ours, ms", "eager / ours", "Inductor / ours")
    heads += ("first call, s", "Inductor", "second process, s", "Inductor", "step, MiB", "Inductor", "eager")
    report = Report("torch", "torch.compile: networks of torch.nn", heads)
    for one in found:
        ratios = {engine: compare(one.taken[engine], one.taken["tilewright"]) for engine in ("eager", "inductor")}
        cells = [one.network, one.task, str(one.threads), f"{1e3 * one.taken['tilewright'].best:.2f}"]
        cells += [f"{ratio.best:.2f}" for ratio in ratios.values()]
        for n in range(2):
            cells += [f"{one.first[engine][n]:.1f}" if one.first else "-" for engine in ENGINES[:2]]
        cells += [f"{one.step[engine] / MIB:.1f}" if one.step else "-" for engine in ENGINES]
        data: dict[str, Any] = {"network": one.network, "task": one.task, "threads": one.threads}
        data |= {engine: samples.record() for engine, samples in one.taken.items()}
        report.add(cells, data | {"first_seconds": one.first, "step_bytes": one.step})
    report.note = (
        "ratios of the best times: above 1, ours is faster; step: what a training step takes beside weights, gradients "
        "and the optimizer's state"
    )
    return report


def report_calls(taken: Mapping[tuple[str, int], Mapping[str, Any]]) -> Report:
    """A row for each network and number of threads: what a call costs that has as many parameters."""
    heads = ("network", "threads", "parameters", *(f"{engine}, µs" for engine in ENGINES))
    report = Report("torch_calls", "Calls with next to nothing to compute", heads)
    for (network, threads), found in taken.items():
        samples = {engine: Samples(tuple(found[engine])) for engine in ENGINES}
        cells = [network, str(threads), str(found["parameters"])]
        cells += [f"{1e6 * samples[engine].best:.1f}" for engine in ENGINES]
        data: dict[str, Any] = {"network": network, "threads": threads, "parameters": found["parameters"]}
        report.add(cells, data | {engine: s.record() for engine, s in samples.items()})
    return report


def report_between(taken: Mapping[tuple[str, int], Mapping[str, Any]]) -> Report:
    """A row for each network and number of threads: what an eager operator takes between calls."""
    heads = ("network", "threads", "alone, ms", "between eager calls", "between compiled calls", "compiled / eager")
    report = Report("torch_between", "An eager product between calls of a network", heads)
    for (network, threads), found in taken.items():
        samples = {name: Samples(tuple(seconds)) for name, seconds in found.items()}
        ratio = compare(samples["tilewright"], samples["eager"]).best
        times = [f"{1e3 * samples[name].best:.3f}" for name in ("alone", "eager", "tilewright")]
        data: dict[str, Any] = {"network": network, "threads": threads}
        data |= {name: s.record() for name, s in samples.items()}
        report.add([network, str(threads), *times, f"{ratio:.2f}"], data)
    report.note = "1.05 and less: the two pools of threads do not fight"
    return report


def measure_all(
    only: Sequence[str], threads: Sequence[int], rounds: int, whole: bool, used: bool = False
) -> list[Report]:
    """All reports that have a row, failures last."""
    found: list[Found] = []
    calls: dict[tuple[str, int], Mapping[str, Any]] = {}
    between: dict[tuple[str, int], Mapping[str, Any]] = {}
    failures = Failures()
    with progress("measuring", len(only) * len(threads) * len(TASKS)) as step:
        for network in only:
            for count in threads:
                for task in TASKS:
                    try:
                        found.append(measure(network, task, count, rounds, whole, used))
                        if task == TASKS[0]:
                            calls[network, count] = ask("call", network, task, count, rounds)
                            between[network, count] = ask("between", network, task, count, rounds)
                    except RuntimeError as error:
                        failures.cases.append((f"{network} {task}", str(error)))
                    step(f"{network} {task}")
    reports = [report_speed(found), report_calls(calls), report_between(between), *failures.reports("network")]
    return [report for report in reports if report.rows]


def main() -> None:
    """Measures, prints."""
    parser = page_command("torch_speed", __doc__, "networks", quick="fewer rounds, and the steady state alone")
    parser.add_argument("--threads", type=numbers, default=(1,), metavar="N,N", help="numbers of threads")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each engine in each race")
    parser.add_argument("--used", action="store_true", help="first calls of engines that have compiled another network")
    asked = parser.parse_args()
    rounds = asked.rounds or (QUICK_ROUNDS if asked.quick else ROUNDS)
    chosen = [case.name for case in CASES if re.search(asked.only, case.name)]
    reports = measure_all(chosen, asked.threads, rounds, not asked.quick, asked.used)
    deliver(asked, "torch", reports)
    exit_on_failures(reports)


if __name__ == "__main__":
    main()
