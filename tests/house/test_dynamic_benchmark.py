"""What `make bench-dynamic` races, and takes for right."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.dynamic import LONGEST, SHORTEST, STRIDE, TEXTS, TOKENS, differ, draw_images, draw_texts
from benchmarks.network_models.builder import Graph
from benchmarks.network_models.detection import convolution, detector, doubled, joined, partial, pools
from benchmarks.network_models.transformers import TINY, bert_of_any_size

import tilewright as tw
from drawn import LONG


def test_shapes_are_those_of_the_seed() -> None:
    for draw in (draw_images, draw_texts):
        shapes = draw(20, 0)
        assert shapes == draw(20, 0) != draw(20, 1)
    shapes = draw_images(20, 0)
    assert all(images in (1, 2) and height % STRIDE == width % STRIDE == 0 for images, height, width in shapes)
    shapes = draw_texts(20, 0)
    assert all(1 <= texts <= TEXTS and texts * length <= TOKENS for texts, length in shapes)
    lengths = [length for _, length in shapes]
    assert SHORTEST <= min(lengths) < 16 and 128 < max(lengths) <= LONGEST


def test_results_that_differ_are_told() -> None:
    a = np.ones((2, 3), np.float32)
    assert differ([a], [a]) is None
    assert differ([a], [a[:1]]) == "shape (2, 3) instead of (1, 3)"
    assert differ([a], [2 * a]) == "off by 5.0e-01 of the largest number"


def neck(width: int, size: int) -> Graph:
    """What a detector is made of, each once: steps of two, bottlenecks, pools, features that pass up and are joined."""
    graph = Graph("neck")
    image = graph.image(3, size)
    graph.name_dimensions(image, {0: "batch", 2: "height", 3: "width"})
    near = convolution(graph, image, width, 3, 2)
    far = pools(graph, convolution(graph, near, 2 * width, 3, 2))
    return graph.end(y=partial(graph, joined(graph, doubled(graph, far), near), 2 * width, 1))


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.skipif(not LONG, reason="make long"))])
def test_one_program_is_right_at_every_shape(whole: bool) -> None:
    """It gives what plain loops of these sizes give."""
    made = detector(width=4, size=64, outputs=5) if whole else neck(width=8, size=64)
    model = made.model().SerializeToString()
    exe = tw.compile(model, threads=1)
    for shape in ((1, 3, 96, 160), (2, 3, 64, 32)):
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        sizes = {"batch": shape[0], "height": shape[2], "width": shape[3]}
        assert differ(exe(x), tw.compile(model, threads=1, level=0, dims=sizes)(x)) is None


def test_one_program_is_right_for_every_text() -> None:
    """Masked tokens among them."""
    model = bert_of_any_size(TINY, 16, 40, 24).model().SerializeToString()
    exe = tw.compile(model, threads=1)
    for shape in ((1, 1), (3, 7), (2, 24)):
        random = np.random.default_rng(0)
        ids, kept, kinds = (random.integers(0, bound, shape) for bound in (40, 2, 2))
        sizes = {"batch": shape[0], "tokens": shape[1]}
        plain = tw.compile(model, threads=1, level=0, dims=sizes)
        assert differ(exe(ids, kept, kinds), plain(ids, kept, kinds)) is None
