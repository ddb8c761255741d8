"""The display of `tilewright tune` while it measures: the kernels by their part of the time, the best of each so far,
and the time that is left.

It goes to stderr where that is a terminal, else there is none, and is gone when the block ends, however it ends.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from tilewright.cli.tables import duration
from tilewright.report.printable import printable
from tilewright.tune.network import Row

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

SHOWN = 12
"""Kernels in the display, the last ones."""

HEADS = ("kernel", "calls", "share", "default", "best", "gain", "of roofline", "measured")


class TuneTable:
    """A context manager whose value is called with the row of a kernel, as often as it changes."""

    def __init__(self, title: str, seconds: float) -> None:
        self._title, self._end = printable(title), time.monotonic() + seconds
        self._rows: dict[str, Row] = {}
        self._live: Live | None = None

    def __enter__(self) -> TuneTable:
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), get_renderable=self.table, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, row: Row) -> None:
        self._rows[row.kernel] = row

    def table(self) -> Table:
        """The display as it stands."""
        from rich import box
        from rich.table import Table

        left = max(self._end - time.monotonic(), 0.0)
        made = Table(title=f"{self._title}: {left:.0f} s left", title_justify="left", box=box.SIMPLE_HEAD)
        for n, head in enumerate(HEADS):
            made.add_column(head, justify="right" if n else "left", no_wrap=True)
        for row in list(self._rows.values())[-SHOWN:]:
            made.add_row(printable(row.kernel), str(row.calls), f"{row.share:.1%}", *cells_of(row))
        return made


def cells_of(row: Row) -> tuple[str, ...]:
    """What was measured of a kernel: by default, the best, the gain, its part of the roofline, and how many choices."""
    best = row.skipped or duration(row.default_seconds * row.ratio)
    gain = f"{1 / row.ratio:.2f}x" if row.ratio < 1 else ""
    roofline = "" if row.roofline is None else f"{row.roofline:.0%}"
    return duration(row.default_seconds), best, gain, roofline, str(row.measured)
