"""Windows that move by several elements: what they compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler import compile_module
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.target import Target
from tilewright.target.host import current_host
from tilewright.types.tensor import TensorType


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution of `groups` times `channels` to `groups` times `outputs` channels."""

    size: tuple[int, int]
    kernel: int
    step: int
    pad: int = 0
    gap: int = 1
    channels: int = 3
    outputs: int = 7
    groups: int = 1
    images: int | None = 1


CASES = {
    "7x7 by 2": Window((33, 45), 7, 2, 3),
    "3x3 by 2": Window((34, 56), 3, 2, 1),
    "5x5 by 2": Window((21, 40), 5, 2, 2, outputs=16),
    "even padding": Window((20, 67), 4, 2, 2),
    "no padding": Window((17, 39), 3, 2),
    "by 3": Window((40, 61), 5, 3, 1),
    "by 4": Window((45, 90), 4, 4, 2),
    "by 5": Window((45, 90), 5, 5, 1),
    "gaps": Window((30, 50), 3, 2, 2, gap=2),
    "gaps of 3": Window((30, 50), 3, 2, 3, gap=3),
    "groups": Window((18, 44), 3, 2, 1, outputs=5, groups=3),
    "images": Window((18, 35), 3, 2, 1, images=3),
    "any images": Window((18, 35), 3, 2, 1, images=None),
    "narrow": Window((9, 7), 3, 2, 1),
    "few rows": Window((18, 44), 3, 2, 1, outputs=2),
}


def module(case: Window) -> Module:
    """The graph of a case, with a bias and a relu."""
    graph = GraphBuilder()
    images = graph.symbol("n") if case.images is None else const(case.images)
    shape = (images, const(case.groups), const(case.channels), *map(const, case.size))
    value = graph.param("x", TensorType(f32, shape))
    if case.pad:
        around = (0, 0, 0, case.pad, case.pad)
        value = graph.op("pad", value, graph.op("full", value=const(0.0, f32), shape=()), low=around, high=around)
    rng = np.random.default_rng(0)
    w = rng.integers(-4, 5, (case.groups, case.outputs, case.channels, case.kernel, case.kernel)).astype(np.float32)
    bias = rng.integers(-4, 5, (case.groups, case.outputs, 1, 1)).astype(np.float32)
    extents = [(e + 2 * case.pad - case.gap * (case.kernel - 1) - 1) // case.step + 1 for e in case.size]
    gap = f"*{case.gap}" if case.gap > 1 else ""
    spec = f"n g c i*{case.step}+a{gap} j*{case.step}+b{gap}, g o c a b -> n g o i j"
    sizes = (("i", extents[0]), ("j", extents[1]))
    y = graph.op("contract", value, graph.constant("w", w), spec=spec, sizes=sizes)
    return graph.module({"y": graph.op("relu", graph.op("add", y, graph.constant("b", bias)))})


@pytest.mark.parametrize("name", CASES)
def test_compiled_is_the_meaning(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_WINOGRAD", "0")
    case = CASES[name]
    made = module(case)
    images = 2 if case.images is None else case.images
    x = np.random.default_rng(1).integers(-4, 5, (images, case.groups, case.channels, *case.size)).astype(np.float32)
    (found,) = compile_module(made)(x)
    np.testing.assert_array_equal(found, evaluate(made, [x])["y"])


TEXT = """
graph main[n](x: f32[n, 24, 40, 1]) -> y:
  w: f32[24, 5, 1, 32] = constant(name=@w)
  h: f32[n, 32, 36, 1] = contract(x, w, spec="n c i+a j+b, c a b o -> n o i j", sizes=(("i", 36), ("j", 1)))
  y: f32[n, 32, 36, 1] = relu(h)
"""


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "native", "aarch64"])
def test_one_dimensional_windows_of_a_dynamic_batch_run_in_tiles(target: str) -> None:
    """Their last axis has one value: the one before it lies along the lanes, and the batch is an outer loop."""
    w = np.random.default_rng(2).integers(-4, 5, (24, 5, 1, 32)).astype(np.float32)
    made = tw.Module({"main": tw.parse(TEXT)}, {"w": w}, "main")
    exe = compile_module(made, Target.parse(target))
    assert [d.template in ("contraction", "transposed") for d in exe.decisions.values()] == [True]
    if not exe.program.target.is_runnable_on(current_host()):
        return
    for n in (1, 3):
        x = np.random.default_rng(n).integers(-4, 5, (n, 24, 40, 1)).astype(np.float32)
        np.testing.assert_array_equal(exe(x)[0], evaluate(made, [x])["y"])
