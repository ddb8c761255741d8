"""Pools: what they compute, compared with the graph's evaluator, and which of them run in tiles along the rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from inner_loops import inner_loops

from drawn import LONG
from planned import llvm_of, planned_kernels
from tilewright.codegen.assemble import assembly
from tilewright.compiler import compile_module
from tilewright.compiler.pipeline import lower
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.nodes import const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.plan.choose import schedule
from tilewright.plan.window.column_tiles import Held
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Images (count, channels, height, width), of a count that each call tells where it is `symbolic`; a window, its
    step and the distance of its places along height and width; what is around an image, `low` before and `high` behind;
    a map `before` it, and one `after` the pool."""

    images: tuple[int, int, int, int]
    window: tuple[int, int] = (3, 3)
    step: tuple[int, int] = (2, 2)
    gap: tuple[int, int] = (1, 1)
    low: tuple[int, int] = (0, 0)
    high: tuple[int, int] = (0, 0)
    kind: str = "max"
    dtype: str = "f32"
    before: str = ""
    after: str = ""
    symbolic: bool = False


TILED = {
    "every second": Case((2, 3, 21, 21)),
    "every second, short rows": Case((1, 5, 9, 9)),
    "every second, long rows": Case((1, 2, 13, 71)),
    "two by two": Case((1, 3, 28, 28), (2, 2)),
    "two by two, long rows": Case((1, 2, 6, 112), (2, 2)),
    "one by one": Case((1, 3, 14, 14), step=(1, 1), low=(1, 1), high=(1, 1)),
    "a large window": Case((2, 3, 20, 20), (13, 13), (1, 1), low=(6, 6), high=(6, 6)),
    "a large window, every second": Case((1, 3, 30, 31), (9, 11), low=(4, 5), high=(4, 5), kind="sum"),
    "most of a vector": Case((2, 3, 13, 13), (5, 5), (1, 1), low=(2, 2), high=(2, 2)),
    "a whole vector": Case((1, 3, 9, 16), step=(1, 1), low=(1, 1), high=(1, 1)),
    "four columns": Case((1, 3, 5, 4), step=(1, 1), low=(1, 1), high=(1, 1)),
    "something around": Case((1, 3, 30, 30), low=(1, 1), high=(1, 1)),
    "something around, large images": Case((1, 2, 112, 112), low=(1, 1), high=(1, 1)),
    "uneven": Case((1, 3, 22, 23), low=(0, 0), high=(1, 0)),
    "much around": Case((1, 2, 5, 5), (3, 3), (1, 1), low=(4, 5), high=(5, 4)),
    "apart": Case((1, 3, 17, 19), step=(1, 1), gap=(2, 3), low=(2, 3), high=(2, 3)),
    "steps of rows": Case((1, 3, 15, 20), step=(3, 1)),
    "a row of a window": Case((1, 3, 9, 20), (1, 7), (1, 1), low=(0, 3), high=(0, 3)),
    "a column of a window": Case((1, 3, 20, 9), (7, 1), (1, 1), low=(3, 0), high=(3, 0)),
    "the least": Case((1, 3, 12, 15), kind="min", low=(1, 1), high=(1, 1)),
    "sums": Case((1, 3, 12, 15), kind="sum", low=(1, 1), high=(1, 1)),
    "means": Case((1, 3, 16, 18), (2, 2), kind="sum", after="share"),
    "a map before": Case((1, 3, 14, 20), low=(0, 0), high=(1, 1), before="prelu"),
    "any number of images": Case((3, 4, 21, 21), symbolic=True),
    "any number of images, something around": Case((3, 4, 22, 22), high=(1, 1), before="prelu", symbolic=True),
    "no images": Case((0, 4, 22, 22), high=(1, 1), symbolic=True),
    "one channel": Case((1, 1, 14, 18), low=(1, 1), high=(1, 1)),
    "one channel, nothing around": Case((1, 1, 14, 18)),
    "f64": Case((1, 3, 14, 15), dtype="f64", low=(1, 1), high=(1, 1)),
    "i32": Case((1, 3, 14, 15), dtype="i32", low=(1, 1), high=(1, 1)),
    "i64, one by one": Case((1, 2, 9, 11), step=(1, 1), dtype="i64"),
    "u8": Case((1, 2, 40, 40), dtype="u8", low=(1, 1), high=(1, 1)),
    "i8, one by one": Case((1, 2, 12, 40), step=(1, 1), dtype="i8", low=(1, 1), high=(1, 1)),
}
OTHERS = {
    "every third column": Case((1, 3, 14, 26), step=(3, 3)),
    "three columns": Case((1, 3, 9, 7)),
    "one row": Case((1, 3, 3, 40)),
    "no channels": Case((1, 0, 21, 21)),
}


