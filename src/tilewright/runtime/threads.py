"""How many threads the calls of an executable may use."""

from __future__ import annotations

from tilewright.report import settings
from tilewright.report.errors import UserError
from tilewright.target.host import current_host


def count_threads(threads: int | None) -> int:
    """What was asked for; by default the setting TILEWRIGHT_NUM_THREADS, else every core that this process may use: one
    for each physical core of its affinity, at most the whole processors of its control group's quota.

    Raises UserError for what is no number of threads.
    """
    if threads is None:
        return settings.NUM_THREADS.read() or current_host().cores
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= settings.MOST_THREADS:
        raise UserError(
            f"cannot use {threads!r} threads",
            why=f"it counts threads, from 1 to {settings.MOST_THREADS}",
            fix="leave it out for one on each core",
        )
    return threads
