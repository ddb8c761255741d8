"""From the start of a process to the first result of a network: from the store, from a compiled file, and with ONNX
Runtime.

    python -m benchmarks.start [--only REGEX] [--rounds N] [--json] [--models DIR] [--write PAGE]

Each round starts a fresh Python for each way; the time begins before it starts and ends with its first result, so that
imports are in it. The machine's file cache is warm.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import tilewright as tw
from benchmarks.command import add_models, deliver, page_command
from benchmarks.contest import Options
from benchmarks.network_models.builder import Graph
from benchmarks.network_race import Prepared, Run, each_network
from benchmarks.networks import chosen_networks
from benchmarks.report import Report, judge

FEEDS = """
import numpy, time
with numpy.load({feeds!r}) as file:
    feeds = dict(file)
"""
STORE = "import tilewright\nrun = tilewright.compile({model!r}).run"
FILE = "import tilewright\nrun = tilewright.load({file!r}).run"
PEER = """
import onnxruntime
onnxruntime.set_default_logger_severity(3)
session = onnxruntime.InferenceSession({model!r}, providers=["CPUExecutionProvider"])
run = lambda feeds: session.run(None, feeds)
"""
FIRST = "\nrun(feeds)\nprint(time.time())"
BARS = {"store": 0.6, "compiled file": 0.4}
"""Seconds that BERT-base may take."""
WAYS = {"store": STORE + FEEDS + FIRST, "compiled file": FILE + FEEDS + FIRST, "ONNX Runtime": PEER + FEEDS + FIRST}


def measure(prepared: Prepared, folder: Path, rounds: int) -> dict[str, list[float]]:
    """The seconds of each way in each round. CalledProcessError where one fails."""
    file = folder / "model.tw"
    os.environ["TILEWRIGHT_STORE"] = str(folder / "store")
    tw.compile(str(prepared.model)).save(file)
    given = {"model": str(prepared.model), "feeds": str(prepared.feeds), "file": str(file)}
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, code in WAYS.items():
            began = time.time()
            done = subprocess.run(
                [sys.executable, "-c", code.format(**given)], capture_output=True, text=True, check=True
            )
            found[way].append(float(done.stdout.split()[-1]) - began)
    return found


def report_start(measured: Mapping[str, Mapping[str, list[float]]]) -> Report:
    """A row for each network and way."""
    report = Report("start", "To the first result, in seconds", ("network", "from", "best", "median", "bar", ""))
    for network, ways in measured.items():
        for way, seconds in ways.items():
            best, median = min(seconds), sorted(seconds)[len(seconds) // 2]
            bar = BARS.get(way) if network == "BERT-base" else None
            judged = ("", "") if bar is None else (f"≤ {bar}", judge(median, bar))
            row = {"network": network, "from": way, "seconds": seconds}
            report.add((network, way, f"{best:.2f}", f"{median:.2f}", *judged), row)
    report.note = "from the start of a fresh process, imports included, files in the system's cache"
    return report


def main() -> None:
    """Measures, prints."""
    parser = page_command("start", __doc__, "networks")
    parser.set_defaults(only="BERT")
    add_models(parser)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="processes for each way")
    asked = parser.parse_args()
    options = Options(only=asked.only)
    measured: dict[str, dict[str, list[float]]] = {}

    def one(run: Run, prepared: Prepared, _: Graph) -> None:
        measured[prepared.name] = measure(prepared, run.scratch, asked.rounds)

    each_network(options, asked.models, chosen_networks(options), one)
    deliver(asked, "start", [report_start(measured)])


if __name__ == "__main__":
    main()
