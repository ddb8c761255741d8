"""How much slower the chosen way to run a kernel is than the fastest of those that its templates list.

    python -m benchmarks.regret [MODEL.onnx ...] [--only REGEX] [--template REGEX] [--most N] [--rounds N] [--size N]
                                [--target NAME] [--choices] [--json]

Each kernel of a model with several choices becomes a program of its own, once for each choice, the cheapest first; all
run in turns on one core, by the processor's clock, with the same inputs, warm, by what `tune/` makes and runs choices
with. The regret of a kernel is the time of
the choice that `plan/choose.py` takes over the least time, less one; the rank correlation (Spearman's) says how far the
order by price is that by time. Without models, the depthwise layers of `layers.py` and the pools of `pools.py` are
measured.
"""

from __future__ import annotations

import argparse
import math
import pickle
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.layers import distinct
from benchmarks.plan_costs import rank_correlation
from benchmarks.pools import POOLS, problem_of
from benchmarks.problems import convolution
from benchmarks.report import Report, show
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import pipeline
from tilewright.core.passes import run_passes
from tilewright.core.records import record_of
from tilewright.frontends.onnx import read
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Candidate, candidates
from tilewright.report.errors import UserError
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable
from tilewright.target import Target
from tilewright.tune.measure import Trials
from tilewright.tune.task import Maker, Task, task_of

ROUNDS, MOST = 100, 24
"""Turns of each program; choices of a kernel that are timed, the cheapest first."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which kernels are timed, those that a `template` of such a name is taken for, by how many choices at `most`; the
    turns of each; and what dynamic sizes are."""

    template: str = ""
    most: int = MOST
    rounds: int = ROUNDS
    size: int = 128


