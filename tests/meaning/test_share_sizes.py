"""Kernels that differ in outer sizes alone are one, and give the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from graph_strategies import Program, agree
from tilewright.expr.dtypes import f32
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.graph.symbolic import Call
from tilewright.loops.nodes import Function
from tilewright.lower.kernels.make_kernels import make_kernels
from tilewright.plan.fusion.planner import choose
from tilewright.target import Target, native
from tilewright.tune.task import Maker, task_of

TARGET = Target.parse("x86-64-v3")
LANES = TARGET.lanes(f32)
CHANNELS = (24, 40, 72, 5)


def layers(channels: Sequence[int], images: Sequence[int] = (4,), rows: Sequence[int] = (36,)) -> str:
    """Scaled images of these channels, and the sum of each channel; images and rows in turn."""
    params, results, lines = [], [], []
    for k, (c, n, row) in enumerate(zip(channels, cycle(images), cycle(rows), strict=False)):
        params += [f"x{k}: f32[{n}, {c}, {row}]", f"b{k}: f32[1, {c}, 1]"]
        results += [f"y{k}", f"m{k}"]
        lines += [
            f"  s{k}: f32[{n}, {c}, {row}] = mul(x{k}, b{k})",
            f"  y{k}: f32[{n}, {c}, {row}] = relu(s{k})",
            f"  m{k}: f32[1, {c}, 1] = reduce(x{k}, kind=sum, axes=(0, 2), keepdims=true)",
        ]
    return f"graph main({', '.join(params)}) -> {', '.join(results)}:\n" + "\n".join(lines) + "\n"


def functions(module: Module) -> list[Function]:
    """The kernels that the pass makes."""
    made = make_kernels(module, lambda graph: choose(graph, TARGET), LANES)
    return [f for f in made.functions.values() if isinstance(f, Function)]


def inputs(module: Module) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    rng = np.random.default_rng(4)
    shapes = [p.type.static_shape() or () for p in module.graph.params]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_layers_of_other_channels_share_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every access is asserted to be inside its buffer."""
    monkeypatch.setenv("TILEWRIGHT_CHECK", "1")
    module = parse_module(layers(CHANNELS))
    assert [[s.name for s in f.symbols] for f in functions(module)] == [["size0"], ["size0"]]
    exe = tw.compile(module)
    assert len(exe.kernels) == 2
    given = inputs(module)
    for k, (y, m) in enumerate(zip(*[iter(exe(*given))] * 2, strict=True)):
        x, b = given[2 * k], given[2 * k + 1]
        np.testing.assert_allclose(y, np.maximum(x * b, 0), rtol=1e-5)
        np.testing.assert_allclose(m, x.sum((0, 2), keepdims=True), rtol=1e-4, atol=1e-4)


def test_calls_tell_each_size_that_differs() -> None:
    made = make_kernels(parse_module(layers(CHANNELS, images=(2, 3))), lambda graph: choose(graph, TARGET), LANES)
    calls = [node.attrs for node in made.graph.nodes if isinstance(node.attrs, Call)]
    told = {tuple(int(e.value) for e in call.symbols) for call in calls}  # type: ignore[attr-defined]
    assert told == {(2, 24), (3, 40), (2, 72), (3, 5)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (layers(CHANNELS[:3]), "they are few"),
        (layers((8,) * 4), "they are the same"),
        (layers(CHANNELS, rows=(7,)), "rows do not fill vectors"),
        (layers(CHANNELS, rows=(36, 37)), "there are two of each row"),
    ],
)
def test_others_keep_their_sizes(text: str, why: str) -> None:
    assert not any(f.symbols for f in functions(parse_module(text))), why


def test_a_kernel_of_one_axis_is_told_its_size() -> None:
    names = [f"x{n}" for n in CHANNELS]
    params = ", ".join(f"{x}: f32[{n}]" for x, n in zip(names, CHANNELS, strict=True))
    body = "".join(f"  y{n}: f32[{n}] = exp(x{n})\n" for n in CHANNELS)
    module = parse_module(f"graph main({params}) -> {', '.join(f'y{n}' for n in CHANNELS)}:\n{body}")
    assert [len(f.symbols) for f in functions(module)] == [1]
    given = inputs(module)
    for x, y in zip(given, tw.compile(module)(*given), strict=True):
        np.testing.assert_allclose(y, np.exp(x), rtol=1e-5)


BRANCHES = """
graph main(c: bool[], p: f32[24], q: f32[40], r: f32[72], s: f32[5]) -> a, b, u, v:
  a: f32[24] = exp(p)
  b: f32[40] = exp(q)
  u: f32[72], v: f32[5] = if(c, r, s, then="one", otherwise="two", symbols=())

graph one(r: f32[72], s: f32[5]) -> u, v:
  u: f32[72] = exp(r)
  v: f32[5] = exp(s)

graph two(r: f32[72], s: f32[5]) -> u, v:
  u: f32[72] = tanh(r)
  v: f32[5] = exp(s)
"""


def test_functions_of_a_module_share_their_kernels() -> None:
    module = parse_module(BRANCHES.strip())
    assert [len(f.symbols) for f in functions(module) if "exp" in f.name] == [1]
    given = inputs(module)[1:]
    for c in (True, False):
        *found, u, v = tw.compile(module)(np.array(c), *given)
        wanted = [*map(np.exp, given[:2]), (np.exp if c else np.tanh)(given[2]), np.exp(given[3])]
        for one, other in zip([*found, u, v], wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_kernels_that_are_told_sizes_can_be_tuned() -> None:
    made = make_kernels(parse_module(layers(CHANNELS)), lambda graph: choose(graph, TARGET), LANES)
    for function in [f for f in made.functions.values() if isinstance(f, Function)]:
        task = task_of(made, function, {})
        assert task is not None and task.sizes == {"size0": CHANNELS[0]}
        assert Maker(task, native()).program() is not None


def test_work_is_counted_with_the_sizes_of_each_call() -> None:
    exe = tw.compile(parse_module(layers(CHANNELS)))
    flops = {(row.name, str(row.flops)) for row in exe.plan.kernels}
    assert len(flops) == 2 * len(CHANNELS) and all(count.isdigit() for _, count in flops)


COUNTS = st.lists(st.integers(1, 40), min_size=4, max_size=6)


@settings(max_examples=15, deadline=None)
@given(COUNTS, st.lists(st.integers(1, 3), min_size=1, max_size=2), st.integers(16, 40))
def test_any_sizes_agree(channels: list[int], images: list[int], row: int) -> None:
    module = parse_module(layers(channels, images, (row,)))
    agree(Program(module, inputs(module)), make_kernels(module, lambda graph: choose(graph, TARGET), LANES), 1e-4)
