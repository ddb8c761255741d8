"""Results whose innermost axes are places of a window: turned where that is cheaper, and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from graph_strategies import Program, agree
from tilewright.graph.parse import parse_module
from tilewright.lower.graph.turn_places import turn_places
from tilewright.target import Target

TARGET = Target.parse("x86-64-v4")


def gradient(n: int | str, o: int, c: int, size: int, window: int = 3, stride: int = 1, groups: int = 1) -> str:
    """The gradient of a convolution's weights: products of its results' gradients with what was under the windows."""
    large = (size - 1) * stride + window
    spec = f"n g o s t, n g c s*{stride}+k t*{stride}+l -> g o c k l"
    symbols = "" if isinstance(n, int) else f"[{n}]"
    return (
        f"graph main{symbols}(d: f32[{n}, {groups}, {o}, {size}, {size}], "
        f"x: f32[{n}, {groups}, {c}, {large}, {large}]) -> w:\n"
        f"  w: f32[{groups}, {o}, {c}, {window}, {window}] = contract(d, x, "
        f'spec="{spec}", sizes=(("k", {window}), ("l", {window})))\n'
    )


def turned(text: str) -> Program:
    """The program after the pass, which agrees with the one before."""
    before = parse_module(text)
    after = turn_places(before, TARGET)
    rng = np.random.default_rng(3)
    shapes = [[d.value if hasattr(d, "value") else 3 for d in p.type.shape] for p in before.graph.params]
    given = Program(before, [rng.standard_normal(s).astype(np.float32) for s in shapes])
    agree(given, after, 1e-4)
    return Program(after, given.inputs)


def ops(program: Program) -> list[str]:
    return [node.op.name for node in program.module.graph.nodes]


@pytest.mark.parametrize(
    "text",
    [
        gradient(2, 5, 32, 6),
        gradient(2, 16, 16, 12, window=2, stride=2),
        gradient(2, 4, 17, 5, groups=2),
        gradient("n", 8, 32, 4),
    ],
)
def test_gradients_of_weights_are_turned(text: str) -> None:
    program = turned(text)
    assert ops(program) == ["transpose", "contract", "transpose"]
    _, product, _ = program.module.graph.nodes
    assert product.outputs[0].type.shape[-1] is program.module.graph.params[1].type.shape[2], "channels are innermost"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (gradient(2, 5, 8, 6), "eight channels fill no vector"),
        (gradient(1, 2, 64, 1), "an image of one position is moved for nine multiply-adds of each number"),
        (gradient(1, 2, 32, 3, window=16), "a window of 16 columns fills a vector"),
    ],
)
def test_others_stay(text: str, why: str) -> None:
    assert ops(turned(text)) == ["contract"], why


def test_constants_are_left_to_other_passes() -> None:
    text = gradient(2, 5, 32, 6).replace("graph main(d: f32[2, 1, 5, 6, 6], ", "graph main(")
    text = text.replace("  w:", "  d: f32[2, 1, 5, 6, 6] = constant(name=@d)\n  w:")
    module = parse_module(text, {"d": np.ones((2, 1, 5, 6, 6), np.float32)})
    assert turn_places(module, TARGET) is module
