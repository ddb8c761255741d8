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

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.compiler.processes import processes_for_kernels
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.report.errors import UserError
from tilewright.report.logs import debug
from tilewright.target import Target
from tilewright.tune.measure import Failed, Makers
from tilewright.tune.records import Record, Records, without_choice
from tilewright.tune.search import Search, better_of
from tilewright.tune.space import space_of
from tilewright.tune.task import Task, task_of

UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
"""Units of a budget, in seconds."""

MOST_FLUSHED = 64 << 20
"""Bytes that are pushed through the caches before a call, at most: each costs its time at the rate of memory."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of a kernel: its name, the places that call it, its part of the time of all kernels, the seconds of a
    call by default, those of the best choice over them, how many choices were measured in all, and why none, if so."""

    kernel: str
    calls: int
    share: float
    default_seconds: float
    ratio: float
    measured: int
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    """A task and the seconds that its calls should take by price."""

    task: Task
    seconds: float


class Tuning:
    """The kernels of a planned module that can be tuned, by the time they should take. `sizes` are those of symbols by
    name, in place of what is assumed."""

    def __init__(self, planned: Module, target: Target, records: Records, sizes: Mapping[str, int]) -> None:
        self.target, self.records = target, records
        tasks = [task_of(planned, f, sizes) for f in planned.functions.values() if isinstance(f, Function)]
        parts = [_Part(task, _price(task, target)) for task in tasks if task is not None]
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

    def run(self, budget: float) -> Iterator[Row]:
        """Tunes for `budget` seconds; a row for each kernel. Kernels for which no time is left are not among them."""
        end, total = time.monotonic() + budget, sum(part.seconds for part in self._parts)
        rest = total
        with Makers(self.target, processes_for_kernels()) as makers:
            for n, part in enumerate(self._parts):
                left = end - time.monotonic()
                if left <= 0:
                    return
                share = part.seconds / rest if rest > 0 else 1.0
                yield self._tune(part, makers, left * share, part.seconds / total, n)
                rest -= part.seconds

    def _tune(self, part: _Part, makers: Makers, seconds: float, share: float, seed: int) -> Row:
        task, name = part.task, part.task.function.name
        before = self.records.get(task.key)
        search = Search(task, self.target, makers, self._flush, {} if before is None else before.measured, seed)
        end = time.monotonic() + seconds
        try:
            with search:
                while search.goes_on and time.monotonic() < end:
                    search.step()
                found = better_of(search.confirm(), before)
        except Failed as error:
            debug("%s cannot be tuned: %s", name, error)
            return Row(name, task.calls, share, 0.0, 1.0, 0, str(error))
        self.is_kept &= self.records.keep([found])
        ratio = found.seconds / found.default_seconds if found.is_better else 1.0
        return Row(name, task.calls, share, search.default_seconds, ratio, len(found.measured))

    def changes(self, since: Mapping[str, Record]) -> bool:
        """Whether some kernel has another choice than it had `since`."""
        return any(_choice(self.records.get(key)) != _choice(since.get(key)) for key in self.keys)

    def withdraw(self, since: Mapping[str, Record]) -> None:
        """Takes back the choices that were not there `since`: the program is not faster with them."""
        fresh = [self.records[key] for key in self.keys & set(self.records)]
        self.records.keep(since.get(r.key, without_choice(r)) for r in fresh if r.is_better)


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


def _price(task: Task, target: Target) -> float:
    """The seconds that the calls of a kernel should take; nothing where there is no choice."""
    space = space_of(task, target)
    return task.calls * space[0].price if space else 0.0


def _flushed(module: Module, target: Target) -> int:
    """The bytes that other kernels push through the caches between two calls of one: none where all that the program
    reads stays in the second cache."""
    held = sum(array.nbytes for array in module.constants.values())
    near = target.cache(2).bytes
    if held <= near:
        return 0
    last = target.caches[-1].bytes
    return min(2 * near if held <= last else 2 * last, MOST_FLUSHED)
