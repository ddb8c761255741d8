"""Convolutions of images of dynamic sizes in tiles of positions, with output channels along the lanes: what they
compute, compared with the graph's evaluator, for images of fewer and of more positions than a tile; and where they are
chosen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from chosen import is_transposed

from planned import planned_kernels
from tilewright.compiler import compile_module
from tilewright.expr.dtypes import DTYPES, f32
from tilewright.expr.evaluate import evaluate as number
from tilewright.expr.nodes import Expr, Var, const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.loops.edit import blocks
from tilewright.loops.nodes import Function
from tilewright.plan.choose import schedule
from tilewright.plan.facts.kernel import Facts
from tilewright.runtime.executable import Executable
from tilewright.target import Target
from tilewright.types.tensor import TensorType

V3 = Target.parse("x86-64-v3")


@dataclass(frozen=True, slots=True)
class Case:
    """A convolution: its window along each dimension of the image, the step and the dilation, so many zeros around,
    channels in and out, groups, what follows; which of the batch and the sides of the image are dynamic, and the batch
    where it is not."""

    window: tuple[int, ...] = (3, 3)
    step: int = 1
    dilation: int = 1
    around: int = 1
    channels: tuple[int, int] = (5, 33)
    groups: int = 1
    after: str = "bias"
    dynamic: str = "NHW"
    batch: int = 2
    dtype: str = "f32"


CASES = {
    "3x3": Case(),
    "3x3, every second": Case(step=2, after="bias swish"),
    "every third, nothing around": Case(step=3, around=0),
    "1x1": Case((1, 1), around=0, channels=(20, 75)),
    "5x5, dilated": Case((5, 5), dilation=2, around=4, channels=(3, 16)),
    "widths": Case(dynamic="W", after="residual"),
    "heights and widths": Case(dynamic="HW", step=2),
    "one image": Case(dynamic="HW", batch=1, step=2, after=""),
    "one image, nothing around": Case(dynamic="HW", batch=1, channels=(4, 16), around=0, after=""),
    "groups": Case(groups=3, channels=(4, 18)),
    "one dimension": Case((3,), channels=(20, 64), dynamic="NW", step=2),
    "one dimension, 1": Case((1,), channels=(20, 64), dynamic="W", around=0),
    "three dimensions": Case((3, 2, 3), channels=(3, 16), dynamic="DHW"),
    "f64": Case(dtype="f64", step=2),
}
SIDES = ((5, 5, 5), (4, 7, 9), (6, 16, 16), (5, 13, 34), (7, 5, 41))


def module_of(case: Case) -> Module:
    """y = the convolution of x with a constant, and what follows; sides that are not dynamic are 9."""
    graph, dtype, rng = GraphBuilder(), DTYPES[case.dtype], np.random.default_rng(0)
    rank, (read, made) = len(case.window), case.channels
    n, *sides = (
        graph.symbol(s) if s in case.dynamic else const(case.batch if s == "N" else 9) for s in ("N", *"DHW"[-rank:])
    )
    groups = (case.groups,) if case.groups > 1 else ()
    value = graph.param("x", TensorType(dtype, (n, *map(const, groups), const(read), *sides)))
    if case.around:
        zero = graph.op("full", value=const(0, dtype), shape=())
        ends = (*[0] * (2 + len(groups)), *[case.around] * rank)
        value = graph.op("pad", value, zero, low=ends, high=ends)
    w = graph.constant("w", rng.integers(-4, 5, (*groups, made, read, *case.window)).astype(dtype.numpy))
    places, taps, group = "ijk"[:rank], "abd"[:rank], "g " if groups else ""
    image = " ".join(f"{p}*{case.step}+{t}*{case.dilation}" for p, t in zip(places, taps, strict=True))
    spec = f"n {group}c {image}, {group}o c {' '.join(taps)} -> n {group}o {' '.join(places)}"
    spec = spec.replace("*1", "")
    extents: list[tuple[str, Expr]] = []
    for place, side, window in zip(places, sides, case.window, strict=True):
        reach = (window - 1) * case.dilation + 1
        extents.append((place, (side + (2 * case.around - reach)) // case.step + 1))
    y = graph.op("contract", value, w, spec=spec, sizes=tuple(extents))
    if "bias" in case.after:
        shape = (*groups, made, *[1] * rank)
        y = graph.op("add", y, graph.constant("b", rng.integers(-4, 5, shape).astype(dtype.numpy)))
    if "residual" in case.after:
        y = graph.op("add", y, graph.param("r", y.type))
    return graph.module({"y": graph.op("mul", y, graph.op("sigmoid", y)) if "swish" in case.after else y})


def kernel_of(case: Case, target: Target) -> Function:
    """The kernel with the contraction."""
    (found,) = (f for f in planned_kernels(module_of(case), target) if Facts(f).contraction is not None)
    return found


@pytest.mark.parametrize("name", CASES)
def test_compiled_is_the_meaning(name: str, only_transposed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of small whole numbers are exact in any order; accesses outside of buffers end the call."""
    monkeypatch.setenv("TILEWRIGHT_CHECK", "1")
    monkeypatch.setenv("TILEWRIGHT_WINOGRAD", "0")
    case, made = CASES[name], module_of(CASES[name])
    exe, rng = compile_module(made), np.random.default_rng(1)
    exe.denormals = "keep"  # as the evaluator, which results are compared with digit by digit
    assert ("transposed" in {d.template for d in exe.decisions.values()}) == (case.groups == 1)
    for sides in SIDES:
        symbols = dict(zip("NDHW", (3, *sides), strict=True))
        values: dict[Var, int] = {s: symbols[s.name] for s in made.graph.symbols}
        inputs = []
        for value in made.graph.params:
            shape = [int(number(e, values)) for e in value.type.shape]
            inputs.append(rng.integers(-4, 5, shape).astype(value.type.dtype.numpy))
        (found,) = exe(*inputs)
        np.testing.assert_allclose(found, evaluate(made, inputs)["y"], rtol=1e-5 if "swish" in case.after else 0)


