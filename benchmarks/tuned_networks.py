"""What tuning gains: networks with random weights, tuned for a while in a store of their own, against themselves.

    python -m benchmarks.tuned_networks [--only REGEX] [--budget TIME] [--rounds N] [--quick] [--models DIR] [--json]

The first table has a row for each network: the tuned program's time by that of the untuned one, by the median of pairs
of calls in turns, in random order, on one thread, in its own time, whatever runs beside it. The second has a row for
each kernel whose default was beaten: its part of the time, what was found has otherwise than the default, and both of
their ratios to the default, by price and by the clock. Where the first is above one and the second below, a price is
wrong.
"""

from __future__ import annotations

import os
import pickle
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tilewright as tw
from benchmarks.command import add_models, page_command
from benchmarks.contest import Options
from benchmarks.network_models import NETWORKS
from benchmarks.network_race import Run
from benchmarks.report import Report, show
from tilewright.api.tuning import TuneResult
from tilewright.explain.ways import flat
from tilewright.report import settings
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable
from tilewright.tune.network import Row
from tilewright.tune.trial import feeds_of

BUDGET, ROUNDS, LOADS = "60s", 60, 6
"""How long a network is tuned, the pairs of calls that it is raced in, and how often both are loaded for these."""


@dataclass(frozen=True, slots=True)
class Beaten:
    """A kernel whose default was beaten: its row, the fields that differ, and its price over the default's."""

    network: str
    row: Row
    differs: str
    price: float


@dataclass(frozen=True, slots=True)
class Raced:
    """A network before and after: median seconds of a call, the median ratio of pairs, and what tuning told."""

    name: str
    before: float
    after: float
    ratio: float
    result: TuneResult
    seconds: float
    beaten: tuple[Beaten, ...]


@contextmanager
def own_store() -> Iterator[None]:
    """A store of its own that is gone afterwards."""
    name, before = settings.STORE.name, os.environ.get(settings.STORE.name)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before


def measure(name: str, model: Path, budget: str, rounds: int) -> Raced:
    """Tunes a network, and races it with itself."""
    with own_store(), progress(f"tuning {name}") as step:
        start = time.monotonic()
        result = tw.autotune(
            model, budget=budget, threads=1, tell=lambda row: step(f"{row.kernel}: {1 / row.ratio:.2f}x")
        )
        seconds = time.monotonic() - start
        before = tw.compile(model, tune="off", threads=1)
        after = tw.compile(model, threads=1)
        rows = race((before, after), rounds)
        beaten = tuple(_beaten(name, row, before, after) for row in result.rows if row.ratio < 1)
    ratio = statistics.median(b / a for a, b in zip(*rows, strict=True))
    return Raced(name, *map(statistics.median, rows), ratio, result, seconds, beaten)  # type: ignore[arg-type]


def race(pair: Sequence[Executable], rounds: int) -> list[list[float]]:
    """The seconds of calls of both programs in turns, in random order. Both are loaded again and again, either of them
    first: where in memory they lie may make more of a difference than tuning does."""
    feeds, order = feeds_of(pair[0], {}), np.random.default_rng(0)
    taken: list[list[float]] = [[], []]
    for load in range(LOADS):
        places = (0, 1) if load % 2 else (1, 0)
        loaded = {n: pickle.loads(pickle.dumps(pair[n])) for n in places}
        for executable in loaded.values():
            executable(*feeds)
        for _ in range(-(-rounds // LOADS)):
            for n in map(int, order.permutation(2)):
                start = time.thread_time()
                loaded[n](*feeds)
                taken[n].append(time.thread_time() - start)
    return taken


def _beaten(network: str, row: Row, before: Executable, after: Executable) -> Beaten:
    default, found = (exe.decisions[row.kernel].taken for exe in (before, after))
    assert default is not None
    assert found is not None
    own, other = flat(default.choice), flat(found.choice)
    names = [f for f in other if own.get(f) != other[f]]
    if default.template != found.template:
        differs = f"{found.template} for {default.template}"
    else:
        differs = ", ".join(f"{f} {own.get(f)} -> {other[f]}" for f in names) or "taken back"
    return Beaten(network, row, differs, found.seconds / default.seconds if default.seconds else 1.0)


def report_networks(found: Sequence[Raced]) -> Report:
    """A row for each network, and their mean."""
    heads = ("network", "kernels", "measured", "beaten", "took s", "untuned ms", "tuned ms", "tuned / untuned")
    made = Report("tuned_networks", "Networks, tuned against untuned, one thread", heads)
    for one in found:
        rows = one.result.rows
        counts = (one.result.kernels, sum(row.measured for row in rows), len(one.beaten))
        cells = [one.name, *map(str, counts), f"{one.seconds:.0f}", f"{1e3 * one.before:.3f}", f"{1e3 * one.after:.3f}"]
        data = {"network": one.name, "before": one.before, "after": one.after, "ratio": one.ratio}
        made.add([*cells, f"{one.ratio:.3f}"], data | {"kept": one.result.kept})
    if found:
        gain = 1 / statistics.geometric_mean([one.ratio for one in found])
        made.note = f"geometric mean of gains {gain:.3f}; least {min(1 / one.ratio for one in found):.3f}"
    return made


def report_kernels(found: Sequence[Raced]) -> Report:
    """A row for each kernel whose default was beaten."""
    heads = ("kernel", "share", "default µs", "price / default", "time / default", "what was found has otherwise")
    made = Report("beaten", "Kernels whose default was beaten", heads)
    for kernel in sorted((b for one in found for b in one.beaten), key=lambda b: b.row.ratio / b.price):
        row = kernel.row
        name = f"{kernel.network}: {row.kernel}"
        cells = (f"{row.share:.1%}", f"{1e6 * row.default_seconds:.1f}", f"{kernel.price:.2f}", f"{row.ratio:.2f}")
        data = {"network": kernel.network, "kernel": row.kernel, "share": row.share, "ratio": row.ratio}
        made.add((name, *cells, kernel.differs), data | {"price": kernel.price, "differs": kernel.differs})
    return made


def main() -> None:
    """Tunes, races, prints."""
    parser = page_command("tuned_networks", __doc__, "networks", "tiny networks")
    parser.add_argument("--budget", default=BUDGET, metavar="TIME", help="how long each is tuned: 60s, 2m")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="pairs of calls of each race")
    add_models(parser)
    asked = parser.parse_args()
    options = Options(only=asked.only, quick=asked.quick)
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.models or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        run, found = Run(options, folder, Path(scratch)), []
        for network in NETWORKS:
            if re.search(asked.only, network.name):
                graph = network.build_tiny() if options.is_partial else network.build()
                found.append(measure(network.name, run.prepare(network, graph).model, asked.budget, asked.rounds))
    show([report_networks(found), report_kernels(found)], asked.json)


if __name__ == "__main__":
    main()
