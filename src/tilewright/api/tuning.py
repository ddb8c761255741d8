"""Tuning around a compilation: before it, and a race of the whole program after it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.analysis.sizes import Sizes
from tilewright.artifact.stored import compiler_version
from tilewright.compiler.pipeline import as_planned, plan_kernels
from tilewright.plan.decision import Choices
from tilewright.report.arguments import check_kind
from tilewright.report.errors import UserError
from tilewright.runtime.executable import Executable
from tilewright.store import Store
from tilewright.target import Target
from tilewright.target.host import current_host
from tilewright.tune.network import Row, Tuning, read_budget
from tilewright.tune.records import Records
from tilewright.tune.trial import feeds_of

PAIRS, LOSSES, SLOWER = 15, 12, 1.005
"""Runs of the program before and after in turns; where so many are lost, or the median is so much longer, what was
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


def tune_with(
    make: Callable[[], Executable],
    machine: Target,
    budget: str | float,
    sizes: Mapping[str, int] | None = None,
    tell: Callable[[Row], None] | None = None,
) -> TuneResult:
    """Tunes the program that `make` compiles, with the choices that the store has by then, as `tilewright.autotune`
    does."""
    check_kind("budget", budget, (str, int, float), "a length of time", 'budget="60s"')
    seconds = read_budget(budget)
    store = Store.default()
    _check(store, machine)
    before = make()
    origin = before.origin
    assert origin is not None
    planned = plan_kernels(as_planned(origin), machine, Choices())
    records = Records.of(store, machine, compiler_version())
    since = dict(records)
    tuning = Tuning(planned, machine, records, sizes or {})
    rows: list[Row] = []
    for row in tuning.run(seconds):
        rows.append(row)
        if tell is not None:
            tell(row)
    if rows and not tuning.is_kept:
        why = "what was found could not be written to the store"
        raise UserError("tuning is lost", where=str(store.path), why=why, fix="free space there, and tune again")
    if not tuning.changes(since):
        return TuneResult(tuple(rows), len(tuning), None, True, before)
    after = make()
    ratio, lost = _race(before, after, sizes or {})
    kept = lost < LOSSES and ratio < SLOWER
    if not kept:
        tuning.withdraw(since)
        after = before
    return TuneResult(tuple(rows), len(tuning), ratio, kept, after)


def _check(store: Store, machine: Target) -> None:
    if not store.is_on:
        why = "TILEWRIGHT_STORE is off, and what tuning finds is kept there"
        raise UserError("cannot tune without a store", why=why, fix="set it to a folder, or leave it out")
    if not machine.is_runnable_on(current_host()):
        why = "tuning runs the kernels, and this machine cannot"
        raise UserError(f"cannot tune for {machine}", why=why, fix="tune on such a machine, and export the records")


def _race(before: Executable, after: Executable, sizes: Mapping[str, int]) -> tuple[float, int]:
    """The median time of a call of the program after over that before, and how many of the pairs it lost."""
    assumed = Sizes()
    known = {s.name: assumed.of(s) for s in before.interface.symbols} | dict(sizes)
    feeds = feeds_of(before, known)
    pair = (before, after)
    for executable in pair:
        executable(*feeds)
    ratios, order = [], np.random.default_rng(0)
    for _ in range(PAIRS):
        taken = [0.0, 0.0]
        for n in order.permutation(2):
            start = time.perf_counter()
            pair[n](*feeds)
            taken[n] = time.perf_counter() - start
        ratios.append(taken[1] / taken[0])
    return statistics.median(ratios), sum(ratio > 1 for ratio in ratios)
