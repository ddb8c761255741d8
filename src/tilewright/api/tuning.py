"""Tuning around a compilation: before it, and a race of the whole program after it."""

from __future__ import annotations

import pickle
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.analysis.sizes import Sizes
from tilewright.artifact.stored import compiler_version
from tilewright.compiler.pipeline import as_planned, plan_kernels
from tilewright.core.frames import with_room
from tilewright.expr.nodes import Const
from tilewright.report.arguments import check_kind
from tilewright.report.errors import UserError
from tilewright.runtime.executable import Executable
from tilewright.runtime.plan_report import Choices, PlanReport
from tilewright.runtime.profile import bound_seconds
from tilewright.store import Store
from tilewright.target import Target
from tilewright.target.host import current_host
from tilewright.tune.network import Row, Tuning, read_budget
from tilewright.tune.records import Records
from tilewright.tune.rows import Rows
from tilewright.tune.search import chance_of
from tilewright.tune.trial import feeds_of

PAIRS, LOADED, LOTS, CHANCE, SLOWER = 15, 5, 4, 0.02, 1.005
"""Runs of the program before and after in turns, loaded again after some, lot after lot until one of them wins more
than chance gives equals; where that is the one before, or where none does and the median is so much longer, what was
found is taken back."""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What tuning found: a row for each kernel that it came to, how many there are, the time of a call over what it was
    before (None where nothing was found), whether the choices are kept, and the executable with them."""

    rows: tuple[Row, ...]
    kernels: int
    ratio: float | None
    kept: bool
    executable: Executable


@with_room
def tune_with(
    make: Callable[[], Executable],
    machine: Target,
    budget: str | float,
    sizes: Mapping[str, int] | None = None,
    tell: Callable[[Row], None] | None = None,
    watch: Callable[[Row], object] | None = None,
    threads: int = 1,
    kernels: str = "",
) -> TuneResult:
    """Tunes the program that `make` compiles, with the choices that the store has by then, as `tilewright.autotune`
    does, in calls of so many `threads`."""
    check_kind("budget", budget, (str, int, float), "a length of time", 'budget="60s"')
    seconds = read_budget(budget)
    store = Store.default()
    _check(store, machine)
    before = make()
    origin = before.origin
    assert origin is not None
    choices = Choices()
    planned = plan_kernels(as_planned(origin), machine, choices)
    assert choices.plan is not None
    bounds = _bounds(choices.plan, machine, threads)
    records = Records.of(store, machine, compiler_version())
    since = dict(records)
    measured = Rows.of(store, machine, compiler_version()) if threads == 1 else None
    tuning = Tuning(planned, machine, records, sizes or {}, threads, _pattern(kernels), bounds, measured)
    rows: list[Row] = []
    for row in tuning.run(seconds, watch):
        rows.append(row)
        if tell is not None:
            tell(row)
    if rows and not tuning.is_kept:
        why = "what was found could not be written to the store"
        raise UserError("tuning is lost", where=str(store.path), why=why, fix="free space there, and tune again")
    if not tuning.changes(since):
        return TuneResult(tuple(rows), len(tuning), None, True, before)
    after = make()
    ratio, kept = _race(before, after, sizes or {})
    if not kept:
        tuning.withdraw(since)
        after = before
    return TuneResult(tuple(rows), len(tuning), ratio, kept, after)


def _bounds(plan: PlanReport, machine: Target, threads: int) -> dict[str, float]:
    """The seconds that the machine's peaks allow for a call of each kernel whose work is known."""
    found = {}
    for row in plan.kernels:
        if isinstance(row.flops, Const) and isinstance(row.bytes, Const):
            bound = bound_seconds(int(row.flops.value), int(row.bytes.value), 1, machine, threads)
            if bound is not None:
                found[row.name] = bound
    return found


def _pattern(kernels: str) -> str:
    """A pattern of names. UserError where it is none."""
    try:
        re.compile(kernels)
    except re.error as error:
        fix = "write names as `tilewright why MODEL` lists them, such as conv1|dense2"
        raise UserError(f"cannot take the kernels {kernels!r}", why=f"it is no pattern: {error}", fix=fix) from None
    return kernels


def _check(store: Store, machine: Target) -> None:
    if not store.is_on:
        why = "TILEWRIGHT_STORE is off, and what tuning finds is kept there"
        raise UserError("cannot tune without a store", why=why, fix="set it to a folder, or leave it out")
    if not machine.is_runnable_on(current_host()):
        why = "tuning runs the kernels, and this machine cannot"
        raise UserError(f"cannot tune for {machine}", why=why, fix="tune on such a machine, and export the records")


def _race(before: Executable, after: Executable, sizes: Mapping[str, int]) -> tuple[float, bool]:
    """The median time of a call of the program after over that before, and whether it is to be kept."""
    assumed = Sizes()
    known = {s.name: assumed.of(s) for s in before.interface.symbols} | dict(sizes)
    feeds = feeds_of(before, known)
    pair = [before, after]
    # Of one thread what counts is its own time, whatever runs beside it.
    clock = time.thread_time if before.threads == 1 else time.perf_counter
    ratios, order = list[float](), np.random.default_rng(0)
    for n in range(PAIRS * LOTS):
        if n % LOADED == 0:  # where in memory a program lies may make more of a difference than tuning does
            for which in (0, 1) if n % (2 * LOADED) else (1, 0):
                pair[which] = pickle.loads(pickle.dumps((before, after)[which]))
                pair[which](*feeds)
        taken = [0.0, 0.0]
        for which in order.permutation(2):
            start = clock()
            pair[which](*feeds)
            taken[which] = clock() - start
        ratios.append(taken[1] / taken[0])
        if (n + 1) % PAIRS == 0:
            wins, losses = sum(r < 1 for r in ratios), sum(r > 1 for r in ratios)
            if min(chance_of(wins, n + 1), chance_of(losses, n + 1)) <= CHANCE:
                return statistics.median(ratios), wins > losses
    ratio = statistics.median(ratios)
    return ratio, ratio < SLOWER
