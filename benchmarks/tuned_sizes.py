"""One tuning for all sizes: dense layers with a dynamic number of rows, by the choices of one program each.

    python -m benchmarks.tuned_sizes [--only REGEX] [--choices N] [--lengths T,T] [--rounds N] [--json]

The layers are BERT's at batch 16, 16·T rows for the sequence lengths T of DietCode's experiment ("DietCode: Automatic
Optimization for Dynamic Tensor Programs", MLSys 2022). Choices of the dynamic kernel, the cheapest by price, are made
once, and timed at each length in turns with the default. Of each length: what the one choice takes that is best for all
lengths, over the least time there, of all choices and of those of a kernel that is made for that length alone; the same
of the better of two choices and of three, as a dispatch over sizes would take them; and that of the default. And of
the choice that is best for every second length, what it takes at those between, which it was not chosen by. Products
are taken whole: kernels of Strassen's half-size products, of which each length may have others, could not be compared.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks.contest import numbers
from benchmarks.report import Report, show
from benchmarks.search_kernels import plan
from tilewright.loops.nodes import Function
from tilewright.report import settings
from tilewright.report.progress import progress
from tilewright.runtime.machine import measured
from tilewright.target import Target, native
from tilewright.tune.measure import Failed, Makers, Trials
from tilewright.tune.space import space_of
from tilewright.tune.task import Task, task_of

ALIKE = 3
"""Choices that share a tile of registers, at most."""

LAYERS: Mapping[str, tuple[int, int]] = {
    "768 -> 2304": (768, 2304),
    "768 -> 768": (768, 768),
    "3072 -> 768": (3072, 768),
    "768 -> 3072": (768, 3072),
}
"""Terms and columns of the layers by their names."""

LENGTHS, BATCH = (5, 24, 43, 62, 81, 100, 119, 128), 16
"""Sequence lengths, and how many sequences a call has."""

CHOICES, ROUNDS, FLUSHED = 24, 7, 2 << 20
"""Choices that are measured, turns of each at each length, and bytes pushed through the caches before each."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A layer's times at each length over the default's: a row for each choice, that of the default first; and the
    least of those of a kernel that is made for that length alone."""

    name: str
    lengths: tuple[int, ...]
    rows: tuple[tuple[float, ...], ...]
    alone: tuple[float, ...]

    @property
    def best(self) -> list[float]:
        """The least time at each length."""
        return [min(own, *column) for own, column in zip(self.alone, zip(*self.rows, strict=True), strict=True)]

    def over_best(self, count: int) -> list[float]:
        """What the best `count` choices take at each length, the better of them, over the least time there."""
        return self._over_best(self._chosen(count, range(len(self.lengths))))

    def over_best_unseen(self, count: int) -> list[float]:
        """The same at every second length, of the choices that are best at the others."""
        return self._over_best(self._chosen(count, range(0, len(self.lengths), 2)))[1::2]

    def _chosen(self, count: int, seen: Sequence[int]) -> Sequence[tuple[float, ...]]:
        """The best choices for the lengths of these numbers."""

        def mean(some: Sequence[tuple[float, ...]]) -> float:
            return math.prod(min(row[n] for row in some) for n in seen)

        return min(itertools.combinations(self.rows, min(count, len(self.rows))), key=mean)

    def _over_best(self, chosen: Sequence[tuple[float, ...]]) -> list[float]:
        return [min(column) / least for column, least in zip(zip(*chosen, strict=True), self.best, strict=True)]


def task_for(terms: int, columns: int, target: Target, rows: int | str = "rows") -> Task:
    """The kernel of a layer of a dynamic number of rows, or of so many."""
    weights = np.random.default_rng(0).uniform(-1, 1, (terms, columns)).astype(np.float32)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, terms])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "layer", [given], [result], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    planned = plan(model.SerializeToString(), target)
    tasks = [task_of(planned, f, {}) for f in planned.functions.values() if isinstance(f, Function)]
    return next(task for task in tasks if task is not None and len(space_of(task, target)) > 1)


def measure(name: str, target: Target, lengths: Sequence[int], choices: int, rounds: int) -> Sized:
    """The times of a layer's choices at all lengths, each made once, and of those of kernels for one length each."""
    columns, alone = list[list[float]](), list[float]()
    with Makers(target, 2) as makers, progress(f"timing {name}", len(lengths)) as step:
        task = task_for(*LAYERS[name], target)
        programs = _programs(makers, task, target, choices)
        for length in lengths:
            own = _programs(makers, task_for(*LAYERS[name], target, BATCH * length), target, choices // 2)
            with Trials(dict.fromkeys(task.sizes, BATCH * length), FLUSHED, makers) as trials:
                times = _times(trials, [*programs, *own], rounds)
            if not math.isfinite(min(times[len(programs) :])):
                raise SystemExit(f"no program of {name} that is made for {length} tokens alone can be timed")
            columns.append(times[: len(programs)])
            alone.append(min(times[len(programs) :]))
            step(str(length))
    rows = tuple(row for row in zip(*columns, strict=True) if all(map(math.isfinite, row)))
    return Sized(name, tuple(lengths), rows, tuple(alone))


def _programs(makers: Makers, task: Task, target: Target, count: int) -> list[bytes]:
    """The default's program, and those of the cheapest choices by price, a few of each tile of registers."""
    space, tiles = [], Counter[str]()
    for choice in space_of(task, target):
        tiles[choice.tile] += 1
        if tiles[choice.tile] <= ALIKE:
            space.append(choice)
    made = makers.make(task, [None, *(choice.asked for choice in space[:count])])
    return [program for program in made if isinstance(program, bytes)]


def _times(trials: Trials, programs: Sequence[bytes], rounds: int) -> list[float]:
    """The least time of each program over the default's; without end for one that cannot be run."""
    loaded = []
    for number, program in enumerate(programs):
        try:
            trials.load(number, program)
        except Failed:
            continue
        loaded.append(number)
    taken = [min(row) for row in trials.time(loaded, rounds)]
    trials.forget(loaded)
    found = dict(zip(loaded, taken, strict=True))
    return [found.get(number, math.inf) / found[0] for number in range(len(programs))]


def report(found: Sequence[Sized]) -> Report:
    """A row for each layer and length, and one for the worst and the mean of each."""
    heads = ("layer", "T", "default", "one choice", "two", "three")
    made = Report("tuned_sizes", "Dense layers of any length: times over the best choice for each length", heads)
    ones: list[float] = []
    unseen: list[float] = []
    for layer in found:
        ways = [[1 / least for least in layer.best], *(layer.over_best(count) for count in (1, 2, 3))]
        for length, *row in zip(layer.lengths, *ways, strict=True):
            data = {"layer": layer.name, "length": length, "default": row[0], "one": row[1], "two": row[2]}
            made.add((layer.name, str(length), *(f"{value:.3f}" for value in row)), data | {"three": row[3]})
        ones += ways[1]
        unseen += layer.over_best_unseen(1)
    if ones:
        made.note = f"one choice for all lengths: {_summary(ones)}"
    if unseen:
        made.note += f"; chosen by every second length, at the others: {_summary(unseen)}"
    return made


def _summary(ratios: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(ratios):.3f} times the best for each in the mean, {max(ratios):.3f} at most"


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuned_sizes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="layers whose name has a match")
    parser.add_argument("--choices", type=int, default=CHOICES, metavar="N", help="choices of each, by price")
    parser.add_argument("--lengths", type=numbers, default=LENGTHS, metavar="T,T", help="sequence lengths")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="turns of each choice")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    os.environ[settings.STRASSEN.name] = "0"
    target = measured(native())
    wanted = [name for name in LAYERS if re.search(asked.only, name)]
    found = [measure(name, target, asked.lengths, asked.choices, asked.rounds) for name in wanted]
    show([report(found)], asked.json)


if __name__ == "__main__":
    main()
