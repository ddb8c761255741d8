"""Small images laid side by side: where that is cheaper, and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from graph_strategies import Program, agree
from tilewright.graph.parse import parse_module
from tilewright.lower.graph.lay_columns import lay_columns
from tilewright.target import Target

TARGET = Target.parse("x86-64-v4")


def image(n: int | str, c: int, o: int, size: int, groups: int = 1, stride: int = 1) -> str:
    """A convolution of small images by windows of three places."""
    large = (size - 1) * stride + 3
    symbols = "" if isinstance(n, int) else f"[{n}]"
    index = "i+k j+l" if stride == 1 else f"i*{stride}+k j*{stride}+l"
    return (
        f"graph main{symbols}(x: f32[{n}, {groups}, {c}, {large}, {large}], w: f32[{groups}, {o}, {c}, 3, 3]) -> y:\n"
        f"  y: f32[{n}, {groups}, {o}, {size}, {size}] = contract(x, w, "
        f'spec="n g c {index}, g o c k l -> n g o i j", sizes=(("i", {size}), ("j", {size})))\n'
    )


def weights(n: int, o: int, c: int, size: int) -> str:
    """The gradient of such a convolution's weights."""
    return (
        f"graph main(d: f32[{n}, {o}, {size}, {size}], x: f32[{n}, {c}, {size + 2}, {size + 2}]) -> w:\n"
        f"  w: f32[{o}, {c}, 3, 3] = contract(d, x, "
        'spec="n o s t, n c s+k t+l -> o c k l", sizes=(("k", 3), ("l", 3)))\n'
    )


def points(n: int, c: int, o: int, size: int) -> str:
    """Products of each place of small images."""
    return (
        f"graph main(x: f32[{n}, {c}, {size}, {size}], w: f32[{o}, {c}]) -> y:\n"
        f'  y: f32[{n}, {o}, {size}, {size}] = contract(x, w, spec="n c i j, o c -> n o i j")\n'
    )


def laid(text: str) -> list[str]:
    """The operators after the pass, whose program agrees with the one before."""
    before = parse_module(text)
    after = lay_columns(before, TARGET)
    rng = np.random.default_rng(3)
    shapes = [[d.value if hasattr(d, "value") else 3 for d in p.type.shape] for p in before.graph.params]
    agree(Program(before, [rng.standard_normal(s).astype(np.float32) for s in shapes]), after, 1e-3)
    return [node.op.name for node in after.graph.nodes]


@pytest.mark.parametrize("text", [image(4, 64, 64, 2), image(3, 96, 64, 4, groups=2), image(4, 64, 64, 3, stride=2)])
def test_small_images_are_laid_side_by_side(text: str) -> None:
    assert laid(text) == ["contract", "contract", "transpose"]


def test_products_of_places_are() -> None:
    assert laid(points(8, 128, 256, 2)) == ["transpose", "contract", "transpose"]


def test_places_are_terms_of_the_gradient_of_weights() -> None:
    assert laid(weights(4, 256, 64, 2)) == ["contract", "contract"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (image(2, 64, 64, 16), "rows of images fill a vector"),
        (image(1, 4, 2, 2), "there are few multiply-adds"),
        (image(0, 64, 64, 2), "there are no images"),
        (image("n", 64, 64, 2), "only a call knows how many images there are"),
        (weights(4, 8, 64, 14), "as terms there would be more elements than the result has"),
        (points(1, 128, 256, 2), "one image has its places side by side"),
    ],
)
def test_others_stay(text: str, why: str) -> None:
    assert laid(text) == ["contract"], why
