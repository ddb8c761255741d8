"""Programs of a few loops as people write them, scheduled by price alone, against the same in PyTorch. One thread, f32.

    python -m benchmarks.plain_loops [--only REGEX] [--budget SECONDS] [--clock processor] [--json]

The programs are those of `benchmarks/plain_programs`. PyTorch runs in eager mode; results are compared first, and all
take turns in one race. With a budget, each program is tuned for as long, too.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

import tilewright as tw
from benchmarks.command import add_clock, deliver, page_command
from benchmarks.contest import Options, Run
from benchmarks.engines import Call, set_threads
from benchmarks.failures import exit_on_failures
from benchmarks.plain_programs import Array, Reference, arrays_of, programs, references
from benchmarks.problems import WrongResult
from benchmarks.report import Report
from benchmarks.search import CLOCKS, DEFAULT, TUNED
from benchmarks.timing import PAUSE_SECONDS, Samples, race
from tilewright.loops.nodes import Function
from tilewright.plan.choose import cheapest
from tilewright.plan.facts.kernel import Facts
from tilewright.report import settings
from tilewright.report.progress import progress
from tilewright.runtime.machine import measured
from tilewright.target import native

TORCH = "torch"

CLOSE = 1e-4
"""How far results may be apart, beside the largest number: PyTorch takes distances as differences of products."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The samples of a program, by engine, the template that price chose, and the seconds that scheduling took."""

    name: str
    template: str
    seconds: float
    taken: dict[str, Samples]

    def ratio(self, shorter: str, longer: str) -> float | None:
        """How many times longer one took than another."""
        both = shorter in self.taken and longer in self.taken
        return self.taken[longer].best / self.taken[shorter].best if both else None


def measure(
    name: str, function: Function, reference: Reference, budget: float, run: Run, clock: Callable[[], int]
) -> Measured:
    """A program and PyTorch, in turns."""
    import torch

    arrays = arrays_of(function)
    tensors = [torch.from_numpy(x) for x in arrays]

    def other() -> Array:
        with torch.inference_mode():
            found: Array = reference(*tensors).numpy()
        return found

    wanted = other()
    start = time.process_time()
    scheduled, decision = cheapest(Facts(function), measured(native()))
    seconds = time.process_time() - start
    engines: dict[str, Call] = {DEFAULT: _called(scheduled.func, arrays, wanted)}
    if budget:
        engines[TUNED] = _called(tw.autoschedule(function, budget=budget).func, arrays, wanted)
    engines[TORCH] = other
    taken = race(engines, run.options.rounds, run.options.turn_seconds, PAUSE_SECONDS, clock)
    return Measured(name, decision.template, seconds, dict(taken))


def _called(function: Function, arrays: list[Array], wanted: Array) -> Call:
    """A call of a scheduled program, whose result was compared."""
    kernel, made = tw.build(function, threads=1), np.full(wanted.shape, np.nan, np.float32)
    kernel(*arrays, made)
    off = float(np.abs(made - wanted).max()) / max(float(np.abs(wanted).max()), 1.0)
    if not off <= CLOSE:
        raise WrongResult(f"off by {off:.3g} of the largest number")
    return lambda: kernel(*arrays, made)


def report(measured_all: list[Measured]) -> Report:
    """A row for each program."""
    heads = ("program", "by", "scheduled in ms", "µs", "default/tuned", "× PyTorch")
    made = Report("plain-loops", "Programs of a few loops, one thread", heads)
    for one in measured_all:
        ours = TUNED if TUNED in one.taken else DEFAULT
        torch, tuned = one.ratio(DEFAULT, TORCH), one.ratio(DEFAULT, TUNED)
        cells = [one.name, one.template, f"{1e3 * one.seconds:.0f}", f"{1e6 * one.taken[ours].best:.1f}"]
        cells += ["-" if tuned is None else f"{tuned:.2f}", "-" if torch is None else f"{torch:.2f}"]
        rows = {name: samples.record() for name, samples in one.taken.items()}
        made.add(cells, {"program": one.name, "template": one.template, "torch": torch, "tuned": tuned, "taken": rows})
    found = [row["torch"] for row in made.data if row["torch"] is not None]
    if found:
        mean, slower = statistics.geometric_mean(found), sum(ratio < 1 for ratio in found)
        made.note = (
            f"× PyTorch: of what price chose; geometric mean {mean:.2f}, least {min(found):.2f}, {slower} slower"
        )
    return made


def main() -> None:
    """Measures, prints."""
    parser = page_command("plain_loops", __doc__, "programs")
    parser.add_argument("--budget", type=float, default=0.0, metavar="SECONDS", help="of tuning, each; 0 for none")
    parser.add_argument("--rounds", type=int, default=Options().rounds, metavar="N", help="turns of each engine")
    add_clock(parser)
    asked = parser.parse_args()
    options, others = Options(asked.rounds, only=asked.only), references()
    wanted = {name: function for name, function in programs().items() if options.wants(name)}
    set_threads(1)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as store, progress("racing", len(wanted)) as step:
        os.environ[settings.STORE.name] = store
        run, clock = Run(options, step), CLOCKS[asked.clock]
        found = [
            run.attempt(name, partial(measure, name, function, others[name], asked.budget, run, clock))
            for name, function in wanted.items()
        ]
    reports = [report([one for one in found if one is not None]), *run.failures.reports()]
    deliver(asked, "plain-loops", [one for one in reports if one.rows])
    exit_on_failures(reports)


if __name__ == "__main__":
    main()
