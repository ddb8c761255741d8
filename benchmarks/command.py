"""The command line of a benchmark whose tables stand in a page of the documentation: its options, and its end."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contest import numbers
from benchmarks.network_race import THREADS
from benchmarks.network_worker import CLOCKS
from benchmarks.page import write_reports
from benchmarks.report import Report, show


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
