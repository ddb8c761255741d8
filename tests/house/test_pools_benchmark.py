"""What `make bench-pools` takes for right."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.pools import POOLS, Pool, problem_of
from benchmarks.problems import WrongResult

import tilewright as tw

SMALL = (
    Pool("a network", 2, 3, 9, 3, 2),
    Pool("a network", 1, 2, 8, 5, 1, 2),
    Pool("a network", 1, 2, 7, 3, 2, 1, is_mean=True),
)


@pytest.mark.parametrize("pool", SMALL, ids=lambda pool: pool.name)
def test_ours_is_right_and_others_are_not(pool: Pool) -> None:
    problem = problem_of(pool)
    (result,) = tw.compile(problem.model, threads=1)(problem.feeds["x"])
    assert result.shape == (pool.images, pool.channels, pool.result_size, pool.result_size)
    problem.check("ours", result)
    with pytest.raises(WrongResult):
        problem.check("another", np.nextafter(result, 2) + np.float32(1e-3))


def test_names_tell_pools_apart() -> None:
    assert len({pool.name for pool in POOLS}) == len(POOLS)
