"""Optimisation levels and passes switched off: another way to the same results."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.network_models import NETWORKS
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import tilewright as tw
from drawn import LONG
from graph_strategies import Program, programs
from tilewright.compiler.pipeline import PLANNED, SCHEDULED, pipeline
from tilewright.core.switches import HIGHEST
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate
from tilewright.plan.fusion.partitions import KERNEL_NODES
from tilewright.target import native

PASSES = [p.name for p in pipeline(native())]
OPTIONAL = [p.name for p in pipeline(native()) if p.since] + ["plan", "schedule"]
DIGITS = "examples/digits/digits.onnx"
Array = np.ndarray[Any, Any]

IMAGES = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
SMALL = ("MLP", "LSTM", "digits", "ViT-B/16")
"""Networks that together most passes change, those that compile fastest first."""


@cache
def model_of(network: str) -> tuple[bytes, dict[str, Array], dict[str, Array]]:
    """A network, what it is called with, and what it computes."""
    if network == "digits":
        model, feeds = Path(DIGITS).read_bytes(), {"image": IMAGES}
    else:
        graph = next(n for n in NETWORKS if n.name == network).build_tiny()
        model, feeds = graph.model().SerializeToString(), graph.feeds
    return model, feeds, tw.evaluate(read(model), feeds)


@cache
def compiled(network: str, level: int = HIGHEST) -> tw.Executable:
    return tw.compile(model_of(network)[0], level=level)


@cache
def changes(network: str) -> set[str]:
    """The passes that make something else of a network."""
    exe = compiled(network)
    made = [(name, exe.after(name)) for name in exe.stages if name in PASSES]
    return {name for (_, before), (name, after) in itertools.pairwise(made) if after is not before}


def require_right(network: str, exe: tw.Executable) -> None:
    _, feeds, right = model_of(network)
    for name, found in exe.run(feeds).items():
        np.testing.assert_allclose(found, right[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("level", range(HIGHEST + 1))
def test_levels_agree(level: int) -> None:
    require_right("digits", compiled("digits", level))


@pytest.mark.parametrize("name", OPTIONAL)
def test_each_pass_can_be_left_out(name: str) -> None:
    """Of the first network that it changes; where it changes none, its name is left out all the same."""
    network = next((n for n in SMALL if name in changes(n)), SMALL[0])
    exe = tw.compile(model_of(network)[0], off=[name])
    assert name in ("plan", "schedule") or name not in exe.stages
    require_right(network, exe)


def test_an_operator_of_many_constants_is_a_kernel_at_every_level() -> None:
    """More maps without inputs than a kernel holds nodes."""
    count = 3 * KERNEL_NODES // 2
    parts = [f"  c{n}: f32[2] = full(value={n}.0, shape=(2,))" for n in range(count)]
    names = ", ".join(f"c{n}" for n in range(count))
    text = "\n".join(["graph main() -> y:", *parts, f"  y: f32[{2 * count}] = concat({names}, axis=0)", ""])
    for level in range(HIGHEST + 1):
        (found,) = tw.compile(tw.parse(text), level=level, off=["fold"] if level else [])()
        np.testing.assert_array_equal(found, np.repeat(np.arange(count, dtype=np.float32), 2))


def test_lower_levels_have_fewer_passes_and_more_kernels() -> None:
    exes = [compiled("digits", level) for level in range(HIGHEST + 1)]
    passes = [set(exe.stages) for exe in exes]
    assert all(a < b for a, b in itertools.pairwise(passes))
    assert len(exes[0].kernels) > len(exes[1].kernels)
    assert exes[PLANNED - 1].plan.parts == () and exes[PLANNED].plan.parts
    assert "vectorize" not in exes[SCHEDULED - 1].show(after="schedule")
    assert "vectorize" in exes[SCHEDULED].show(after="schedule")


LEVELS = [(n.name, level) for k, n in enumerate(NETWORKS) for level in range(HIGHEST) if LONG or level == k % HIGHEST]
"""Each network at a level below the highest, by turns: at each, one of the convolutional ones and a transformer."""


@pytest.mark.parametrize(("network", "level"), LEVELS)
def test_networks_agree_at_every_level(network: str, level: int) -> None:
    model, feeds, right = model_of(network)
    for name, found in tw.compile(model, level=level).run(feeds).items():
        largest = float(np.abs(right[name]).max())
        np.testing.assert_allclose(found, right[name], rtol=0, atol=1e-3 * largest, err_msg=name)


@settings(max_examples=1000 if LONG else 12, deadline=None)
@given(programs(), st.integers(0, HIGHEST), st.lists(st.sampled_from(OPTIONAL), max_size=4, unique=True))
def test_random_graphs_agree_with_any_switches(program: Program, level: int, off: list[str]) -> None:
    expected = evaluate(program.module, program.inputs)
    exe = tw.compile(program.module, level=level, off=off)
    found = exe.run(dict(zip([p.name for p in exe.inputs], program.inputs, strict=True)))
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"level": 4}, "there is no optimisation level 4"),
        ({"off": ["fussion"]}, "cannot switch off fussion"),
        ({"off": ["bufferize"]}, "cannot switch off bufferize"),
        ({"off": "winograd2"}, "cannot switch off winograd2"),
    ],
)
def test_what_cannot_be_switched_is_refused(options: dict[str, object], what: str) -> None:
    with pytest.raises(tw.UserError, match=what):
        tw.compile(DIGITS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", range(HIGHEST + 1))
def test_a_nest_whose_bounds_several_conditions_choose(level: int) -> None:
    """LLVM's value numbering, where it makes phis of operations, ends the process on this one at level 1."""
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2, 2])]
    infos.append(helper.make_tensor_value_info("axes", TensorProto.INT64, [1]))
    result = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node("ReduceL2", ["x", "axes"], ["y"])], "g", infos, [result])
    exe = tw.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), level=level)
    x = np.random.default_rng(1).random((3, 2, 2), np.float32)
    for axis in (-3, 0, 1, 2):
        (found,) = exe(x, np.array([axis]))
        np.testing.assert_allclose(found, np.sqrt((x * x).sum(axis, keepdims=True)), rtol=1e-6)
