"""Libraries: how long making one takes, and, in processes without Python, from `dlopen` to the first result, the memory
that is resident, and what a call costs.

    python -m benchmarks.library_start [--only REGEX] [--rounds N] [--json] [--models DIR] [--write PAGE]

A C program loads the library of a network, calls it once, then again and again; each round is a fresh process, and
files are in the system's cache. Beyond a call is what loading and the first call take over the best call. Making is
compared with a copy of the file that is made, on the disk when it ends; and compiling to a library, as the command
does, with compiling alone and with compiling to a file for `tilewright.load`, all with nothing in the store. It needs a
C compiler.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.command import add_models, deliver, page_command
from benchmarks.contest import Options, percent
from benchmarks.memory import MIB
from benchmarks.network_models.builder import Graph
from benchmarks.network_race import Prepared, Run, each_network
from benchmarks.networks import chosen_networks
from benchmarks.report import Report, judge
from tilewright.cli.library import Library
from tilewright.cli.model import compile_model
from tilewright.report import settings
from tilewright.runtime.library.codes import MOST_RANK

PROGRAM = Path(__file__).with_suffix(".c")
CALLS = 10
START_BAR = 0.03
"""Seconds that loading and the first call may take beyond a call."""
MAKING_BAR = 0.05
"""Seconds that making may take beyond a copy of the file, or beyond compiling."""
COMPILATIONS = 5
ROOM_BAR = 10 * MIB
"""Bytes that may be resident beyond weights and arena."""
SMALL_CALLS, SMALL_BAR = 100_000, 1e-6
SMALL = {
    "one input, one output": "graph main[n](x: f32[n]) -> y:\n  y: f32[n] = relu(x)\n",
    "eight inputs, eight outputs": (
        f"graph main[n]({', '.join(f'x{n}: f32[n]' for n in range(8))}) -> {', '.join(f'y{n}' for n in range(8))}:\n"
        + "".join(f"  y{n}: f32[n] = relu(x{n})\n" for n in range(8))
    ),
}
"""Programs of one number an input: all that their calls take counts as the cost of a call."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A network's weights in bytes, what its processes said, and the seconds of making and of copying its library."""

    name: str
    weights: int
    runs: Sequence[Mapping[str, Any]]
    reads: Sequence[float]
    made: Sequence[float] = ()
    copied: Sequence[float] = ()
    compiled: Sequence[float] = ()
    compiled_to_file: Sequence[float] = ()
    compiled_to_library: Sequence[float] = ()

    @property
    def call(self) -> float:
        """The best call."""
        return min(min(run["calls"]) for run in self.runs)

    @property
    def beyond(self) -> list[float]:
        """What each process took to its first result beyond the best call of all."""
        return sorted(run["load"] + run["first"] - self.call for run in self.runs)

    @property
    def room(self) -> int:
        """Bytes that were resident beyond weights and arena."""
        return max(run["peak"] - run["arena"] for run in self.runs) - self.weights


def time_making(exe: tw.Executable, folder: Path) -> tuple[float, float]:
    """The seconds of making a library where there is none yet, and of copying it by the system's own means."""
    made, copied = folder / "made.so", folder / "copied.so"
    for path in (made, copied):
        path.unlink(missing_ok=True)
    start = time.perf_counter()
    exe.save_library(made)
    between = time.perf_counter()
    shutil.copyfile(made, copied)
    with copied.open("rb") as file:
        os.fsync(file.fileno())
    return between - start, time.perf_counter() - between


def time_compiling(model: Path, folder: Path, ending: str) -> float:
    """The seconds of compiling a model that the store does not have: to a library (.so), to a compiled file (.tw), or
    for this process alone. Memory that the system gave back is fetched before: in a virtual machine its first touch
    takes longer than all else."""
    place, store = folder / f"compiled{ending}", folder / "store"
    place.unlink(missing_ok=True)
    os.sync()
    np.ones(4 * model.stat().st_size, np.uint8)
    before = os.environ.get(settings.STORE.name)
    os.environ[settings.STORE.name] = str(store)
    try:
        start = time.perf_counter()
        library = Library(place, str(model), {}, None)
        with library.expected(1):
            exe = compile_model(str(model))
            if library.wanted:
                library.save([exe])
            elif ending:
                exe.save(place)
        return time.perf_counter() - start
    finally:
        shutil.rmtree(store, ignore_errors=True)
        if before is None:
            del os.environ[settings.STORE.name]
        else:
            os.environ[settings.STORE.name] = before


def build(exe: tw.Executable, folder: Path) -> tuple[Path, Path]:
    """The library of an executable, and the program that loads it. CalledProcessError where there is no compiler."""
    library, program = folder / "libmodel.so", folder / "library_start"
    exe.save_library(library, header=folder / "model.h")
    options = ["-O2", "-I", str(folder), "-o", str(program), "-ldl"]
    subprocess.run(["cc", str(PROGRAM), *options], check=True)
    return library, program


def encode(arrays: Sequence[np.ndarray[Any, Any]]) -> bytes:
    """Inputs as the program reads them: bytes, rank, dimensions, content."""
    return b"".join(
        struct.pack(f"<{2 + MOST_RANK}q", a.nbytes, a.ndim, *a.shape, *[0] * (MOST_RANK - a.ndim)) + a.tobytes()
        for a in arrays
    )


