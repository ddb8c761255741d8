"""`tilewright profile`: where the time of a call goes, kernel by kernel, and a timeline of all threads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from tilewright.cli import options
from tilewright.cli.feeds import make_feeds
from tilewright.cli.fit import say
from tilewright.cli.guard import note
from tilewright.cli.model import How, compile_model, count_threads, graph_of, tell_assumptions, title
from tilewright.cli.saving import place_for, save_text
from tilewright.cli.tables import counted, duration, json_text, table
from tilewright.core.switches import HIGHEST, PLAIN
from tilewright.report.progress import progress
from tilewright.runtime.profile import Profile, SiteTime
from tilewright.store import Json

SPARE = ("predicted", "balance", "GB/s", "calls", "GFLOP/s", "roofline", "holds")
"""Columns that a narrow terminal is spared, the first one first."""

SOURCES = 2
"""The most operators of the model that a row names; of more, the number is shown."""

Trace = Annotated[
    str | None,
    typer.Option("--trace", metavar="FILE", help="Write a timeline that ui.perfetto.dev and chrome://tracing open."),
]

Sites = Annotated[bool, typer.Option("--calls", help="A row for each place that calls a kernel, in program order.")]

Seconds = Annotated[float, typer.Option("--seconds", min=0.0, max=86400.0, help="How long to measure.")]


def profile(
    model: options.Model,
    inputs: options.Inputs = [],  # noqa: B006  (typer reads the default, nothing changes it)
    sizes: options.Sizes = [],  # noqa: B006
    threads: options.Threads = None,
    seconds: Seconds = 2.0,
    calls: Sites = False,
    trace: Trace = None,
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
    """Show where the time of a call goes, kernel by kernel.

    Each kernel is timed by the program itself. A row says how fast it is, the share of what the machine could do at
    best (the roofline), what planning expected on one core, how evenly threads shared it, and which operators it holds.

    \b
    Examples:
      tilewright profile model.onnx --threads 1
      tilewright profile model.onnx --calls --trace timeline.json
    """
    place = None if trace is None else place_for(trace, "--trace", model, inputs)
    executable = compile_model(
        model, threads=threads, how=How(level, off, dims, precision, denormals, choices, strict, imports)
    )
    feeds = make_feeds(executable.inputs, inputs, sizes, random=True, seed=seed, graph=graph_of(executable))
    tell_assumptions(feeds, sizes)
    with progress("measuring"):
        found = executable.profile(feeds.arrays, seconds=seconds)
    if place is not None:
        save_text(place, json.dumps(found.timeline(), separators=(",", ":")))
        note(f"{place} holds the timeline of the fastest call; open it with ui.perfetto.dev")
    if not executable.program.target.measured:
        note("peaks and bandwidths are estimates, which kernels may exceed; `tilewright doctor` measures them")
    if found.subnormals is not None and found.subnormals.any:
        note(found.subnormals.told())
    if as_json:
        record: dict[str, Json] = {"model": model, "sizes": dict(feeds.sizes)}
        print(json_text(record | found.record()))
    else:
        say(f"{title(model, count_threads(threads))}\n\n{_report(found, calls)}")
    return 0


def _report(found: Profile, calls: bool) -> str:
    """The table of kernels, and what the whole call takes."""
    rows = [[row] for row in found.sites] if calls else _by_kernel(found.sites)
    lines = [_row(group, found.seconds) for group in rows]
    between = max(found.between, 0.0)
    lines.append(("between kernels", "", duration(between), _share(between / found.seconds), *[""] * 6))
    heads = ("kernel", "calls", "time", "share", "GFLOP/s", "GB/s", "roofline", "predicted", "balance", "holds")
    shown = table(heads, lines, frozenset(heads[1:-1]), SPARE)
    whole = f"a call takes {duration(found.seconds)}, {duration(found.plain_seconds)} where nothing is noted"
    return f"{shown}\n\n{whole}; {counted(found.calls, 'call')} measured, up to {counted(found.threads, 'thread')}"


def _by_kernel(sites: Sequence[SiteTime]) -> list[list[SiteTime]]:
    """The sites of each kernel together, the kernel that takes longest first."""
    groups: dict[str, list[SiteTime]] = {}
    for row in sites:
        groups.setdefault(row.site.kernel, []).append(row)
    return sorted(groups.values(), key=lambda group: -sum(row.seconds for row in group))


def _row(group: Sequence[SiteTime], whole: float) -> tuple[str, ...]:
    seconds = sum(row.seconds for row in group)
    flops, moved, bound, predicted = (
        _total([getattr(row, name) for row in group]) for name in ("flops", "bytes", "bound", "predicted")
    )
    balances = [row.balance for row in group if row.balance is not None]
    return (
        group[0].site.kernel,
        str(sum(row.calls for row in group)),
        duration(seconds),
        _share(seconds / whole),
        _rate(flops, seconds),
        _rate(moved, seconds),
        "" if not bound or not seconds else _share(bound / seconds),
        "" if predicted is None else duration(predicted),
        "" if not balances else _share(sum(balances) / len(balances)),
        _holds(group),
    )


def _total(parts: Sequence[float | None]) -> float | None:
    """The sum, where all of it is known."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _rate(amount: float | None, seconds: float) -> str:
    return "" if not amount or not seconds else f"{amount / seconds / 1e9:.1f}"


def _share(part: float) -> str:
    return f"{100 * part:.0f}%" if part >= 0.1 else f"{100 * part:.1f}%"


def _holds(group: Sequence[SiteTime]) -> str:
    """What the kernel holds: the model's operators, or, where several places hold different ones, those of the plan."""
    first = group[0].site
    names = first.source if len(group) == 1 and first.source else first.operators
    more = len(names) - SOURCES
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:SOURCES])} and {more} more"
