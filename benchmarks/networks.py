"""Whole networks against other runtimes: nine networks with random weights, batch 1 (the perceptron: 32), f32.

    python -m benchmarks.networks [--only REGEX] [--threads 1,2] [--rounds N] [--quick] [--json]
                                  [--models DIR] [--write PAGE] [--plot FILE.svg]

Each engine (ours, ONNX Runtime, OpenVINO) has a process of its own for each network and number of threads, and the
processes take turns. Every result is compared with ONNX Runtime's before anything is timed: a difference of more than
a thousandth of the output's largest number is listed as a failure, and the run ends with status 1.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx

from benchmarks.chart import draw_bars
from benchmarks.contest import Options, percent, times
from benchmarks.contractions import measure_machine
from benchmarks.network_models import NETWORKS, Network
from benchmarks.network_models.builder import Graph
from benchmarks.network_worker import OURS, Worker, WorkerFailed
from benchmarks.page import write_reports
from benchmarks.report import Report, show
from benchmarks.timing import PAUSE_SECONDS, THREADS_PAUSE_SECONDS, Ratio, Samples, compare
from tilewright.cli.peers import PEERS
from tilewright.report.progress import progress
from tilewright.target import native
from tilewright.target.calibrate import calibrated

Array = np.ndarray[Any, Any]

FAILURES = "failures"
JUDGE = "onnxruntime"
"""The engine whose results count as right."""
TOLERANCE = 1e-3
TURN_SECONDS = 0.06
THREADS = (1, 2)
PARTIAL_FLOPS = 1e9
"""A partial run takes the networks that do less."""
TITLES = {OURS: "Tilewright", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A network's model and its inputs as files, and the arithmetic of its contractions."""

    name: str
    model: Path
    feeds: Path
    flops: float


@dataclass(frozen=True, slots=True)
class Engine:
    """What was measured of an engine: seconds of calls and of opening the model, and bytes of memory."""

    samples: Samples
    open_seconds: float
    peak_bytes: int | None

    def record(self) -> dict[str, object]:
        return {**self.samples.record(), "open_seconds": self.open_seconds, "peak_bytes": self.peak_bytes}


@dataclass(frozen=True, slots=True)
class Measured:
    """A network with some threads: its engines by name, ours among them."""

    name: str
    threads: int
    flops: float
    engines: Mapping[str, Engine]

    def over(self, peer: str) -> Ratio | None:
        """How many times longer a peer took; None where it took no part."""
        if peer not in self.engines:
            return None
        return compare(self.engines[peer].samples, self.engines[OURS].samples)

    def over_fastest(self) -> Ratio | None:
        ratios = [ratio for peer in PEERS if (ratio := self.over(peer.name)) is not None]
        return min(ratios, key=lambda ratio: ratio.best, default=None)


class Run:
    """A run under way: where files go, and what failed."""

    def __init__(self, options: Options, folder: Path, scratch: Path) -> None:
        self.options, self.folder, self.scratch = options, folder, scratch
        self.failures: list[tuple[str, str]] = []

    def prepare(self, network: Network, graph: Graph) -> Prepared:
        """The network's files, made where this version of the definitions has not made them yet."""
        stem = f"{network.name.replace('/', '-').replace(' ', '-').lower()}-{definitions_digest()}"
        prepared = Prepared(network.name, self.folder / f"{stem}.onnx", self.scratch / f"{stem}.npz", graph.flops)
        if not prepared.model.exists():
            part = self.folder / f"{stem}.part"
            onnx.save(graph.model(), part)
            part.rename(prepared.model)
        arrays: Any = graph.feeds
        np.savez(prepared.feeds, **arrays)
        return prepared

    def measure(self, prepared: Prepared, threads: int) -> Measured | None:
        """The network's engines, checked and raced; None, and a failure noted, where ours or the judge fails."""
        name = f"{prepared.name}, {threads} threads" if threads > 1 else prepared.name
        with ExitStack() as stack:
            workers: dict[str, Worker] = {}
            for engine in (JUDGE, OURS, *(peer.name for peer in PEERS if peer.name != JUDGE and peer.is_installed)):
                try:
                    workers[engine] = Worker(engine, prepared.model, prepared.feeds, threads)
                    stack.callback(workers[engine].close)
                except WorkerFailed as error:
                    self.failures.append((name, str(error)))
            try:
                engines = self._race(name, workers, threads)
            except WorkerFailed as error:
                self.failures.append((name, str(error)))
                return None
        return None if engines is None else Measured(prepared.name, threads, prepared.flops, engines)

    def _race(self, name: str, workers: Mapping[str, Worker], threads: int) -> dict[str, Engine] | None:
        right = workers[JUDGE].results(self.scratch / "right.npz") if JUDGE in workers else None
        checked: dict[str, Worker] = {}
        for engine, worker in workers.items():
            wrong = None if right is None else compare_results(worker.results(self.scratch / "results.npz"), right)
            if wrong is not None:
                self.failures.append((name, f"{engine}: {wrong}"))
            else:
                checked[engine] = worker
        if right is None or OURS not in checked:
            return None
        pause = PAUSE_SECONDS if threads == 1 else THREADS_PAUSE_SECONDS
        taken = take_turns(checked, self.options.rounds, self.options.turn_seconds, pause)
        return {n: Engine(taken[n], worker.open_seconds, worker.peak_bytes()) for n, worker in checked.items()}


