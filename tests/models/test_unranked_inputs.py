"""Inputs of which a file does not say how many dimensions they have: the operators that read them tell, or the user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx_runtime import session_of

import tilewright as tw
from cli_models import invoke
from tilewright.core.reading import Reading
from tilewright.frontends.onnx import ranks, read

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node
RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def model(
    nodes: Sequence[NodeProto],
    inputs: dict[str, int],
    constants: dict[str, np.ndarray[Any, Any]] | None = None,
    shape: Sequence[int | str] | None = None,
) -> ModelProto:
    """A model whose inputs have no rank; `shape` is declared of its output."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, type, None) for name, type in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


FOUND = {
    "convolution": (
        model([node("Relu", ["x"], ["r"]), node("Conv", ["r", "w"], ["y"])], {"x": FLOAT}, {"w": normal(4, 3, 3, 3)}),
        {"x": normal(2, 3, 6, 5)},
    ),
    "behind a transpose": (
        model([node("Transpose", ["x"], ["y"], perm=[0, 2, 1])], {"x": FLOAT}),
        {"x": normal(2, 3, 4)},
    ),
    "two that need each other": (
        model(
            [
                node("MatMul", ["x", "z"], ["m"]),
                node("Gemm", ["z", "w"], ["g"]),
                node("Concat", ["m", "g"], ["y"], axis=0),
            ],
            {"x": FLOAT, "z": FLOAT},
            {"w": normal(5, 5)},
        ),
        {"x": normal(2, 3), "z": normal(3, 5)},
    ),
    "embedding": (
        model(
            [node("Gather", ["w", "x"], ["e"]), node("Transpose", ["e"], ["y"], perm=[0, 2, 1])],
            {"x": INT},
            {"w": normal(9, 4)},
        ),
        {"x": np.array([[1, 8, 0]])},
    ),
    "recurrent": (
        model(
            [node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=2), node("Identity", ["h"], ["y"])],
            {"x": FLOAT},
            {"w": normal(1, 8, 3), "r": normal(1, 8, 2)},
        ),
        {"x": normal(5, 1, 3)},
    ),
    "a declared output": (model([node("Relu", ["x"], ["y"])], {"x": FLOAT}, shape=["n", 3]), {"x": normal(4, 3)}),
}


@pytest.mark.parametrize("case", FOUND)
def test_operators_tell_the_rank(case: str) -> None:
    proto, feeds = FOUND[case]
    exe = tw.compile(proto)
    (expected,) = session_of(proto).run(None, feeds)
    np.testing.assert_allclose(exe.run(feeds)["y"], expected, rtol=1e-5, atol=1e-5)


OPEN = {
    "any": (model([node("Relu", ["x"], ["y"])], {"x": FLOAT}), "the model can be read with any number of dimensions"),
    "some": (
        model(
            [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["m"], ["y"], axis=-3)],
            {"x": FLOAT},
            {"w": normal(3, 3)},
        ),
        "the model can be read with 3, 4, 5, 6 and 7 dimensions",
    ),
    "none": (
        model(
            [node("Gemm", ["x", "w"], ["g"]), node("Transpose", ["x"], ["y"], perm=[0])],
            {"x": FLOAT},
            {"w": normal(3, 3)},
        ),
        "the model can be read with none of 0 to 7 dimensions",
    ),
}


@pytest.mark.parametrize("case", OPEN)
def test_what_no_operator_tells(case: str) -> None:
    proto, why = OPEN[case]
    with pytest.raises(tw.UserError) as caught:
        tw.compile(proto)
    fix = "fix:  give its dimensions, sizes or names: dims={'x': ['n', 3]}, or --dim 'x=[n, 3]'"
    assert f"an input has no rank\nat:   input 'x'\nwhy:  {why}\n{fix}" in str(caught.value)


def test_unsupported_operators_are_listed_beside() -> None:
    nodes = [node("Conv", ["x", "w"], ["c"]), node("StringConcat", ["s", "s"], ["t"]), node("Neg", ["z"], ["y"])]
    proto = model(nodes, {"x": FLOAT, "z": FLOAT, "s": FLOAT}, {"w": normal(4, 3, 3)})
    with pytest.raises(tw.UserError) as caught:
        tw.compile(proto)
    assert "StringConcat" in str(caught.value)
    assert "input 'z'" in str(caught.value)
    assert "input 'x'" not in str(caught.value)


def test_dimensions_are_given(tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    onnx.save(OPEN["any"][0], path)
    exe = tw.compile(str(path), dims={"x": ["n", 3, "n"]})
    assert str(exe.interface) == "(x: f32[n, 3, n]) -> (y: f32[n, 3, n])"
    assert str(tw.compile(str(path), dims={"x": ["n"]}).interface) == "(x: f32[n]) -> (y: f32[n])"
    assert str(tw.compile(str(path), dims={"x": ["n", 3], "n": 2}).interface) == "(x: f32[2, 3]) -> (y: f32[2, 3])"
    outcome = invoke("show", str(path), "--dim", "x=[n, 3]", "--dim", "n=4")
    assert outcome.code == 0
    assert "x: f32[4, 3]" in outcome.out


WRONG = {
    "no such input": (
        {"y": ["n", 3]},
        "cannot take the dimensions of 'y'\nat:   y = [n, 3]\nwhy:  the inputs are x\n"
        "fix:  leave it out; dims={name: size} sets a dimension by its own name",
    ),
    "negative": (
        {"x": ["n", -1]},
        "cannot use -1 as a dimension of x\nwhy:  a dimension is a whole number from 0, or a name\n"
        'fix:  write dims={"x": ["n", 3]}',
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_dimensions(case: str) -> None:
    dims, message = WRONG[case]
    with pytest.raises(tw.UserError) as caught:
        tw.compile(OPEN["any"][0], dims=dims)
    assert str(caught.value) == message


def test_many_inputs_take_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many nodes are read to find ranks, and no more: for the last inputs none is tried."""
    monkeypatch.setattr(ranks, "MOST_NODES", 20_000)
    names = [f"x{n}" for n in range(100)]
    nodes = [node("Relu", [name], [f"r{name}"]) for name in names]
    nodes.append(node("Sum", [f"r{name}" for name in names], ["y"]))
    with pytest.raises(tw.UserError, match="100 errors") as caught:
        read(model(nodes, dict.fromkeys(names, FLOAT)), Reading())
    with_each_rank = (ranks.MOST_DIMENSIONS + 1) * len(nodes)
    assert str(caught.value).count("with any number of dimensions") == 20_000 // with_each_rank
