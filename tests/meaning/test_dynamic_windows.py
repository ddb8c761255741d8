"""Windows of images of dynamic sizes: what they compute, compared with the graph's evaluator, for images larger and
smaller than a tile; and which of them run in tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from planned import planned_kernels
from tilewright.compiler import compile_module
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.nodes import const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.loops.edit import loops_inside
from tilewright.plan.choose import schedule
from tilewright.plan.nests.sums import join_pieces
from tilewright.schedule.find import nests
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target, native
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]
NAME = "windows, dynamic sizes"


@dataclass(frozen=True, slots=True)
class Case:
    """A pool, or a convolution of each channel: a window and its step along height and width, so much around all sides,
    what follows; which of images, heights and widths are dynamic."""

    window: tuple[int, int] = (3, 3)
    step: tuple[int, int] = (1, 1)
    around: int = 1
    convolves: bool = True
    after: str = "bias"
    dynamic: str = "HW"
    channels: int = 5


TILED = {
    "3x3": Case(),
    "5x5": Case((5, 5), around=2, after="swish"),
    "nothing around": Case(around=0),
    "heights": Case(dynamic="H"),
    "widths": Case(dynamic="W"),
    "images, too": Case(dynamic="NHW"),
    "widths, steps of rows": Case(step=(3, 1), dynamic="W"),
    "the largest, images, too": Case(convolves=False, dynamic="NHW"),
    "the largest": Case((5, 5), around=2, convolves=False),
    "the largest, nothing around": Case((2, 2), around=0, convolves=False),
}
OTHERS = {
    "a single plane": Case(convolves=False, channels=1),
    "the largest, every second": Case((3, 3), (2, 2), convolves=False),
    "images": Case(dynamic="N"),
    "3x3, every second": Case(step=(2, 2)),
    "steps of rows": Case(step=(3, 1)),
    "the largest, steps of rows": Case((3, 3), (2, 1), convolves=False, dynamic="NHW"),
}
SIZES = ((1, 29, 37), (2, 64, 48), (1, 3, 3), (1, 7, 100), (1, 40, 5))


def module_of(case: Case, height: int = 29, width: int = 37) -> Module:
    """The graph; what is not dynamic has these sizes."""
    graph, dtype = GraphBuilder(), DTYPES["f32"]
    sizes = {"N": 1, "H": height, "W": width}
    n, h, w = (graph.symbol(name) if name in case.dynamic else size for name, size in sizes.items())
    value = graph.param("x", TensorType.of(dtype, (n, case.channels, h, w)))
    if case.around:
        outside = graph.op("full", value=const(0 if case.convolves else dtype.min, dtype), shape=())
        sides = (0, 0, case.around, case.around)
        value = graph.op("pad", value, outside, low=sides, high=sides)
    if not case.convolves:
        sides = {"window": (1, 1, *case.window), "strides": (1, 1, *case.step), "dilations": (1, 1, 1, 1)}
        return graph.module({"y": graph.op("window_reduce", value, kind="max", **sides)})
    rng = np.random.default_rng(0)
    weights = graph.constant("w", rng.standard_normal((case.channels, 1, *case.window)).astype(np.float32))
    rows, columns = (f"{i}*{s}+{a}".replace("*1", "") for i, s, a in zip("ij", case.step, "ab", strict=True))
    made = [(e + 2 * case.around - k) // s + 1 for e, k, s in zip((h, w), case.window, case.step, strict=True)]
    y = graph.op(
        "contract",
        value,
        weights,
        spec=f"n c {rows} {columns}, c o a b -> n c o i j",
        sizes=tuple(zip("ij", made, strict=True)),
    )
    y = graph.op("add", y, graph.constant("b", rng.standard_normal((case.channels, 1, 1, 1)).astype(np.float32)))
    if case.after == "swish":
        y = graph.op("mul", y, graph.op("sigmoid", y))
    return graph.module({"y": y})


def templates(case: Case, target: Target) -> set[str]:
    """The templates of a case's kernels."""
    return {schedule(f, target)[1].template for f in planned_kernels(module_of(case), target)}


@pytest.mark.parametrize("name", [*TILED, *OTHERS])
def test_same_as_the_graph(name: str) -> None:
    case = (TILED | OTHERS)[name]
    module, rng = module_of(case), np.random.default_rng(0)
    exe = compile_module(module, threads=2)
    for images, height, width in SIZES:
        shape = [images if "N" in case.dynamic else 1, case.channels, 29, 37]
        shape[2:] = [n if s in case.dynamic else m for s, n, m in zip("HW", (height, width), shape[2:], strict=True)]
        x = rng.standard_normal(shape).astype(np.float32)
        (wanted,) = evaluate(module, [x]).values()
        (found,) = exe(x)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max(initial=1)))


@pytest.mark.parametrize("name", [*TILED, *OTHERS])
def test_they_run_in_tiles(name: str) -> None:
    """Of vectors of sixteen lanes with masks; others have another way."""
    assert (NAME in templates((TILED | OTHERS)[name], Target.parse("x86-64-v4"))) == (name in TILED)
    assert NAME not in templates((TILED | OTHERS)[name], Target.parse("x86-64-v3"))


def test_images_without_rows_or_columns() -> None:
    """There is nothing to read, and what is around is all there is."""
    case = Case((2, 2), convolves=False)
    assert templates(case, Target.parse("x86-64-v4")) == {NAME}
    module = module_of(case)
    exe = compile_module(module)
    for shape in ((1, 5, 0, 20), (1, 5, 20, 0), (1, 5, 0, 0)):
        x = np.zeros(shape, np.float32)
        (wanted,) = evaluate(module, [x]).values()
        assert wanted.size
        np.testing.assert_array_equal(exe(x)[0], wanted)


def test_what_is_around_is_as_large_as_a_channel() -> None:
    """And laid around it in vectors, in the loop over channels that holds its tiles."""
    (kernel,) = planned_kernels(module_of(TILED["3x3"]), native())
    text = str(schedule(kernel, Target.parse("x86-64-v4"))[0].func)
    assert "alloc pad: f32[1, 1, H + 2, W + 2]" in text and text.count("parallel") == 1


def test_points_of_dynamic_rows_have_vectors() -> None:
    """Loops over dynamic rows and columns stay two: of one, no vector could be proved."""
    graph = GraphBuilder()
    x = graph.param("x", TensorType.of(DTYPES["f32"], (graph.symbol("N"), 3, graph.symbol("H"), graph.symbol("W"))))
    (kernel,) = planned_kernels(graph.module({"y": graph.op("mul", x, x)}), native())
    joined = Schedule(kernel)
    join_pieces(joined, len(nests(kernel)) - 1)
    assert [str(loop.extent) for loop in loops_inside(nests(joined.func)[-1])] == ["N*3", "H", "W"]
    made, decision = schedule(kernel, native())
    assert "vectorize" in str(made.func) and not decision.refusals