def definitions_digest() -> str:
    """A digest of the definitions' source, so that a kept model is only used by the definitions that made it."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for path in (*sorted((here / "network_models").glob("*.py")), here / "layers.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def compare_results(results: Sequence[Array], right: Sequence[Array]) -> str | None:
    """What is wrong with `results`; None where all are right."""
    if [r.shape for r in results] != [r.shape for r in right]:
        return f"shapes {[r.shape for r in results]} instead of {[r.shape for r in right]}"
    for n, (result, expected) in enumerate(zip(results, right, strict=True)):
        distance, largest = float(np.max(np.abs(result - expected))), float(np.max(np.abs(expected)))
        if not distance <= TOLERANCE * largest:
            return f"output {n} is off by {distance:.2g}, where the largest number is {largest:.2g}"
    return None


class Timed(Protocol):
    """What takes part in a race: it times calls of its program, after one that does not count where `warm`."""

    def call(self, count: int, warm: bool = False) -> list[float]: ...


def take_turns(
    workers: Mapping[str, Timed], rounds: int, turn_seconds: float, pause_seconds: float
) -> dict[str, Samples]:
    """Samples of one call of each worker, one a round: the best call of its turn. The order turns with the rounds.

    A turn is a pause, in which the threads of the worker before go to sleep, a call that does not count, and calls for
    about `turn_seconds`; a worker whose calls fill a turn alone goes without the call that does not count.
    """
    names = list(workers)
    first = {name: min(worker.call(2)) for name, worker in workers.items()}
    taken: dict[str, list[float]] = {name: [] for name in names}
    for n in range(rounds):
        for turn in range(len(names)):
            name = names[(turn + n) % len(names)]
            time.sleep(pause_seconds)
            count = max(1, int(turn_seconds / first[name]))
            taken[name].append(min(workers[name].call(count, warm=first[name] < turn_seconds)))
    return {name: Samples(tuple(seconds)) for name, seconds in taken.items()}


def report_networks(measured: Sequence[Measured], gflops: float) -> Report:
    """A row for each network and number of threads, and their means; `gflops` is the limit of one core."""
    peers = [peer.name for peer in PEERS]
    short = [{"onnxruntime": "ORT", "openvino": "OV"}.get(name, name) for name in peers]
    heads = ("network", "T", "best ms", "median", "× faster", *(f"× {name}" for name in short), "of peak")
    heads += ("compile s", *short, "MiB", *short)
    report = Report("networks", "Networks, f32: a call, opening the model, and the most memory in use", heads)
    for one in measured:
        report.add(*describe(one, gflops))
    for threads in dict.fromkeys(one.threads for one in measured):
        ratios = [r.best for one in measured if one.threads == threads and (r := one.over_fastest()) is not None]
        if len(ratios) > 1:
            mean = statistics.geometric_mean(ratios)
            cells = ["geometric mean", str(threads), "", "", f"{mean:.2f}"]
            data = {"network": "geometric mean", "threads": threads, "over faster": mean, "networks": len(ratios)}
            report.add([*cells, *[""] * (len(heads) - len(cells))], data)
    report.note = (
        "×: times ours, above 1 where ours is faster; of peak: the contractions' arithmetic at the best time over "
        f"{gflops:.4g} GFLOP/s a core"
    )
    return report


def describe(one: Measured, gflops: float) -> tuple[list[str], dict[str, object]]:
    """A row, and what it says as data."""
    ours = one.engines[OURS]
    share = one.flops / ours.samples.best / (1e9 * gflops * one.threads)
    fastest = one.over_fastest()
    cells = [one.name, str(one.threads), f"{1e3 * ours.samples.best:.2f}", f"{1e3 * ours.samples.median:.2f}"]
    cells += [times(ratio) for ratio in (fastest, *(one.over(peer.name) for peer in PEERS))] + [percent(share)]
    order = [one.engines.get(name) for name in (OURS, *(peer.name for peer in PEERS))]
    cells += ["-" if engine is None else f"{engine.open_seconds:.2f}" for engine in order]
    cells += ["-" if engine is None or engine.peak_bytes is None else str(engine.peak_bytes >> 20) for engine in order]
    data: dict[str, object] = {"network": one.name, "threads": one.threads, "flops": one.flops, "of peak": share}
    data |= {"over faster": None if fastest is None else fastest.best}
    return cells, data | {"engines": {name: engine.record() for name, engine in one.engines.items()}}


def draw(measured: Sequence[Measured]) -> str:
    """A chart of each engine's speed as times the speed of ONNX Runtime."""
    groups = {}
    for one in measured:
        label = f"{one.name}, {one.threads} threads" if one.threads > 1 else one.name
        judge = one.engines[JUDGE].samples.best
        groups[label] = {TITLES[name]: judge / one.engines[name].samples.best for name in TITLES if name in one.engines}
    return draw_bars("Speed as times ONNX Runtime's: longer is faster", groups)