@cache
def two_convolutions(target: str) -> tuple[Module, Executable]:
    """One after the other, of images of any size; accesses outside of buffers end the call."""
    graph, rng = GraphBuilder(), np.random.default_rng(0)
    n, h, w = map(graph.symbol, "NHW")
    value = graph.param("x", TensorType(f32, (n, const(4), h, w)))
    zero = graph.op("full", value=const(0, f32), shape=())
    for read, made in ((4, 24), (24, 7)):
        value = graph.op("pad", value, zero, low=(0, 0, 1, 1), high=(0, 0, 1, 1))
        taps = graph.constant("w", rng.integers(-4, 5, (made, read, 3, 3)).astype(np.float32))
        spec = "n c i+a j+b, o c a b -> n o i j"
        value = graph.op("relu", graph.op("contract", value, taps, spec=spec, sizes=(("i", h), ("j", w))))
    module = graph.module({"y": value})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CHECK", "1")
        patch.setenv("TILEWRIGHT_WINOGRAD", "0")
        return module, compile_module(module, target=Target.parse(target))


@pytest.mark.parametrize("sizes", [(2, 13, 34), (1, 1, 1), (2, 0, 5), (0, 3, 3)])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "native"])
def test_a_convolution_stores_into_the_padding_of_the_next(sizes: tuple[int, int, int], target: str) -> None:
    """Both run in tiles, and what is around the first one's results is zero, of empty images, too."""
    module, exe = two_convolutions(target)
    first, second = exe.decisions.values()
    assert {first.template, second.template} <= {"contraction", "transposed"}
    x = np.random.default_rng(1).integers(-4, 5, (sizes[0], 4, *sizes[1:])).astype(np.float32)
    np.testing.assert_array_equal(exe(x)[0], evaluate(module, [x])["y"])


def test_the_first_of_two_convolutions_pads_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_WINOGRAD", "0")
    copies = [
        any(b.name.startswith("pad_copy") for b in blocks(kernel.body))
        for kernel in planned_kernels(two_convolutions("x86-64-v3")[0], V3)
    ]
    assert copies == [True, False]


def test_positions_are_one_axis() -> None:
    """Rows and columns of an image share tiles: the last tile of an image alone has an edge."""
    made, decision = schedule(kernel_of(CASES["3x3, every second"], V3), V3)
    assert decision.template == "transposed"
    assert not decision.refusals
    assert "flatten" in str(made.trace)


@pytest.mark.parametrize(("outputs", "transposed"), [(64, True), (4, False)])
def test_choice(outputs: int, transposed: bool) -> None:
    """Every second column would be gathered; few outputs leave lanes empty."""
    assert is_transposed(kernel_of(Case(channels=(64, outputs), step=2), V3), V3) == transposed
