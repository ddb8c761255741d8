"""The tuning of a program: its kernels one after another, the longest first, each with its share of the time.

    tuning = Tuning(planned, target, records, sizes)
    for row in tuning.run(budget):        a Row for each kernel, as soon as it is done
        …
    tuning.withdraw(since)                what a race of the whole program did not confirm

Records are kept as soon as a kernel is done: who stops in between keeps what was found, and the next run goes on with
kernels and choices that were not measured. A kernel gets the part of the time that its seconds are of those of all
kernels that are left; what it does not use is left for others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tilewright.compiler.processes import processes_for_kernels
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.report.errors import UserError
from tilewright.report.logs import debug
from tilewright.target import Target
from tilewright.tune.measure import Failed, Makers
from tilewright.tune.records import Record, Records, without_choice
from tilewright.tune.rows import Rows
from tilewright.tune.search import Search, better_of
from tilewright.tune.space import least_price
from tilewright.tune.task import Task, task_of

UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
"""Units of a budget, in seconds."""

MOST_FLUSHED = 64 << 20
"""Bytes that are pushed through the caches before a call, at most: each costs its time at the rate of memory."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of a kernel: its name, the places that call it, its part of the time of all kernels, the seconds of a
    call by default, those of the best choice over them, how many choices were measured in all, and why none, if so; and
    the seconds that the machine's peaks allow for a call (None where that is not known)."""

    kernel: str
    calls: int
    share: float
    default_seconds: float
    ratio: float
    measured: int
    skipped: str = ""
    bound: float | None = None

    @property
    def roofline(self) -> float | None:
        """What the peaks allow over what a call takes by the best choice."""
        seconds = self.default_seconds * self.ratio
        return None if self.bound is None or seconds <= 0 else self.bound / seconds


@dataclass(frozen=True, slots=True)
class _Part:
    """A task and the seconds that its calls should take by price."""

    task: Task
    seconds: float


class Tuning:
    """The kernels of a planned module that can be tuned, by the time they should take. `sizes` are those of symbols by
    name, in place of what is assumed; calls have so many `threads`; the names of kernels have a match of `kernels`.
    `bounds` are the seconds that the machine's peaks allow for a call, by the names of kernels; the cost model learns
    from `rows`, and what is measured is added to them."""

    def __init__(
        self,
        planned: Module,
        target: Target,
        records: Records,
        sizes: Mapping[str, int],
        threads: int = 1,
        kernels: str = "",
        bounds: Mapping[str, float] | None = None,
        rows: Rows | None = None,
    ) -> None:
        self._bounds, self._rows = bounds or {}, rows
        self._model = None if rows is None else rows.model()
        self.target, self.records, self.threads = target, records, threads
        wanted = [f for f in planned.functions.values() if isinstance(f, Function) and re.search(kernels, f.name)]
        tasks = [task for f in wanted if (task := task_of(planned, f, sizes)) is not None]
        parts = [_Part(task, task.calls * least_price(task, target)) for task in tasks]
        self._parts = sorted((p for p in parts if p.seconds > 0), key=lambda part: -part.seconds)
        self._flush = _flushed(planned, target)
        self.is_kept = True
        """Whether the store took all records."""

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def keys(self) -> set[str]:
        """The keys of all kernels."""
        return {part.task.key for part in self._parts}

    def run(self, budget: float, watch: Callable[[Row], object] | None = None) -> Iterator[Row]:
        """Tunes for `budget` seconds; a row for each kernel. Kernels for which no time is left are not among them.
        `watch` is called after each batch with the row as it stands."""
        end, total = time.monotonic() + budget, sum(part.seconds for part in self._parts)
        rest = total
        with Makers(self.target, processes_for_kernels(), self.threads) as makers:
            for n, part in enumerate(self._parts):
                left = end - time.monotonic()
                if left <= 0:
                    return
                share = part.seconds / rest if rest > 0 else 1.0
                yield self._tune(part, makers, left * share, part.seconds / total, n, watch or _look_away)
                rest -= part.seconds

    def _tune(
        self,
        part: _Part,
        makers: Makers,
        seconds: float,
        share: float,
        seed: int,
        watch: Callable[[Row], object],
    ) -> Row:
        task, name = part.task, part.task.function.name
        before = self.records.get(task.key)
        known = before.measured if before is not None and before.threads == self.threads else {}
        search = Search(task, self.target, makers, self._flush, known, seed, self._model)
        end = time.monotonic() + seconds
        try:
            with search:
                while search.goes_on and time.monotonic() < end:
                    search.step()
                    so_far = search.default_seconds, search.ratio, len(search.measured)
                    watch(Row(name, task.calls, share, *so_far, bound=self._bounds.get(name)))
                found = better_of(search.confirm(), before)
            if self._rows is not None:
                self._rows.keep(search.group)
        except KeyboardInterrupt:
            self.records.keep([better_of(search.so_far, before)])
            raise
        except Failed as error:
            debug("%s cannot be tuned: %s", name, error)
            return Row(name, task.calls, share, 0.0, 1.0, 0, str(error))
        self.is_kept &= self.records.keep([found])
        ratio = found.seconds / found.default_seconds if found.is_better else 1.0
        return Row(
            name, task.calls, share, search.default_seconds, ratio, len(found.measured), bound=self._bounds.get(name)
        )

    def changes(self, since: Mapping[str, Record]) -> bool:
        """Whether some kernel has another choice than it had `since`."""
        return any(_choice(self.records.get(key)) != _choice(since.get(key)) for key in self.keys)

    def withdraw(self, since: Mapping[str, Record]) -> None:
        """Takes back the choices that were not there `since`: the program is not faster with them."""
        fresh = [self.records[key] for key in self.keys & set(self.records)]
        self.records.keep(since.get(r.key, without_choice(r)) for r in fresh if r.is_better)


def _look_away(row: Row) -> None:
    """Watches nothing."""


def _choice(record: Record | None) -> object:
    return None if record is None or not record.is_better else (record.template, record.choice)


def read_budget(budget: str | float) -> float:
    """The seconds of a budget such as `90`, `60s`, `2m` or `500ms`. UserError for anything else."""
    text = str(budget).strip()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :] or "s"
    try:
        seconds = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        why = f"{text!r} is no length of time above zero; the units are {', '.join(UNITS)}"
        raise UserError("cannot tune for so long", why=why, fix='write "60s" or "2m"')
    return seconds


def _flushed(module: Module, target: Target) -> int:
    """The bytes that other kernels push through the caches between two calls of one: none where all that the program
    reads stays in the second cache."""
    held = sum(array.nbytes for array in module.constants.values())
    near = target.cache(2).bytes
    if held <= near:
        return 0
    last = target.caches[-1].bytes
    return min(2 * near if held <= last else 2 * last, MOST_FLUSHED)
