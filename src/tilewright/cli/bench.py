"""`tilewright bench`: how long a call of a model takes, and how long it takes other runtimes, measured in turns."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from tilewright import __version__
from tilewright.cli import options
from tilewright.cli.agreement import relative_difference
from tilewright.cli.durations import read_duration
from tilewright.cli.feeds import Feeds, make_feeds
from tilewright.cli.fit import say
from tilewright.cli.guard import note
from tilewright.cli.model import How, compile_model, count_threads, graph_of, tell_assumptions, time_compile, title
from tilewright.cli.peers import Peer, choose
from tilewright.cli.rounds import PERCENTILES, Call, Timing, count_together, take_turns
from tilewright.cli.tables import counted, duration, json_text, table
from tilewright.core.switches import HIGHEST, PLAIN
from tilewright.report import settings
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable
from tilewright.runtime.file import is_compiled
from tilewright.store import Json

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Contender:
    """A program in the race: a call for each thread that calls it. `compile_seconds` is from the file to a callable
    program; `stored_seconds` the same with the compiled code in the store; `difference` is the greatest relative one
    from our outputs."""

    name: str
    version: str
    calls: Sequence[Call]
    compile_seconds: float
    stored_seconds: float | None = None
    difference: float | None = None


Against = Annotated[
    str | None,
    typer.Option(
        "--vs",
        metavar="NAMES",
        help="Runtimes to compare with: onnxruntime,openvino or none. [default: those installed]",
    ),
]

Rounds = Annotated[
    int | None, typer.Option("--rounds", min=1, metavar="N", help="Rounds to measure, in place of --duration.")
]

Duration = Annotated[
    str,
    typer.Option(
        "--duration", "--seconds", metavar="TIME", help="How long to measure: 5s, 500ms, 2m; at least three rounds."
    ),
]

Warmup = Annotated[
    int | None,
    typer.Option(
        "--warmup",
        min=0,
        metavar="N",
        help="Calls of each program that do not count, before all others. [default: those of 100 ms]",
    ),
]

Callers = Annotated[
    int | None,
    typer.Option(
        "--callers", min=1, max=1024, metavar="N", help="Measure throughput: so many threads call each program at once."
    ),
]


def bench(
    model: options.Model,
    inputs: options.Inputs = [],  # noqa: B006  (typer reads the default, nothing changes it)
    sizes: options.Sizes = [],  # noqa: B006
    threads: options.Threads = None,
    vs: Against = None,
    rounds: Rounds = None,
    duration: Duration = "3s",
    warmup: Warmup = None,
    callers: Callers = None,
    seed: options.Seed = 0,
    dims: options.Dims = [],  # noqa: B006
    level: options.Level = HIGHEST,
    off: options.Off = [],  # noqa: B006
    precision: options.Precision = PLAIN,
    choices: options.Choices = None,
    strict: options.Strict = False,
    imports: options.Imports = [],  # noqa: B006
    denormals: options.Denormals = None,
    as_json: options.Json = False,
) -> int:
    """Time a model, against other runtimes where they are installed.

    All programs run in this process on the same arrays and take turns, with the same number of threads. The last column
    compares outputs. Compile times are a table of their own: ours cold, and from the store.

    p50, p90 and p99 are percentiles: so many of a hundred calls took no longer. With --callers, threads call each
    program at the same time, and inferences/s counts the calls of all; give --threads what one call may use.

    \b
    Examples:
      tilewright bench model.onnx --threads 1 --size n=32
      tilewright bench model.onnx --dim sequence=1 --size past=511
      tilewright bench model.onnx --vs onnxruntime --warmup 20 --duration 10s --json
      tilewright bench model.onnx --callers 4 --threads 1
    """
    seconds = read_duration(duration, "--duration")
    peers, absent = ([], []) if is_compiled(model) else choose(vs)
    count = count_threads(threads)
    how = How(level, off, dims, precision, denormals, choices, strict, imports)
    compile_again = partial(compile_model, model, threads=count, how=how)
    executable = compile_again()
    feeds = make_feeds(executable.inputs, inputs, sizes, random=True, seed=seed, graph=graph_of(executable))
    tell_assumptions(feeds, sizes)
    for name in absent:
        note(f"{name} is not installed, and so not measured")
    contenders = [_ourselves(executable, feeds, compile_again, is_compiled(model), callers or 1)]
    outputs = list(executable.run(feeds.arrays).values())
    contenders += [found for peer in peers if (found := _open(peer, model, feeds, count, outputs, callers or 1))]
    if callers is None:
        timings, done = take_turns([c.calls[0] for c in contenders], rounds, seconds, warmup)
    else:
        timings, done = count_together([c.calls for c in contenders], rounds, seconds, warmup)
    if as_json:
        print(json_text(_record(model, count, callers, feeds, contenders, timings, done)))
    else:
        together = "" if callers is None else f" a call, {counted(callers, 'caller')}"
        say(f"{title(model, count)}{together}, {counted(done, 'round')}\n\n{_report(contenders, timings)}")
    return 0


def _ourselves(
    executable: Executable, feeds: Feeds, again: Callable[[], Executable], loaded: bool, callers: int
) -> Contender:
    """Our program, compiled twice more with an empty store: the first time cold, the second from that store. What was
    loaded from a compiled file is loaded again."""
    arrays = tuple(feeds.arrays.values())
    calls = [lambda: executable(*arrays)] * callers
    if loaded:
        return Contender("tilewright", __version__, calls, time_compile(again))
    with _empty_store():
        cold, stored = time_compile(again), time_compile(again)
    return Contender("tilewright", __version__, calls, cold, stored)


@contextmanager
def _empty_store() -> Iterator[None]:
    """Within the block, the store is a directory that goes with it."""
    name = settings.STORE.name
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before


def _open(
    peer: Peer, model: str, feeds: Feeds, threads: int, outputs: Sequence[Array], callers: int
) -> Contender | None:
    """The peer with the model loaded and called once; None, and a note why, when it cannot run it."""
    try:
        start = time.perf_counter()
        with progress(f"{peer.name} loads the model"):
            programs = peer.open_for(model, threads, callers)
        taken = time.perf_counter() - start
        results = programs[0](feeds.arrays)
        pairs = zip(results, outputs, strict=True)
        difference = max((relative_difference(np.asarray(a), b) for a, b in pairs), default=0.0)
    except Exception as error:  # whatever another runtime raises is no defect of ours
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        note(f"{peer.name} cannot run this model: {first:.200}")
        return None
    calls = [partial(program, feeds.arrays) for program in programs]
    return Contender(peer.name, peer.version, calls, taken, difference=difference)


def _report(contenders: Sequence[Contender], timings: Sequence[Timing]) -> str:
    """The table of calls and the table of compile times."""
    counted_together = timings[0].rate is not None
    calls = []
    for c, t in zip(contenders, timings, strict=True):
        rates = () if t.rate is None or t.best_rate is None else (_rate(t.rate), _rate(t.best_rate))
        latencies = (*map(duration, t.percentiles), *(() if rates else (duration(t.best),)))
        differs = "" if c.difference is None else f"{c.difference:.1g}"
        calls.append(
            (f"{c.name} {c.version}", *rates, *latencies, f"{_ratio(t, timings[0]):.2f}", str(t.calls), differs)
        )
    rates = ("inferences/s", "best") if counted_together else ()
    latencies = tuple(f"p{n}" for n in PERCENTILES) + (() if counted_together else ("best",))
    heads = ("a call", *rates, *latencies, "× ours", "calls", "differs by")
    compiles = []
    for c in contenders:
        compiles.append((f"{c.name} {c.version}", duration(c.compile_seconds)))
        if c.stored_seconds is not None:
            compiles.append(("  from the store", duration(c.stored_seconds)))
    right = frozenset((*heads[1:], "time"))
    times = table(heads, calls, right, ("calls", "p90", "best", "differs by", "p99"), whole=frozenset(heads[:1]))
    return f"{times}\n\n{table(('compile', 'time'), compiles, right)}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _ratio(timing: Timing, ours: Timing) -> float:
    """How many times as long as ours a call takes, or, of several callers, a call of all that are made."""
    if timing.rate is not None and ours.rate is not None:
        return ours.rate / timing.rate
    return timing.median / ours.median


def _record(
    model: str,
    threads: int,
    callers: int | None,
    feeds: Feeds,
    contenders: Sequence[Contender],
    timings: Sequence[Timing],
    rounds: int,
) -> dict[str, Json]:
    """The report as JSON says it. `ratio` is the median over ours, or our rate over theirs: above 1 where ours is
    faster."""
    rows: list[Json] = []
    for c, t in zip(contenders, timings, strict=True):
        row: dict[str, Json] = {
            "name": c.name,
            "version": c.version,
            "median_seconds": t.median,
            "best_seconds": t.best,
            "calls": t.calls,
            "latency_seconds": {f"p{n}": value for n, value in zip(PERCENTILES, t.percentiles, strict=True)},
            "ratio": _ratio(t, timings[0]),
            "best_ratio": t.best / timings[0].best,
            "compile_seconds": c.compile_seconds,
        }
        if t.rate is not None:
            row |= {"inferences_per_second": t.rate, "best_inferences_per_second": t.best_rate}
        if c.stored_seconds is not None:
            row["stored_compile_seconds"] = c.stored_seconds
        if c.difference is not None:
            row["difference"] = c.difference
        rows.append(row)
    record: dict[str, Json] = {"model": model, "threads": threads, "sizes": dict(feeds.sizes), "rounds": rounds}
    return record | ({} if callers is None else {"callers": callers}) | {"programs": rows}