def ask(program: Path, *arguments: str, given: bytes = b"") -> dict[str, Any]:
    """What the program prints. CalledProcessError where it fails."""
    done = subprocess.run([str(program), *arguments], input=given, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(prepared: Prepared, folder: Path, rounds: int) -> Measured:
    """A network's library in `rounds` processes, with a reading of its file before each."""
    exe = tw.compile(str(prepared.model))
    library, program = build(exe, folder)
    with np.load(prepared.feeds) as feeds:
        given = encode([feeds[port.name] for port in exe.inputs])
    reads, runs, making = [], [], []
    for _ in range(rounds):
        making.append(time_making(exe, folder))
        reads.append(ask(program, str(library))["read"])
        runs.append(ask(program, str(library), str(CALLS), given=given))
    made, copied = zip(*making, strict=True)
    turns = [[time_compiling(prepared.model, folder, way) for way in ("", ".tw", ".so")] for _ in range(COMPILATIONS)]
    compiled = list(zip(*turns, strict=True))
    return Measured(prepared.name, sum(c.nbytes for c in exe.program.constants), runs, reads, made, copied, *compiled)


def report_making(measured: Sequence[Measured]) -> Report:
    """Rows for each network: the library of a program that is compiled, beside a copy of the file; and that of a model,
    beside compiling it, and beside compiling it to a file."""
    heads = ("network", "weights MiB", "library ms: best", "median", "without: best", "median")
    report = Report("library making", "Making a library", (*heads, "beyond it: best", "median", "bar 50"))
    for one in measured:
        ways = [("a copy of the file", one.copied, one.made), ("compiling", one.compiled, one.compiled_to_library)]
        ways.append(("compiling to a .tw file", one.compiled_to_file, one.compiled_to_library))
        for beside, without, library in ways:
            if not library:
                continue
            figures = [f(seconds) for seconds in (library, without) for f in (min, statistics.median)]
            beyond = [a - b for a, b in zip(figures[:2], figures[2:], strict=True)]
            cells = [f"{one.name}, beside {beside}", f"{one.weights / MIB:.1f}"]
            cells += [f"{1e3 * s:.0f}" for s in (*figures, *beyond)]
            data = {"network": one.name, "weights": one.weights, "beside": beside}
            data |= {"library": library, "without": without, "beyond": beyond}
            report.add([*cells, judge(beyond[1], MAKING_BAR)], data)
    report.note = (
        "on the disk at the end; the file is copied by the system's own means; a model is compiled with nothing in the "
        f"store, {COMPILATIONS} times in turns; the bar is for the medians"
    )
    return report


def report_start(measured: Sequence[Measured]) -> Report:
    """A row for each network."""
    heads = (
        "network",
        "weights MiB",
        "reading them ms",
        "load ms",
        "best call ms",
        "beyond it: best",
        "median",
        "bar 30",
    )
    heads += ("call over all", "page faults", "beyond weights and arena MiB", "bar 10")
    report = Report("library start", "From loading a library to its first result", heads)
    for one in measured:
        best, median = one.beyond[0], one.beyond[len(one.beyond) // 2]
        share = one.call / (one.call + best)
        faults = statistics.median(run["faults"] for run in one.runs)
        load = min(run["load"] for run in one.runs)
        cells = [one.name, f"{one.weights / MIB:.1f}", *(f"{1e3 * s:.1f}" for s in (min(one.reads), load, one.call))]
        cells += [f"{1e3 * best:.1f}", f"{1e3 * median:.1f}", judge(best, START_BAR), percent(share), f"{faults:.0f}"]
        cells += [f"{one.room / MIB:.1f}", judge(one.room, ROOM_BAR)]
        data = {"network": one.name, "weights": one.weights, "reads": one.reads, "runs": one.runs}
        report.add(cells, data | {"beyond": one.beyond, "share": share, "room": one.room})
    report.note = (
        "one thread, a fresh process each time, the file in the system's cache; beyond it: loading and the first call "
        "over the best call; what is resident includes pages of the file that were touched, the C library and inputs"
    )
    return report


def report_calls(folder: Path, rounds: int) -> Report:
    """A row for each small program."""
    heads = ("one number an input", "best ns", "median", "bar 1,000")
    report = Report("library calls", "A call of a library, its kernels included", heads)
    for name, text in SMALL.items():
        exe = tw.compile(tw.parse(text))
        library, program = build(exe, folder)
        given = encode([np.ones(1, np.float32)] * len(exe.inputs))
        best = [statistics.median(run(program, library, given)) for _ in range(rounds)]
        seconds = sorted(best)
        cells = [name, f"{1e9 * seconds[0]:.0f}", f"{1e9 * seconds[len(seconds) // 2]:.0f}"]
        report.add([*cells, judge(seconds[0], SMALL_BAR)], {"program": name, "seconds": seconds})
    report.note = "the clock, which is asked twice a call, is in the figures"
    return report


def run(program: Path, library: Path, given: bytes) -> list[float]:
    """The seconds of many calls in a fresh process."""
    seconds: list[float] = ask(program, str(library), str(SMALL_CALLS), given=given)["calls"]
    return seconds


def main() -> None:
    """Measures, prints."""
    parser = page_command("library_start", __doc__, "networks")
    parser.set_defaults(only="MobileNet|BERT")
    add_models(parser)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="processes for each library")
    asked = parser.parse_args()
    options = Options(only=asked.only)
    measured: list[Measured] = []
    calls: list[Report] = []

    def one(under_way: Run, prepared: Prepared, _: Graph) -> None:
        if not calls:
            calls.append(report_calls(under_way.scratch, asked.rounds))
        measured.append(measure(prepared, under_way.scratch, asked.rounds))

    each_network(options, asked.models, chosen_networks(options), one)
    deliver(asked, "library start", [report_making(measured), report_start(measured), *calls])


if __name__ == "__main__":
    main()
