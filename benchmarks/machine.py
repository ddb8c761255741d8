"""How long measuring this machine takes, and how far its figures differ from one process to the next.

    python -m benchmarks.machine [--rounds N] [--json]

Each round starts a fresh Python with an empty store, uses LLVM once, and measures: the seconds are those that a first
compilation waits for. On a machine that does something else, too, look at the processor's seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.report import Report, judge, show

BAR = 0.4
"""Seconds that measuring may take."""

PROGRAM = """
import json, time
import llvmlite.binding as llvm
from tilewright.runtime.machine import measured
from tilewright.target import native
machine = native().create_machine(jit=True)
llvm.create_mcjit_compiler(llvm.parse_assembly("define void @f() { ret void }"), machine).finalize_object()
start, used = time.perf_counter(), time.process_time()
target = measured(native())
seconds = [time.perf_counter() - start, time.process_time() - used]
doubted = sorted(name for name, text in target.origins if text != "measured")
print(json.dumps({"seconds": seconds, "figures": target.figures(), "doubted": doubted}))
"""


@dataclass(frozen=True, slots=True)
class Round:
    """What a process found: seconds it waited and worked, all figures, and those that were not believed or measured."""

    seconds: tuple[float, float]
    figures: Mapping[str, float]
    doubted: frozenset[str]


def measure() -> Round:
    """Measures in a fresh process with an empty store. CalledProcessError where it fails."""
    with tempfile.TemporaryDirectory() as store:
        environment = {**os.environ, "TILEWRIGHT_STORE": store, "TILEWRIGHT_CALIBRATE": "1"}
        environment.pop("TILEWRIGHT_MACHINE", None)
        run = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    waited, worked = found["seconds"]
    return Round((waited, worked), found["figures"], frozenset(found["doubted"]))


def report_machine(rounds: Sequence[Round]) -> Report:
    """The seconds beside their bar, then each figure, and in how many rounds it was an estimate."""
    report = Report("machine", "Measuring this machine", ("figure", "median", "least", "most", ""))
    for n, name in enumerate(("seconds", "processor's seconds")):
        seconds = [found.seconds[n] for found in rounds]
        middle = statistics.median(seconds)
        cells = [f"{x:.3f}" for x in (middle, min(seconds), max(seconds))]
        report.add((name, *cells, judge(middle, BAR)), {"figure": name, "values": seconds})
    for name in rounds[0].figures:
        values = [found.figures[name] for found in rounds]
        doubts = sum(name in found.doubted for found in rounds)
        cells = [f"{x:.3g}" for x in (statistics.median(values), min(values), max(values))]
        row = {"figure": name, "values": values, "estimates": doubts}
        report.add((name, *cells, f"an estimate in {doubts} of {len(rounds)}" if doubts else ""), row)
    report.note = f"bar: {BAR} s; on a busy machine the processor's seconds tell"
    return report


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machine", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="processes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    show([report_machine([measure() for _ in range(asked.rounds)])], asked.json)


if __name__ == "__main__":
    main()
