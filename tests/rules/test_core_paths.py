"""The cheapest path through steps is the cheapest of all."""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.paths import cheapest_path

COSTS = st.integers(1, 4).flatmap(
    lambda steps: st.lists(st.lists(st.integers(0, 9), min_size=steps, max_size=steps), min_size=1, max_size=3)
)


@given(COSTS, st.integers(0, 5))
def test_no_path_is_cheaper(costs: list[list[int]], change: int) -> None:
    def cost(path: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        changes = sum(one != other for one, other in pairwise(path))
        return sum(costs[way][step] for step, way in enumerate(path)) + change * changes, path

    others = product(range(len(costs)), repeat=len(costs[0]) - 1)
    assert cost(cheapest_path(costs, change)) == min(cost((*path, 0)) for path in others)