def chosen_networks(options: Options) -> list[tuple[Network, Graph]]:
    """The networks that are wanted, without the large ones where a part will do."""
    graphs = [(network, network.build()) for network in NETWORKS if options.wants(network.name)]
    return [(n, g) for n, g in graphs if not options.is_partial or g.flops < PARTIAL_FLOPS]


def each_network(
    options: Options,
    models: Path | None,
    chosen: Sequence[tuple[Network, Graph]],
    measure: Callable[[Run, Prepared, Graph], None],
) -> Run:
    """Measures networks one after the other; their files stay in `models`, or are gone with each. The run knows what
    failed."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch, progress("measuring", len(chosen)) as step:
        if models is not None:
            models.mkdir(parents=True, exist_ok=True)
        run = Run(options, models or Path(scratch), Path(scratch))
        for network, graph in chosen:
            prepared = run.prepare(network, graph)
            measure(run, prepared, graph)
            if models is None:
                prepared.model.unlink()
            step(network.name)
    return run


def report_failures(run: Run, head: str = "network") -> Report:
    """What failed, a row each."""
    report = Report(FAILURES, "What failed, and is part of no figure", (head, "why"))
    for name, why in run.failures:
        report.add((name, why), {head: name, "why": why})
    return report


def measure_all(options: Options, threads: Sequence[int], models: Path | None) -> tuple[list[Report], str]:
    """All reports that have a row (the machine's first, failures last), and the chart."""
    gflops = calibrated(native()).peaks.fma_gflops
    measured: list[Measured] = []

    def measure(run: Run, prepared: Prepared, _: Graph) -> None:
        measured.extend(one for n in threads if (one := run.measure(prepared, n)) is not None)

    run = each_network(options, models, chosen_networks(options), measure)
    reports = [measure_machine(options), report_networks(measured, gflops), report_failures(run)]
    return [report for report in reports if report.rows], draw(measured)


def options_of(quick: bool, only: str = "", rounds: int | None = None) -> Options:
    """The options of a run; a quick one has three rounds, of the small networks if none were chosen."""
    return Options(rounds or (3 if quick else 10), TURN_SECONDS, only, quick)


def numbers(words: str) -> tuple[int, ...]:
    """Numbers between commas."""
    return tuple(int(word) for word in words.split(","))


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", metavar="REGEX", help="networks whose name has a match")
    parser.add_argument("--threads", type=numbers, default=THREADS, metavar="N,N", help="numbers of threads")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each engine in each race")
    parser.add_argument("--quick", action="store_true", help="few rounds of the small networks, for a first look")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--models", type=Path, metavar="DIR", help="keep the models' files, and use those kept")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into a page, between its marks")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="write a chart of speeds")
    asked = parser.parse_args()
    reports, chart = measure_all(options_of(asked.quick, asked.only, asked.rounds), asked.threads, asked.models)
    show(reports, asked.json)
    if asked.write is not None:
        write_reports(asked.write, "networks", reports)
    if asked.plot is not None:
        asked.plot.write_text(chart, encoding="utf-8")
    if any(report.name == FAILURES for report in reports):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
