"""The command line of a benchmark whose tables stand in a page of the documentation: its options, and its end."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from benchmarks.contest import Options, Run, numbers
from benchmarks.failures import exit_on_failures
from benchmarks.network_race import THREADS
from benchmarks.network_worker import CLOCKS
from benchmarks.page import write_reports
from benchmarks.report import Report, show
from tilewright.report.progress import progress


def page_command(name: str, about: str | None, cases: str, quick: str | None = None) -> argparse.ArgumentParser:
    """A parser of the options that all take: which cases, and where tables go. `quick` says what a quick run is."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(about or "").split("\n")[0])
    parser.add_argument("--only", default="", metavar="REGEX", help=f"{cases} whose name has a match")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into a page, between its marks")
    return parser


def add_models(parser: argparse.ArgumentParser) -> None:
    """The option of those that write the networks' models to files."""
    parser.add_argument("--models", type=Path, metavar="DIR", help="keep the models' files, and use those kept")


def add_clock(parser: argparse.ArgumentParser) -> None:
    """The option of those that may run beside other programs."""
    words = "of calls with one thread; `processor` is for a machine that other programs keep busy"
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help=words)


def add_turns(parser: argparse.ArgumentParser) -> None:
    """The options of those whose engines take turns."""
    parser.add_argument("--threads", type=numbers, default=THREADS, metavar="N,N", help="numbers of threads")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each engine in each race")


def deliver(
    asked: argparse.Namespace, mark: str, reports: Sequence[Report], on_page: Sequence[Report] | None = None
) -> None:
    """Prints all reports, and puts them, or those that it shows, between these marks of the page asked for."""
    show(reports, asked.json)
    if asked.write is not None:
        write_reports(asked.write, mark, reports if on_page is None else on_page)


class Part(Protocol):
    """What is measured alone: an operator as a network has it."""

    @property
    def name(self) -> str:
        """As shown."""

    @property
    def network(self) -> str:
        """The network that it is part of."""


PartT = TypeVar("PartT", bound=Part)


def run_parts(
    name: str,
    about: str | None,
    kind: str,
    parts: Sequence[PartT],
    measure: Callable[[Sequence[PartT], Sequence[int], Run], Report],
) -> None:
    """The whole command `name` of a benchmark of parts of networks, each alone: `measure` makes its table of those that
    were chosen, for these numbers of threads. Each part is a `kind`."""
    parser = page_command(name, about, f"{kind}s")
    add_turns(parser)
    asked = parser.parse_args()
    options = Options(only=asked.only, **({} if asked.rounds is None else {"rounds": asked.rounds}))
    chosen = [part for part in parts if options.wants(f"{part.name} {part.network}")]
    with progress("measuring", len(chosen)) as step:
        run = Run(options, step)
        reports = [measure(chosen, asked.threads, run), *run.failures.reports(kind)]
    shown = [report for report in reports if report.rows]
    deliver(asked, name, shown)
    exit_on_failures(shown)
