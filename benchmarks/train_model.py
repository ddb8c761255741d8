"""Trains the cost model that the package ships, and says how well it ranks choices of kernels that it has not seen.

    python -m benchmarks.train_model [--only REGEX] [--dry] [--json]
    python -m benchmarks.train_model --measure [--seconds N] [--only REGEX]

With `--measure`, choices of kernels are made and timed, those that are not in `benchmarks/training_rows.jsonl` yet, for
so many seconds: a third of a kernel's choices are its cheapest, the others are drawn at random. A line of that file is
a kernel, in the form of the tables of the search.

Without it, the rows of that file train the model, which is written into the package unless the run is `--dry`. The
report ranks each kernel's choices by a model of the others (leave-kernels-out), and the tables of the search, of which
no kernel is in the training set, by the model of all.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.choice_tables import Table
from benchmarks.ranking import by_model, expected, group_of, known_tables, ranking, with_features
from benchmarks.report import Report, show
from benchmarks.search_tables import FLUSH_RATE, FLUSHED, LEAST, MOST, TURN_SECONDS
from benchmarks.training_kernels import training_tasks
from tilewright.runtime.machine import measured
from tilewright.target import Target, native
from tilewright.tune.candidates import Candidates
from tilewright.tune.measure import Failed, Makers, Trials
from tilewright.tune.model import FOLDS, Group, Model, train
from tilewright.tune.space import Choice, space_of
from tilewright.tune.task import Task

ROWS = Path(__file__).parent / "training_rows.jsonl"
SHIPPED = Path(__file__).parents[1] / "src" / "tilewright" / "tune" / "shipped.txt"

CHOICES, AT_ONCE = 42, 14
"""Choices of a kernel that are measured, and how many take turns."""


def drawn(space: Sequence[Choice], seed: int) -> list[Choice]:
    """The choices of a kernel that are measured."""
    first, rest = list(space[: CHOICES // 3]), list(space[CHOICES // 3 :])
    order = np.random.default_rng(seed).permutation(len(rest))[: CHOICES - len(first)]
    return first + [rest[n] for n in sorted(order)]


def sample(name: str, task: Task, makers: Makers, target: Target, seed: int) -> Table:
    """A table of some choices of a kernel, with the median of turns of each; what cannot be measured is left out.
    Failed where the default cannot."""
    choices, ratios, times = drawn(space_of(task, target), seed), dict[str, float](), dict[bytes, float]()
    with Trials(task.sizes, FLUSHED, makers) as trials:
        candidates = Candidates(makers, trials, task)
        default = candidates.load({0: None})[0]
        if default.why:
            raise Failed(default.why)
        times[default.digest] = 1.0
        (taken,) = trials.time([0], 3)
        rounds = min(max(round(TURN_SECONDS / (min(taken) + FLUSHED / FLUSH_RATE)), LEAST), MOST)
        for first in range(0, len(choices), AT_ONCE):
            batch = choices[first : first + AT_ONCE]
            made = candidates.load({number: choice.asked for number, choice in enumerate(batch, 1)})
            loaded = [number for number in made if made[number].is_loaded]
            default_turns, *rows = trials.time([0, *loaded], rounds, seed)
            trials.forget(loaded)
            for number, row in zip(loaded, rows, strict=True):
                times[made[number].digest] = float(np.median(row) / np.median(default_turns))
            ratios |= {c.name: times[made[n].digest] for n, c in enumerate(batch, 1) if not made[n].why}
    return Table(name, target.name, tuple(c for c in choices if c.name in ratios), ratios)


def measure(seconds: float, only: str) -> None:
    """Adds kernels to the training set, all those of a model together."""
    target, end, last = measured(native()), time.monotonic() + seconds, ""
    models = frozenset(model_of(table.kernel) for table in rows_of(ROWS))
    with Makers(target, 2) as makers:
        for number, (name, task) in enumerate(training_tasks(target, only, without=models)):
            if time.monotonic() > end and model_of(name) != last:
                return
            last = model_of(name)
            try:
                table = sample(name, task, makers, target, number)
            except Failed as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
                continue
            with ROWS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(json.loads(table.dump()), separators=(",", ":")) + "\n")
            print(f"{name}: {len(table.choices)}", file=sys.stderr)


def model_of(kernel: str) -> str:
    """The model that a kernel is of."""
    return kernel.rpartition(": ")[0]


def rows_of(path: Path) -> Iterator[Table]:
    """The kernels of a training set."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Table.load(line)


def training_set(target: Target) -> list[Group]:
    """The rows of all kernels, with what the cost model sees of them."""
    rows = {table.kernel: table for table in rows_of(ROWS)}
    tasks = training_tasks(target, models=frozenset(map(model_of, rows)))
    found = [with_features(rows[name], task, target) for name, task in tasks if name in rows]
    return [group_of(table) for table in found if len(table.choices) > 1]


def judged(groups: Sequence[Group]) -> Report:
    """How each kernel of the training set is ranked by a model of others, none of the same ONNX model among them."""
    models: dict[str, Model | None] = {}
    fold_of = {name: n % FOLDS for n, name in enumerate(dict.fromkeys(model_of(group.kernel) for group in groups))}
    for fold in range(FOLDS):
        model = train([group for group in groups if fold_of[model_of(group.kernel)] != fold])
        models |= {group.kernel: model for group in groups if fold_of[model_of(group.kernel)] == fold}
    ways = {"price": by_model(None), "model": lambda group: expected(models[group.kernel], group)}
    return ranking("Choices of the training set's kernels, by models of the others", groups, ways, is_short=True)


def main() -> None:
    """Measures, or trains and tells."""
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train_model", description=summary)
    parser.add_argument("--measure", action="store_true", help="add kernels to the training set")
    parser.add_argument("--seconds", type=float, default=120, metavar="N", help="how long to measure")
    parser.add_argument("--only", default="", metavar="REGEX", help="models whose name has a match")
    parser.add_argument("--dry", action="store_true", help="do not write the model")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    if asked.measure:
        measure(asked.seconds, asked.only)
        return
    target = measured(native())
    groups = training_set(target)
    model = train(groups)
    if model is None:
        raise SystemExit("there is nothing to train, or no LightGBM: pip install tilewright[tune]")
    if not asked.dry:
        SHIPPED.write_text(model.text, encoding="utf-8")
    unseen = [group_of(table) for table in known_tables(target)]
    ways = {"price": by_model(None), "model": by_model(model)}
    show([judged(groups), ranking("Choices of the search's tables, by the model", unseen, ways)], asked.json)


if __name__ == "__main__":
    main()
