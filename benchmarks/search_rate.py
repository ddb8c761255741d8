"""How fast a search makes and measures choices of kernels, and what a record costs a compilation.

    python -m benchmarks.search_rate [--only REGEX] [--count N] [--processes N] [--json]

For each kernel so many of its choices are made, loaded, compared with the default and timed in turns with it, as a
search does, in batches: once drawn from all, once those of one tile of registers, which differ in numbers of their
traces alone. Some of these are the same program, which is made and timed once. Rates are candidates a second by the
wall clock, and in twice the processor seconds of all processes: what two idle cores would do, where other programs
share these. The last column is what a record adds to compiling a kernel: its key is made, and the choice is read.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.report import Report, show
from benchmarks.search_kernels import search_tasks
from tilewright.analysis.structure import key_of
from tilewright.core.records import choice_of
from tilewright.plan.template import registered
from tilewright.report.progress import progress
from tilewright.runtime.machine import measured
from tilewright.target import Target, native
from tilewright.tune.candidates import Candidates
from tilewright.tune.measure import Failed, Makers, Trials
from tilewright.tune.search import LEAST, LONGER, turns_of
from tilewright.tune.space import Choice, space_of
from tilewright.tune.strategy import BATCH
from tilewright.tune.task import Task

COUNT, PROCESSES, LOOKUPS = 24, 2, 20
"""Choices of each kernel; processes that make them; how often a record is looked up."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Candidates a second by the wall clock, and in twice the processor seconds of all processes; and how many programs
    they are, which differ."""

    wall: float
    processor: float
    programs: int


def measure_rate(task: Task, choices: Sequence[Choice], makers: Makers) -> Rate:
    """How fast these choices are made and measured, batch by batch."""
    with Trials(task.sizes, 0) as trials:
        makers.make(task, [None] * PROCESSES)  # each process reads the task, and LLVM
        candidates = Candidates(makers, trials, task)
        if why := candidates.load({0: None})[0].why:
            raise Failed(why)
        turns = turns_of(statistics.median(trials.time([0], LEAST)[0]), 0)
        pids = [os.getpid(), *makers.pids, trials.pid or os.getpid()]
        wall, busy, programs = time.perf_counter(), sum(map(_busy, pids)), 0
        for first in range(0, len(choices), BATCH):
            asked = {number: c.asked for number, c in enumerate(choices[first : first + BATCH], 1)}
            made = candidates.load(asked)
            numbers = [number for number in asked if made[number].is_loaded]
            for some, count in ((numbers, turns), (numbers[: BATCH // 3], LONGER * turns)):
                if some:
                    trials.time([0, *some], count)
            trials.forget(numbers)
            programs += len(numbers)
        wall, busy = time.perf_counter() - wall, sum(map(_busy, pids)) - busy
    return Rate(len(choices) / wall, 2 * len(choices) / busy if busy else float("inf"), programs)


def _busy(pid: int) -> float:
    """The processor seconds that a process has taken."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_lookup(task: Task, choice: Choice, target: Target) -> float:
    """Processor seconds in which a record is found for a kernel, and its choice is read: the least of several."""
    known, template = {task.key: choice.asked}, registered(target.kind)[choice.template]
    taken = []
    for _ in range(LOOKUPS):
        start = time.process_time()
        choice_of(template.choice, known[key_of(task.function)]["choice"])
        taken.append(time.process_time() - start)
    return min(taken)


def of_one_tile(space: Sequence[Choice]) -> list[Choice]:
    """The choices of the tile of registers that the most have."""
    ((tile, _),) = Counter(choice.tile for choice in space).most_common(1)
    return [choice for choice in space if choice.tile == tile]


def report(target: Target, only: str = "", count: int = COUNT, processes: int = PROCESSES) -> Report:
    """A row for each kernel."""
    rate = ("a second", "on idle cores", "programs")
    heads = ("kernel", "choices", *rate, "of one tile", *rate[1:], "lookup ms")
    made = Report("search_rate", f"Choices made and measured a second, by {processes} processes", heads)
    rates: list[Rate] = []
    with Makers(target, processes) as makers, progress("making and measuring") as step:
        for name, task in search_tasks(target, only):
            step(name)
            space = space_of(task, target)
            drawn = space[:: max(len(space) // count, 1)][:count]
            all_of, own = measure_rate(task, drawn, makers), measure_rate(task, of_one_tile(space)[:count], makers)
            added = 1e3 * measure_lookup(task, space[0], target)
            rates_of = [(rate.wall, rate.processor, rate.programs) for rate in (all_of, own)]
            cells = [
                f"{number:.1f}" if isinstance(number, float) else str(number) for row in rates_of for number in row
            ]
            data = {"kernel": name, "rate": rates_of[0], "of_one_tile": rates_of[1], "lookup_ms": added}
            made.add((name, str(len(space)), *cells, f"{added:.2f}"), data)
            rates.append(all_of)
    if rates:
        wall, idle = (statistics.median(values) for values in zip(*((r.wall, r.processor) for r in rates), strict=True))
        made.note = f"median: {wall:.1f} a second, {idle:.1f} on idle cores"
    return made


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_rate", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="layers whose name has a match")
    parser.add_argument("--count", type=int, default=COUNT, metavar="N", help="choices of each kernel")
    parser.add_argument("--processes", type=int, default=PROCESSES, metavar="N", help="processes that make programs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    show([report(measured(native()), asked.only, asked.count, asked.processes)], asked.json)


if __name__ == "__main__":
    main()
