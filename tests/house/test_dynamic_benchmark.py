"""What `make bench-dynamic` races, and takes for right."""

from __future__ import annotations

import numpy as np
from benchmarks.dynamic import STRIDE, differ, draw
from benchmarks.network_models.detection import detector

import tilewright as tw


def test_shapes_are_those_of_the_seed() -> None:
    shapes = draw(20, 0)
    assert shapes == draw(20, 0) != draw(20, 1)
    assert all(images in (1, 2) and height % STRIDE == width % STRIDE == 0 for images, height, width in shapes)


def test_results_that_differ_are_told() -> None:
    a = np.ones((2, 3), np.float32)
    assert differ([a], [a]) is None
    assert differ([a], [a[:1]]) == "shape (2, 3) instead of (1, 3)"
    assert differ([a], [2 * a]) == "off by 5.0e-01 of the largest number"


def test_one_program_is_right_at_every_shape() -> None:
    """It gives what plain loops of these sizes give."""
    model = detector(width=4, size=64, outputs=5).model().SerializeToString()
    exe = tw.compile(model, threads=1)
    for shape in ((1, 3, 96, 160), (2, 3, 64, 32)):
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        sizes = {"batch": shape[0], "height": shape[2], "width": shape[3]}
        assert differ(exe(x), tw.compile(model, threads=1, level=0, dims=sizes)(x)) is None
