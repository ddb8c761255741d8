"""The cheapest path through steps, each of which may be taken in several ways.

cheapest_path([[1, 1, 1], [0, 2, 0]], 0.5)      ==  (1, 0, 0)       the last step is taken in way 0
"""

from __future__ import annotations

from collections.abc import Sequence


def cheapest_path(costs: Sequence[Sequence[float]], change: float) -> tuple[int, ...]:
    """In which way each step is taken, the last one in way 0, so that it costs the least: `costs[way][step]`, and
    `change` for each step that is taken in another way than the one before. Of several paths that cost the same, the
    one with the lowest numbers. There is at least one way and one step."""
    paths: list[tuple[float, tuple[int, ...]]] = [(way[0], (n,)) for n, way in enumerate(costs)]
    for step in range(1, len(costs[0])):
        paths = [
            min((cost + (path[-1] != n) * change + way[step], (*path, n)) for cost, path in paths)
            for n, way in enumerate(costs)
        ]
    return paths[0][1]
