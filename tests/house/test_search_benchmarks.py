"""What `make bench-search-rate` measures."""

from __future__ import annotations

from benchmarks.search_kernels import search_tasks
from benchmarks.search_rate import of_one_tile, report

from tilewright.target import native
from tilewright.tune.search import space_of


def test_rates_are_of_all_choices_and_of_one_tile() -> None:
    made = report(native(), "product 1x1024x256", 4, 1)
    (row,) = made.data
    assert all(rate > 0 for rate in (*row["rate"], *row["of_one_tile"])) and 0 < row["lookup_ms"] < 100
    assert made.note.startswith("median: ")


def test_choices_of_one_tile_differ_in_numbers_alone() -> None:
    ((name, task),) = search_tasks(native(), "conv1x1 120")
    assert name == "conv1x1 120-40 @28"
    space = space_of(task, native())
    own = of_one_tile(space)
    assert 0 < len(own) < len(space) and len({c.tile for c in own}) == 1
