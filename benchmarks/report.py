"""A benchmark's result: rows for a table that people read, and for JSON. `main` is the way in of every module."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Report:
    """A table: a title, heads (the first column is text, numbers follow), rows, a note below, and the same as data."""

    name: str
    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""

    def add(self, cells: Sequence[str], data: dict[str, Any]) -> None:
        """Appends a row, and what it says as data."""
        self.rows.append(tuple(cells))
        self.data.append(data)

    @property
    def width(self) -> int:
        """How many characters a line of the table takes, with the space between its columns."""
        columns = zip(self.heads, *self.rows, strict=True)
        return 2 + sum(max(len(cell) for cell in column) + 3 for column in columns)

    def markdown(self) -> str:
        """The title, the table and the note as a page has them."""
        rows = [self.heads, ("---", *["---:"] * (len(self.heads) - 1)), *self.rows]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)
        return "\n\n".join(part for part in (f"**{self.title}**", table, self.note) if part)

    def print(self) -> None:
        """Prints the table."""
        from rich import box
        from rich.console import Console
        from rich.table import Table

        console = Console(highlight=False, width=max(120, self.width))
        table = Table(title=self.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        for n, head in enumerate(self.heads):
            table.add_column(head, justify="right" if n else "left", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)
        if self.note:
            console.print(f"  {self.note}\n", style="dim")


def judge(value: float, bar: float) -> str:
    """Whether a figure stays at or below its bar, in a word."""
    return "ok" if value <= bar else "OVER"


def show(reports: Sequence[Report], as_json: bool) -> None:
    """Prints reports as tables, or as one JSON object by their names."""
    if as_json:
        print(json.dumps({r.name: r.data for r in reports}, indent=2, ensure_ascii=False))
        return
    for report in reports:
        report.print()


def main(measure: Callable[[bool], Report], about: str | None) -> None:
    """The command line of one benchmark module."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer samples, for a first look")
    options = parser.parse_args()
    show([measure(options.quick)], options.json)
