"""What `make bench-search-rate`, `bench-search-tables` and `bench-tuned` measure."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from benchmarks import search_tables, tuned_networks, tuned_sizes
from benchmarks.contest import Options
from benchmarks.network_models import NETWORKS
from benchmarks.network_race import Run
from benchmarks.search_kernels import plan, search_tasks
from benchmarks.search_rate import of_one_tile, report
from benchmarks.search_tables import Table, play
from benchmarks.tuned_sizes import Sized

from tilewright.core.records import record_of
from tilewright.loops.nodes import Function
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import candidates
from tilewright.target import Target, native
from tilewright.tune.records import name_of
from tilewright.tune.space import Choice, space_of
from tilewright.tune.task import task_of


def test_rates_are_of_all_choices_and_of_one_tile() -> None:
    made = report(native(), "product 1x1024x256", 4, 1)
    (row,) = made.data
    assert all(rate > 0 for rate in (*row["rate"], *row["of_one_tile"])) and 0 < row["lookup_ms"] < 100
    assert made.note.startswith("median: ")


@pytest.mark.parametrize(
    ("machine", "wanted"), [("x86-64-v4", ("MobileNetV3-L", "BERT-base")), ("aarch64", ("BERT-base",))]
)
def test_all_choices_beside_those_that_are_listed_have_a_price(machine: str, wanted: tuple[str, ...]) -> None:
    """And fields that a template says are listed have the values of its choices."""
    target, counts = Target.parse(machine), Counter[bool]()
    for network in (n for n in NETWORKS if n.name in wanted):
        planned = plan(network.build_tiny().model().SerializeToString(), target)
        functions = [f for f in planned.functions.values() if isinstance(f, Function)]
        for task in filter(None, (task_of(planned, f, {}) for f in functions)):
            listed = candidates(Facts(task.function), target)
            lanes = {c.choice.tile.lanes for c in listed if c.template.name == "contraction"}
            known = {name_of(c.template.name, record_of(c.choice)) for c in listed}
            for choice in space_of(task, target):
                assert 0 < choice.price < math.inf
                assert choice.template != "contraction" or choice.record["tile"]["lanes"] in lanes
                counts[choice.name in known] += 1
    assert counts[True] > 20 and counts[False] > 200


def test_choices_of_one_tile_differ_in_numbers_alone() -> None:
    ((name, task),) = search_tasks(native(), "conv1x1 120")
    assert name == "conv1x1 120-40 @28"
    space = space_of(task, native())
    own = of_one_tile(space)
    assert 0 < len(own) < len(space) and len({c.tile for c in own}) == 1


def test_tables_are_read_as_they_were_written() -> None:
    records = [
        {"tile": {"rows": n, "lanes": 16}, "held": None if n % 2 else True, "terms": [4, n]} for n in range(1, 9)
    ]
    choices = [Choice(name_of("t", r), "t", r, 1e-6 * n) for n, r in enumerate(records, 1)]
    table = Table("k", "m", tuple(choices), {c.name: 1.5 - 0.1 * n for n, c in enumerate(choices)})
    read = Table.load(table.dump())
    assert [(c.name, c.record) for c in read.choices] == [(c.name, c.record) for c in choices]
    assert [c.price for c in read.choices] == pytest.approx([c.price for c in choices])
    assert read.ratios == pytest.approx(table.ratios)
    assert play(read, 0, 64) == read.best == pytest.approx(0.8)
    ((name, count, *_),) = search_tables.report([read]).rows
    assert (name, count) == ("k", "8")


def test_a_network_is_raced_with_itself() -> None:
    (network,) = [n for n in NETWORKS if n.name == "MLP"]
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Options(quick=True), Path(folder), Path(folder))
        found = tuned_networks.measure("MLP", run.prepare(network, network.build_tiny()).model, "1s", 3)
    assert found.before > 0 and found.ratio > 0
    networks, kernels = tuned_networks.report_networks([found]), tuned_networks.report_kernels([found])
    assert networks.rows[0][0] == "MLP" and len(kernels.rows) == len(found.beaten)


def test_searches_find_nearly_the_best_of_the_tables() -> None:
    """Without running anything. Of one kernel alone more may be missed than of all in the mean."""
    made = search_tables.report(list(search_tables.tables()), seeds=3)
    shares = [row["share"] for row in made.data]
    assert len(shares) >= 12
    assert min(shares) > 0.9 and statistics.geometric_mean(shares) >= search_tables.BAR


def test_one_choice_is_held_against_the_best_for_each_length() -> None:
    layer = Sized("l", (5, 24), ((1.0, 1.0), (0.8, 1.2), (1.2, 0.9)), (1.0, 0.85))
    assert layer.best == [0.8, 0.85]
    assert layer.over_best(1) == pytest.approx([1.0, 1.2 / 0.85])
    assert layer.over_best(2) == pytest.approx([1.0, 0.9 / 0.85]) and layer.over_best(5) == layer.over_best(2)
    assert layer.over_best_unseen(1) == pytest.approx([1.2 / 0.85])  # best at 5, at 24 without a look
    made = tuned_sizes.report([layer])
    assert [row[1] for row in made.rows] == ["5", "24"] and made.note.startswith("one choice for all lengths")
    assert "every second length" in made.note


def test_layers_have_dynamic_rows_or_so_many() -> None:
    dynamic, fixed = (tuned_sizes.task_for(96, 64, native(), rows) for rows in ("rows", 48))
    assert list(dynamic.sizes) == ["rows"] and not fixed.sizes and dynamic.key != fixed.key