@dataclass(frozen=True, slots=True)
class Timed:
    """A choice of a kernel: what it should take, and what it takes (the median of its turns), in seconds."""

    candidate: Candidate
    seconds: float

    def record(self) -> dict[str, object]:
        """The choice as JSON says it."""
        choice = self.candidate
        return {
            "template": choice.template.name,
            "choice": record_of(choice.choice),
            "price": choice.seconds,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel and the choices that it can run by, the cheapest first: the first is the one that is taken."""

    name: str
    choices: tuple[Timed, ...]

    @property
    def best(self) -> Timed:
        return min(self.choices, key=lambda timed: timed.seconds)

    @property
    def regret(self) -> float:
        """By how much of the least time the choice that is taken is slower."""
        return self.choices[0].seconds / self.best.seconds - 1

    @property
    def rank(self) -> float:
        """The correlation of the orders by price and by time."""
        prices = [timed.candidate.seconds for timed in self.choices]
        return rank_correlation(prices, [timed.seconds for timed in self.choices])


def tasks_of(module: Module, target: Target, size: int) -> Iterator[Task]:
    """Each kernel that the plan of a module makes, alone, where dynamic sizes are `size`; but for those that nothing
    can call alone."""
    passes = pipeline(target)
    place = [step.name for step in passes].index("schedule")
    planned = run_passes(module, passes[:place], level=GRAPH)
    for function in [f for f in planned.functions.values() if isinstance(f, Function)]:
        task = task_of(planned, function, {symbol.name: size for symbol in function.symbols})
        if task is not None:
            yield task


def measure_kernel(name: str, task: Task, target: Target, asked: Asked) -> Measured | None:
    """A kernel by its cheapest choices; None where it has one only, or is for another template."""
    ranked = candidates(Facts(task.function), target)
    if len(ranked) < 3 or not re.search(asked.template, ranked[0].template.name):  # `nests` is always one
        return None
    found: list[Candidate] = []
    programs: list[Executable] = []
    maker = Maker(task, target)
    for candidate in ranked:
        if len(found) < asked.most and candidate.seconds < 1:
            try:
                programs.append(
                    maker.program({"template": candidate.template.name, "choice": record_of(candidate.choice)})
                )
            except UserError:
                continue
            found.append(candidate)
    if len(found) < 2:
        return None
    seconds = take_turns(programs, task.sizes, asked.rounds)
    return Measured(name, tuple(Timed(c, s) for c, s in zip(found, seconds, strict=True)))


def take_turns(programs: Sequence[Executable], sizes: Mapping[str, int], rounds: int) -> list[float]:
    """Processor seconds of a call of each program, the median of its turns, by a process of `tune/` that pushes nothing
    out of the caches; raises Failed where results differ."""
    with Trials(sizes, 0) as trials:
        for number, program in enumerate(programs):
            trials.load(number, pickle.dumps(program))
        return [statistics.median(turns) for turns in trials.time(range(len(programs)), rounds)]


def windows() -> Iterator[tuple[str, bytes]]:
    """Depthwise layers and pools: a name and a model of each."""
    for layer in distinct():
        if layer.is_depthwise and layer.kernel > 1:
            yield layer.name, convolution(layer.name, layer).model
    for pool in POOLS:
        yield pool.name, problem_of(pool).model


def report(found: Sequence[Measured]) -> Report:
    """A row for each kernel."""
    heads = ("kernel", "choices", "chosen µs", "best µs", "regret", "rank correlation", "time / price", "best by")
    made = Report("regret", "The choice that is taken against the fastest", heads)
    for kernel in found:
        chosen, best = kernel.choices[0], kernel.best
        by = "as chosen" if best is chosen else _difference(record_of(chosen.candidate.choice), best)
        cells = (str(len(kernel.choices)), f"{1e6 * chosen.seconds:.1f}", f"{1e6 * best.seconds:.1f}")
        rank, ratio = f"{kernel.rank:.2f}", f"{chosen.seconds / chosen.candidate.seconds:.2f}"
        data = {"kernel": kernel.name, "regret": kernel.regret, "rank": kernel.rank}
        made.add(
            (kernel.name, *cells, f"{kernel.regret:.1%}", rank, ratio, by),
            data | {"choices": [timed.record() for timed in kernel.choices]},
        )
    if found:
        regrets = [kernel.regret for kernel in found]
        mean = math.expm1(statistics.fmean(math.log1p(r) for r in regrets))
        made.note = f"regret: geometric mean {mean:.1%}, above 5 %: {sum(r > 0.05 for r in regrets)} of {len(found)}"
    return made


def _difference(chosen: Mapping[str, object], best: Timed) -> str:
    """What the best choice has otherwise than the one that is taken."""
    fields: Mapping[str, object] = record_of(best.candidate.choice)
    if set(fields) != set(chosen):
        return best.candidate.template.name
    return ", ".join(f"{name} {value}" for name, value in fields.items() if chosen[name] != value)


def report_choices(kernel: Measured) -> Report:
    """A row for each choice of a kernel, the cheapest by price first."""
    made = Report("choices", kernel.name, ("template", "price µs", "time µs", "choice"))
    for timed in kernel.choices:
        fields = ", ".join(f"{name} {value}" for name, value in record_of(timed.candidate.choice).items())
        cells = f"{1e6 * timed.candidate.seconds:.1f}", f"{1e6 * timed.seconds:.1f}"
        made.add((timed.candidate.template.name, *cells, fields), timed.record())
    return made


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "models", nargs="*", type=Path, metavar="MODEL.onnx", help="default: depthwise layers and pools"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="models and kernels whose name has a match")
    parser.add_argument("--template", default="", metavar="REGEX", help="kernels that such a template is taken for")
    parser.add_argument(
        "--most", type=int, default=MOST, metavar="N", help="choices that are timed, the cheapest first"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="turns of each choice")
    parser.add_argument("--size", type=int, default=128, metavar="N", help="what dynamic sizes are")
    parser.add_argument("--target", default="native", metavar="NAME", help="what ours compiles for: x86-64-v3, say")
    parser.add_argument("--choices", action="store_true", help="a table of all choices of each kernel, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    given = [(path.stem, path.read_bytes()) for path in asked.models] or list(windows())
    wanted = Asked(asked.template, asked.most, asked.rounds, asked.size)
    target, found = Target.parse(asked.target), list[Measured]()
    with progress("timing choices", len(given)) as step:
        for name, model in given:
            for task in tasks_of(read(model), target, wanted.size):
                label = name if not asked.models else f"{name}: {task.function.name}"
                if re.search(asked.only, label):
                    measured = measure_kernel(label, task, target, wanted)
                    found += [] if measured is None else [measured]
            step(name)
    show([*map(report_choices, found if asked.choices else ()), report(found)], asked.json)


if __name__ == "__main__":
    main()
