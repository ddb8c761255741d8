"""What `make bench-windows` takes for right."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.operators import Window
from benchmarks.problems import WrongResult
from benchmarks.windows import LAYERS, Layer, problem_of

import tilewright as tw

SMALL = (
    Layer("a network", Window(1, (7, 7), 16, 16, 3, 1, 1, 1, 4)),
    Layer("a network", Window(1, (9, 8), 6, 5, 3, 1, 4, 4)),
    Layer("a network", Window(2, (4, 5), 6, 5, 4, 2, 1), is_transposed=True),
    Layer("a network", Window(1, (33,), 5, 7, 3, 1, 2, 2)),
)


@pytest.mark.parametrize("layer", SMALL, ids=lambda layer: layer.name)
def test_ours_is_right_and_others_are_not(layer: Layer) -> None:
    problem = problem_of(layer)
    (result,) = tw.compile(problem.model, threads=1)(problem.feeds["x"])
    problem.check("ours", result)
    with pytest.raises(WrongResult):
        problem.check("another", result + np.float32(1e-3))


def test_names_tell_layers_apart() -> None:
    assert len({layer.name for layer in LAYERS}) == len(LAYERS)