def pool(case: Case) -> tuple[Module, list[Array]]:
    """The graph, and images for it."""
    dtype = DTYPES[case.dtype]
    rng = np.random.default_rng(0)
    graph = GraphBuilder()
    shape = (graph.symbol("N"), *case.images[1:]) if case.symbolic else case.images
    value = graph.param("x", TensorType.of(dtype, shape))
    if case.before:
        zero = graph.op("full", value=const(0, dtype), shape=())
        slope = graph.constant("slope", rng.standard_normal((1, case.images[1], 1, 1)).astype(dtype.numpy))
        value = graph.op("select", graph.op("lt", value, zero), graph.op("mul", value, slope), value)
    if any((*case.low, *case.high)):
        outside = {"max": dtype.min, "min": dtype.max, "sum": 0}[case.kind]
        around = graph.op("full", value=const(outside, dtype), shape=())
        value = graph.op("pad", value, around, low=(0, 0, *case.low), high=(0, 0, *case.high))
    sides = {"window": case.window, "strides": case.step, "dilations": case.gap}
    y = graph.op("window_reduce", value, kind=case.kind, **{name: (1, 1, *n) for name, n in sides.items()})
    if case.after:
        y = graph.op("mul", y, graph.op("full", value=const(0.25, dtype), shape=()))
    if dtype.is_float:
        return graph.module({"y": y}), [rng.standard_normal(case.images).astype(dtype.numpy)]
    low, high = max(dtype.min, -1000), min(dtype.max, 1000)
    return graph.module({"y": y}), [rng.integers(low, high + 1, case.images).astype(dtype.numpy)]


def kernels(case: Case, target: Target) -> list[Function]:
    """The kernels of a case before they are scheduled."""
    return planned_kernels(pool(case)[0], target)


def scheduled(case: Case, target: Target, **choice: Any) -> Schedule | None:
    """The schedule of a case's kernel, where a template of windows runs it; with fields of a choice, by that."""
    (kernel,) = kernels(case, target)
    made, decision = schedule(kernel, target)
    if not decision.template.startswith("windows") or decision.taken is None:
        return None
    forced = {"template": decision.template, "choice": {**decision.taken.choice, **choice}}
    return schedule(kernel, target, forced)[0] if choice else made


MACHINES = ("native", "x86-64-v3")
CASES = [(name, m) for k, name in enumerate(TILED | OTHERS) for m in MACHINES if LONG or m == MACHINES[k % 2]]
"""Each on one of the machines, by turns: windows, steps, kinds, element types and what is around occur on both."""


@pytest.mark.parametrize(("name", "machine"), CASES)
def test_same_as_the_graph(name: str, machine: str) -> None:
    """Whichever way it is run; and these are run in tiles, the others not."""
    case, target = (TILED | OTHERS)[name], Target.parse(machine)
    module, inputs = pool(case)
    (wanted,) = evaluate(module, inputs).values()
    exe = compile_module(module, target=target, threads=2)
    (found,) = exe(*inputs)
    if case.kind == "sum":
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, wanted)
    assert any(d.template.startswith("windows") for d in exe.decisions.values()) == (name in TILED)


@pytest.mark.parametrize("name", ["every second", "one by one", "something around"])
def test_what_is_no_number_stays(name: str) -> None:
    """The largest of a window that holds NaN is NaN."""
    module, (x,) = pool(TILED[name])
    x[0, 0, 3, 4], x[0, 1, 0, 0] = np.nan, np.inf
    (wanted,) = evaluate(module, [x]).values()
    (found,) = compile_module(module)(x)
    assert np.isnan(wanted).any() and np.isposinf(wanted).any()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("name", ["every second", "most of a vector", "something around, large images", "u8"])
def test_other_machines(name: str, target: str) -> None:
    """Vectors of other lengths."""
    machine = Target.parse(target)
    assert scheduled(TILED[name], machine) is not None
    assert lower(pool(TILED[name])[0], machine).code


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("name", "rows"), [("every second", 2 * 10 + 1), ("two by two, long rows", 2 * 3)])
def test_a_row_is_loaded_once_for_all_windows_that_meet_it(name: str, rows: int, target: str) -> None:
    """A tile of all ten, or of three, rows; each place of a row is two vectors of neighbours, none on the stack."""
    machine = Target.parse(target)
    text = assembly(llvm_of(pool(TILED[name])[0], machine), machine)
    case = TILED[name]
    (loop,) = inner_loops(text, "vmaxps")
    assert not re.search(r"[xyz]mm", "".join(loop.on_stack))  # comparisons with what is no number may be
    masks = len(loop.on_stack)
    assert loop.reads - masks <= 2 * rows * case.window[1] + 8
    assert "vgather" not in text and "vpinsr" not in text


def test_what_is_around_is_laid_around_in_the_kernel() -> None:
    """A channel at a time, on the stack; of large images a few rows."""
    target = Target.parse("x86-64-v4")
    for name, rows in (("something around", 31), ("something around, large images", 9)):
        held = Held.CHANNEL if rows == 31 else Held.ROW_OF_TILES
        s = scheduled(TILED[name], target, held=held.value, rows=4)
        assert s is not None
        (line,) = (text for text in str(s.func).splitlines() if text.strip().startswith("alloc pad: "))
        assert f"f32[1, 1, {rows}, " in line and line.endswith("in stack")
