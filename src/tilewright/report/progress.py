"""A display for work that takes more than a second: what is being done, and how much is left.

    with progress("compiling", total=len(kernels)) as step:
        for kernel in kernels:
            build(kernel)
            step(kernel.name)

Work that ends within `DELAY` seconds shows nothing, and neither does anything where stderr is no terminal. The display
is gone when the block ends, however it ends.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from tilewright.report.printable import printable

if TYPE_CHECKING:
    import rich.progress

DELAY = 1.0


class progress:
    """A context manager whose value is called once for each finished step, with a word for what was finished.

    Without `total` the display says that work goes on, and not how much is left. Safe to call from several threads.
    """

    def __init__(self, title: str, total: int | None = None) -> None:
        self._title = printable(title)
        self._total = total
        self._done = 0
        self._detail = ""
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._display: rich.progress.Progress | None = None
        self._closed = False

    def __enter__(self) -> progress:
        if sys.stderr is not None and sys.stderr.isatty():
            self._timer = threading.Timer(DELAY, self._open)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __call__(self, detail: str = "", steps: int = 1) -> None:
        with self._lock:
            self._done += steps
            self._detail = detail = printable(detail)
            if self._display is not None:
                self._display.update(self._display.task_ids[0], completed=self._done, detail=detail)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._display is not None:
                self._display.stop()

    def _open(self) -> None:
        """Runs on the timer's thread once the work has taken longer than the delay."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        title, detail = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[detail]}"))
        count = TextColumn("" if self._total is None else "{task.completed}/{task.total}")
        with self._lock:
            if self._closed:
                return
            self._display = Progress(
                title, BarColumn(), count, TimeElapsedColumn(), detail, console=Console(stderr=True), transient=True
            )
            self._display.add_task(self._title, total=self._total, completed=self._done, detail=self._detail)
            self._display.start()
