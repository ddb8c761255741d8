"""How good a choice a search finds: tables of all choices of kernels, measured once, from which it is played again.

    python -m benchmarks.search_tables [--only REGEX] [--measurements N] [--seeds N] [--json]
    python -m benchmarks.search_tables --measure [--only REGEX] [--most N]

Without `--measure` nothing runs: for each table in `benchmarks/search_tables/` the search's own code draws batches, and
gets their times from the table. A kernel's quality is the time of its best choice over that of the best one that was
found, the median over seeds. Where LightGBM is installed, searches are played with the shipped cost model, too, which
has seen none of these kernels, and its ranking of all choices is told.

With `--measure` tables are written. All choices of a kernel are made and timed, a few at a time in turns with the
default, the least of their turns by the default's; the best again, in longer turns, and loaded several times, since it
makes a difference where in memory a program lies: the best of hundreds would be one that lay well.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence

from benchmarks.choice_tables import FOLDER, Table, file_of, tables
from benchmarks.ranking import by_model, group_of, known_tables, ranking
from benchmarks.report import Report, show
from benchmarks.search_kernels import search_tasks
from tilewright.runtime.machine import measured
from tilewright.target import Target, native
from tilewright.tune.measure import Failed, Makers, Trials
from tilewright.tune.model import Model, shipped
from tilewright.tune.space import space_of
from tilewright.tune.strategy import Strategy
from tilewright.tune.task import Task

MEASUREMENTS, SEEDS, BAR = 64, 9, 0.97
"""Choices that a search measures, seeds that it is played with, and what share of the best speed it has to find."""

AT_ONCE, TURN_SECONDS, AGAIN, LONGER, LOADS = 24, 0.012, 40, 2, 3
"""Choices timed in turns, and seconds of the turns of each; how many of the best are timed again, by how many times
as many turns, and how often they are loaded for it."""

LEAST, MOST = 9, 60
"""Turns of a choice."""

FLUSHED = 2 << 20
"""Bytes pushed through the caches before a call: weights are not in the near caches, as in a network."""

FLUSH_RATE = 1e10
"""Bytes of these a second, about."""


def play(table: Table, seed: int, measurements: int = MEASUREMENTS, model: Model | None = None) -> float:
    """The best time over the default's that the search finds with so many measurements, and a cost model."""
    strategy, taken, found = Strategy(table.choices, seed, model=model), 0, 1.0
    while taken < measurements and len(strategy.measured) < len(table.choices):
        batch = strategy.draw()[: measurements - taken]
        ratios = {choice.name: table.ratios[choice.name] for choice in batch}
        strategy.learn(ratios)
        taken, found = taken + len(batch), min(found, *ratios.values())
    return found


def report(
    found: Sequence[Table], measurements: int = MEASUREMENTS, seeds: int = SEEDS, model: Model | None = None
) -> Report:
    """A row for each table, of searches that begin with a cost model."""
    heads = ("kernel", "choices", "best", "by price", "found", "worst seed", "share of the best")
    title = f"What {measurements} measurements find, as a share of the best speed"
    title += "" if model is None else ", with the cost model"
    made, shares = Report("search_tables", title, heads), []
    for table in found:
        played = [play(table, seed, measurements, model) for seed in range(seeds)]
        middle, worst = statistics.median(played), max(played)
        share = table.best / middle
        shares.append(share)
        by_price = min(1.0, *(table.ratios[c.name] for c in table.choices[:measurements]))
        times = [f"{time:.3f}" for time in (table.best, by_price, middle, worst)]
        cells = (table.kernel, str(len(table.choices)), *times, f"{share:.3f}")
        data = {"kernel": table.kernel, "best": table.best, "found": played, "share": share}
        made.add(cells, data)
    if shares:
        mean = statistics.geometric_mean(shares)
        made.note = (
            f"times over the default's; geometric mean of shares {mean:.3f}, least {min(shares):.3f} (bar {BAR})"
        )
    return made


def measure(name: str, task: Task, target: Target, most: int) -> Table | None:
    """The table of a kernel; None where it has more choices than `most`. Those that cannot be measured are left out."""
    space = space_of(task, target)
    if not 8 <= len(space) <= most:
        return None
    ratios: dict[str, float] = {}
    programs: dict[str, bytes] = {}
    with Makers(target, 2) as makers, Trials(task.sizes, FLUSHED) as trials:
        (default,) = makers.make(task, [None])
        assert isinstance(default, bytes)
        trials.load(0, default)
        (taken,) = trials.time([0], LEAST)
        rounds = min(max(round(TURN_SECONDS / (2 * min(taken) + FLUSHED / FLUSH_RATE)), LEAST), MOST)
        for first in range(0, len(space), AT_ONCE):
            batch = space[first : first + AT_ONCE]
            made = makers.make(task, [c.asked for c in batch])
            loaded = {c.name: p for c, p in zip(batch, made, strict=True) if isinstance(p, bytes)}
            found = _turns(trials, loaded, rounds)
            ratios |= found
            programs |= {name: loaded[name] for name in found}
            ahead = sorted(programs, key=lambda name: ratios[name])[:AGAIN]
            programs = {name: programs[name] for name in ahead}
            print(f"\r{name}: {len(ratios)} of {len(space)}, best {min(ratios.values()):.3f}", end="", file=sys.stderr)
        again = [_turns(trials, programs, LONGER * rounds) for _ in range(LOADS)]
        ratios |= {name: statistics.median([found[name] for found in again if name in found]) for name in again[0]}
    print(file=sys.stderr)
    measured = tuple(c for c in space if c.name in ratios)
    return Table(name, target.name, measured, ratios)


def _turns(trials: Trials, programs: Mapping[str, bytes], rounds: int) -> dict[str, float]:
    """The least time of each program over the default's, in turns."""
    numbers: dict[str, int] = {}
    for number, (name, program) in enumerate(programs.items(), 1):
        try:
            trials.load(number, program)
        except Failed:
            continue
        numbers[name] = number
    first, *rows = trials.time([0, *numbers.values()], rounds)
    trials.forget(list(numbers.values()))
    return {name: min(row) / min(first) for name, row in zip(numbers, rows, strict=True) if math.isfinite(min(row))}


def main() -> None:
    """Plays searches from tables, or measures these."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_tables", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="kernels whose name has a match")
    parser.add_argument("--measurements", type=int, default=MEASUREMENTS, metavar="N", help="those of a search")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="searches of each kernel")
    parser.add_argument("--measure", action="store_true", help="write the tables of this machine")
    parser.add_argument("--most", type=int, default=5000, metavar="N", help="choices of a kernel that is measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    if asked.measure:
        target = measured(native())
        for name, task in search_tasks(target, asked.only):
            table = measure(name, task, target, asked.most)
            if table is not None:
                FOLDER.mkdir(exist_ok=True)
                file_of(name).write_text(table.dump())
        return
    reports, model = [report(list(tables(asked.only)), asked.measurements, asked.seeds)], shipped()
    if model is not None:
        known = known_tables(native(), asked.only)
        ways = {"price": by_model(None), "model": by_model(model)}
        reports.append(report(known, asked.measurements, asked.seeds, model))
        reports.append(ranking("How choices are ranked before any is measured", list(map(group_of, known)), ways))
    show(reports, asked.json)


if __name__ == "__main__":
    main()
