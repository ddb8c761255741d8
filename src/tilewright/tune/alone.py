"""The tuning of one kernel that belongs to no network: all of the budget is its own."""

from __future__ import annotations

import time

from tilewright.compiler.processes import processes_for_kernels
from tilewright.target import Target
from tilewright.tune.measure import Makers
from tilewright.tune.records import Record, Records
from tilewright.tune.rows import Rows
from tilewright.tune.search import Search, better_of
from tilewright.tune.task import Task


def tune_alone(task: Task, target: Target, records: Records, rows: Rows, seconds: float) -> Record:
    """Searches for about so many seconds, with what was measured before, and keeps the record, which is returned.
    Raises Failed where the default cannot be measured."""
    end, before = time.monotonic() + seconds, records.get(task.key)
    with Makers(target, processes_for_kernels()) as makers:
        known = {} if before is None else before.measured
        search = Search(task, target, makers, 0, known, model=rows.model())
        with search:
            while search.goes_on and time.monotonic() < end:
                search.step()
            found = search.confirm()
    rows.keep(search.group)
    kept = better_of(found, before)
    records.keep([kept])
    return kept
