"""How well the choices of kernels are ranked: by price, and by price as a cost model corrects it.

Of each kernel: the rank correlation with the times that were measured, and for some k, the speed of the best of the k
choices that are ranked first, as a share of the speed of the best of all.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.choice_tables import Table, tables
from benchmarks.report import Report
from benchmarks.search_kernels import search_tasks
from tilewright.core.records import choice_of
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import registered
from tilewright.report.errors import UserError
from tilewright.target import Target
from tilewright.tune.features import Features
from tilewright.tune.model import Array, Group, Model, factors_of, rank_correlation
from tilewright.tune.task import Task

FIRST = (1, 8, 16)
"""How many of the first are looked at."""

NEAR = 0.98
"""What share of the best speed is as good as the best: times are no more certain."""

Ranking = Callable[[Group], Array]
"""The seconds that the choices of a kernel are expected to take."""


def with_features(table: Table, task: Task, target: Target) -> Table:
    """A table with what the cost model sees of its choices; those that templates do not know any more are left out."""
    facts, found = Facts(task.function), []
    seen, least = Features(task.function, task.sizes, target), min(c.price for c in table.choices)
    for choice in table.choices:
        template = registered(target.kind).get(choice.template)
        shape = None if template is None else template.shape_of(facts)
        if template is None or shape is None:
            continue
        try:
            read = choice_of(template.choice, choice.record)
        except UserError:
            continue
        features = seen.of(shape, read, choice.price, least)
        found.append(dataclasses.replace(choice, features=features))
    return dataclasses.replace(table, choices=tuple(found))


def group_of(table: Table) -> Group:
    """The choices of a table, as the cost model learns from them."""
    names = [choice.name for choice in table.choices]
    features, prices = [choice.features for choice in table.choices], [choice.price for choice in table.choices]
    return Group(table.kernel, features, prices, [table.ratios[name] for name in names])


def known_tables(target: Target, only: str = "") -> list[Table]:
    """The tables of the search whose kernels the plan still makes, with what the cost model sees of their choices."""
    tasks = dict(search_tasks(target))  # a table may be of one kernel of a model, and have a name of its own
    return [with_features(t, tasks[t.kernel], target) for t in tables(only) if t.kernel in tasks]


def expected(model: Model | None, group: Group) -> Array:
    """The seconds that choices should take by price, corrected by a model."""
    found: Array = np.asarray(group.prices) * factors_of(model, group.features)
    return found


def by_model(model: Model | None) -> Ranking:
    """The ranking by a model; without one, by price."""
    return lambda group: expected(model, group)


def found_in_first(expected: Array, ratios: Sequence[float], k: int) -> float:
    """The speed of the best of the k choices that should take least, over that of the best of all."""
    first = np.argsort(expected, kind="stable")[:k]
    times = np.asarray(ratios)
    return float(times.min() / times[first].min())


def ranking(title: str, groups: Sequence[Group], ways: Mapping[str, Ranking], is_short: bool = False) -> Report:
    """A row for each kernel and each way to rank its choices, and the mean of each way; the means alone where it is
    short."""
    heads = ("kernel", "ranked by", "choices", "rank correlation", *(f"best of {k}" for k in FIRST))
    made = Report("ranking", title, heads)
    rows: dict[str, list[list[float]]] = {way: [] for way in ways}
    for group in groups:
        for way, rank in ways.items():
            expected = rank(group)
            shares = [found_in_first(expected, group.ratios, k) for k in FIRST]
            rows[way].append([rank_correlation(expected, group.ratios), *shares])
            if not is_short:
                _add(made, group.kernel, way, len(group), rows[way][-1])
    for way, found in rows.items():
        means = [statistics.fmean(column) for column in zip(*found, strict=True)]
        _add(made, f"mean of {len(groups)}", way, sum(map(len, groups)), means)
        near = [sum(row[1 + n] >= NEAR for row in found) for n in range(len(FIRST))]
        recall = ", ".join(f"{count} in {k}" for k, count in zip(FIRST, near, strict=True))
        made.note += (
            f"{way}: the best, or one within 2 % of it, is among the first for {recall} of {len(groups)} kernels. "
        )
    return made


def _add(made: Report, kernel: str, way: str, choices: int, numbers: Sequence[float]) -> None:
    cells = (kernel, way, str(choices), *(f"{number:.3f}" for number in numbers))
    names = ("correlation", *(f"best of {k}" for k in FIRST))
    made.add(cells, {"kernel": kernel, "ranked by": way, **dict(zip(names, numbers, strict=True))})
