"""Engines that take turns with one network, each in a process of its own, and beside them a program at the limit.

Each engine (ours, ONNX Runtime, OpenVINO) has a process of its own for each network and number of threads. Every
result is compared with ONNX Runtime's before anything is timed. The limit's program does about the same work as the
network at the rate that cannot be exceeded: a noisy minute hits both, so that the share of the limit is no share of
another time's.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx

from benchmarks.contest import Options
from benchmarks.failures import Failures, name_case
from benchmarks.limits import Limit
from benchmarks.network_models import Network
from benchmarks.network_models.builder import Graph
from benchmarks.network_worker import CLOCKS, OURS, Worker, WorkerFailed
from benchmarks.timing import PAUSE_SECONDS, THREADS_PAUSE_SECONDS, Ratio, Samples, compare
from tilewright.cli.peers import PEERS
from tilewright.report.progress import progress

Array = np.ndarray[Any, Any]

LIMIT = "limit"
"""The name of the limit's program in a race."""
JUDGE = "onnxruntime"
"""The engine whose results count as right."""
TOLERANCE = 1e-3
TURN_SECONDS = 0.06
THREADS = (1, 2)


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
    """A network with some threads: its engines by name, ours among them, and what the limit takes for the same work."""

    name: str
    threads: int
    engines: Mapping[str, Engine]
    limit: Samples

    def over(self, peer: str) -> Ratio | None:
        """How many times longer a peer took; None where it took no part."""
        if peer not in self.engines:
            return None
        return compare(self.engines[peer].samples, self.engines[OURS].samples)

    @property
    def share(self) -> Ratio:
        """What the limit takes over what ours takes."""
        return compare(self.limit, self.engines[OURS].samples)

    def over_fastest(self) -> Ratio | None:
        ratios = [ratio for peer in PEERS if (ratio := self.over(peer.name)) is not None]
        return min(ratios, key=lambda ratio: ratio.best, default=None)


class Run:
    """A run under way: where files go, and what failed."""

    def __init__(self, options: Options, folder: Path, scratch: Path, clock: str = "wall") -> None:
        """`clock` is that of races between programs of one thread; those of several have the wall's."""
        self.options, self.folder, self.scratch, self.clock = options, folder, scratch, clock
        self.failures = Failures()

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

    def measure(self, prepared: Prepared, threads: int, work: float, limit: Limit) -> Measured | None:
        """The network's engines, checked and raced beside the limit of its `work`; None, and a failure noted, where
        ours or the judge fails. Another peer that fails or is wrong is left out."""
        name, clock = name_case(prepared.name, threads), self.clock if threads == 1 else "wall"
        with ExitStack() as stack:
            workers: dict[str, Worker] = {}
            for engine in (JUDGE, OURS, *(peer.name for peer in PEERS if peer.name != JUDGE and peer.is_installed)):
                try:
                    workers[engine] = Worker(engine, prepared.model, prepared.feeds, threads, clock=clock)
                    stack.callback(workers[engine].close)
                except WorkerFailed as error:
                    self._note(name, engine, str(error))
            try:
                checked = self._check(name, workers)
                if checked is None:
                    return None
                racing: dict[str, Timed] = {**checked, LIMIT: LimitProgram(limit, CLOCKS[clock])}
                pause = PAUSE_SECONDS if threads == 1 else THREADS_PAUSE_SECONDS
                taken = take_turns(racing, self.options.rounds, self.options.turn_seconds, pause)
                engines = {n: Engine(taken[n], w.open_seconds, w.peak_bytes()) for n, w in checked.items()}
            except WorkerFailed as error:
                self.failures.cases.append((name, str(error)))
                return None
        return Measured(prepared.name, threads, engines, taken[LIMIT].scaled(work / limit.work))

    def _check(self, name: str, workers: Mapping[str, Worker]) -> dict[str, Worker] | None:
        """The workers whose results are right; None where ours is not, or nobody judges."""
        if JUDGE not in workers:
            return None
        right = workers[JUDGE].results(self.scratch / "right.npz")
        checked: dict[str, Worker] = {}
        for engine, worker in workers.items():
            wrong = compare_results(worker.results(self.scratch / "results.npz"), right)
            if wrong is None:
                checked[engine] = worker
            else:
                self._note(name, engine, f"{engine}: {wrong}")
        return checked if OURS in checked else None

    def _note(self, name: str, engine: str, why: str) -> None:
        """What is wrong with an engine: without ours or the judge there is no case."""
        noted = self.failures.cases if engine in (OURS, JUDGE) else self.failures.peers
        noted.append((name, why))


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


class LimitProgram:
    """A limit's program as one of a race between processes: it runs in this one."""

    def __init__(self, limit: Limit, clock: Callable[[], float] = time.perf_counter) -> None:
        self._limit, self._clock = limit, clock

    def call(self, count: int, warm: bool = False) -> list[float]:
        """The seconds of each call."""
        if warm:
            self._limit.call()
        return [self._time() for _ in range(count)]

    def _time(self) -> float:
        start = self._clock()
        self._limit.call()
        return self._clock() - start


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
