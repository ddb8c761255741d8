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
from tilewright.cli.feeds import Feeds, make_feeds
from tilewright.cli.guard import note
from tilewright.cli.model import How, compile_model, count_threads, tell_assumptions, time_compile, title
from tilewright.cli.peers import Peer, choose
from tilewright.cli.rounds import Call, Timing, take_turns
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
    """A program in the race. `compile_seconds` is from the file to a callable program; `stored_seconds` the same with
    the compiled code in the store; `difference` is the greatest relative one from our outputs."""

    name: str
    version: str
    call: Call
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
    int | None, typer.Option("--rounds", min=1, metavar="N", help="Rounds to measure, in place of --seconds.")
]

Seconds = Annotated[
    float, typer.Option("--seconds", min=0.0, max=86400.0, help="How long to measure; at least three rounds.")
]


def bench(
    model: options.Model,
    inputs: options.Inputs = [],  # noqa: B006  (typer reads the default, nothing changes it)
    sizes: options.Sizes = [],  # noqa: B006
    threads: options.Threads = None,
    vs: Against = None,
    rounds: Rounds = None,
    seconds: Seconds = 3.0,
    seed: options.Seed = 0,
    dims: options.Dims = [],  # noqa: B006
    level: options.Level = HIGHEST,
    off: options.Off = [],  # noqa: B006
    precision: options.Precision = PLAIN,
    choices: options.Choices = None,
    strict: options.Strict = False,
    denormals: options.Denormals = None,
    as_json: options.Json = False,
) -> int:
    """Time a model, against other runtimes where they are installed.

    All programs run in this process on the same arrays and take turns, with the same number of threads. The last column
    compares outputs. Compile times are a table of their own: ours cold, and from the store.

    \b
    Examples:
      tilewright bench model.onnx --threads 1 --size n=32
      tilewright bench model.onnx --dim sequence=1 --size past=511
      tilewright bench model.onnx --vs onnxruntime --seconds 10 --json
    """
    peers, absent = ([], []) if is_compiled(model) else choose(vs)
    count = count_threads(threads)
    how = How(level, off, dims, precision, denormals, choices, strict)
    compile_again = partial(compile_model, model, threads=count, how=how)
    executable = compile_again()
    feeds = make_feeds(executable.inputs, inputs, sizes, random=True, seed=seed)
    tell_assumptions(feeds, sizes)
    for name in absent:
        note(f"{name} is not installed, and so not measured")
    contenders = [_ourselves(executable, feeds, compile_again, is_compiled(model))]
    outputs = list(executable.run(feeds.arrays).values())
    contenders += [found for peer in peers if (found := _open(peer, model, feeds, count, outputs)) is not None]
    timings, done = take_turns([c.call for c in contenders], rounds, seconds)
    if as_json:
        print(json_text(_record(model, count, feeds, contenders, timings, done)))
    else:
        print(f"{title(model, count)}, {counted(done, 'round')}\n")
        print(_report(contenders, timings))
    return 0


def _ourselves(executable: Executable, feeds: Feeds, again: Callable[[], Executable], loaded: bool) -> Contender:
    """Our program, compiled twice more with an empty store: the first time cold, the second from that store. What was
    loaded from a compiled file is loaded again."""
    arrays = tuple(feeds.arrays.values())
    if loaded:
        return Contender("tilewright", __version__, lambda: executable(*arrays), time_compile(again))
    with _empty_store():
        cold, stored = time_compile(again), time_compile(again)
    return Contender("tilewright", __version__, lambda: executable(*arrays), cold, stored)


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


def _open(peer: Peer, model: str, feeds: Feeds, threads: int, outputs: Sequence[Array]) -> Contender | None:
    """The peer with the model loaded and called once; None, and a note why, when it cannot run it."""
    try:
        start = time.perf_counter()
        with progress(f"{peer.name} loads the model"):
            program = peer.open(model, threads)
        taken = time.perf_counter() - start
        results = program(feeds.arrays)
        pairs = zip(results, outputs, strict=True)
        difference = max((relative_difference(np.asarray(a), b) for a, b in pairs), default=0.0)
    except Exception as error:  # whatever another runtime raises is no defect of ours
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        note(f"{peer.name} cannot run this model: {first:.200}")
        return None
    return Contender(peer.name, peer.version, lambda: program(feeds.arrays), taken, difference=difference)


def _report(contenders: Sequence[Contender], timings: Sequence[Timing]) -> str:
    """The table of calls and the table of compile times."""
    ours = timings[0]
    calls = [
        (
            f"{c.name} {c.version}",
            duration(t.median),
            duration(t.best),
            f"{t.median / ours.median:.2f}",
            str(t.calls),
            "" if c.difference is None else f"{c.difference:.1g}",
        )
        for c, t in zip(contenders, timings, strict=True)
    ]
    heads = ("a call", "median", "best", "× ours", "calls", "differs by")
    compiles = []
    for c in contenders:
        compiles.append((f"{c.name} {c.version}", duration(c.compile_seconds)))
        if c.stored_seconds is not None:
            compiles.append(("  from the store", duration(c.stored_seconds)))
    right = frozenset((*heads[1:], "time"))
    return f"{table(heads, calls, right)}\n\n{table(('compile', 'time'), compiles, right)}"


def _record(
    model: str, threads: int, feeds: Feeds, contenders: Sequence[Contender], timings: Sequence[Timing], rounds: int
) -> dict[str, Json]:
    """The report as JSON says it. `ratio` is the median over ours: above 1 where ours is faster."""
    rows: list[Json] = []
    for c, t in zip(contenders, timings, strict=True):
        row: dict[str, Json] = {
            "name": c.name,
            "version": c.version,
            "median_seconds": t.median,
            "best_seconds": t.best,
            "calls": t.calls,
            "ratio": t.median / timings[0].median,
            "best_ratio": t.best / timings[0].best,
            "compile_seconds": c.compile_seconds,
        }
        if c.stored_seconds is not None:
            row["stored_compile_seconds"] = c.stored_seconds
        if c.difference is not None:
            row["difference"] = c.difference
        rows.append(row)
    return {"model": model, "threads": threads, "sizes": dict(feeds.sizes), "rounds": rounds, "programs": rows}
