"""Models of many operators, inputs and outputs compile in time that grows with their number: what Python does is
counted for n and for 2 n."""

from __future__ import annotations

import cProfile
from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import tilewright as tw
from tilewright.expr import dtypes
from tilewright.expr.nodes import Var
from tilewright.frontends.onnx import read
from tilewright.runtime.interface import Interface, Port
from tilewright.types.tensor import TensorType

N = 150
MOST = 2.3
"""How many times as much twice as many may take: 2 and a logarithm, where quadratic work comes to 4."""


def model_of(
    nodes: list[tuple[str, list[str], list[str]]], inputs: int, outputs: list[str], each: int = 2
) -> ModelProto:
    """Nodes over inputs x0, x1 …; all tensors but those of a Split or a Concat have `each` elements."""
    ports = [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, [each]) for n in range(inputs)]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    made = [
        helper.make_node(op, ins, outs, **({"axis": 0} if op in ("Concat", "Split") else {}), **_parts(op, outs))
        for op, ins, outs in nodes
    ]
    graph = helper.make_graph(made, "many", ports, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _parts(op: str, outs: list[str]) -> dict[str, int]:
    return {"num_outputs": len(outs)} if op == "Split" else {}


def names(letter: str, n: int) -> list[str]:
    return [f"{letter}{i}" for i in range(n)]


def outputs(n: int) -> ModelProto:
    """n names of one result."""
    return model_of([("Relu", ["x0"], ["r"]), *(("Identity", ["r"], [y]) for y in names("y", n))], 1, names("y", n))


def separate(n: int) -> ModelProto:
    """n results of n inputs."""
    return model_of([("Relu", [f"x{i}"], [f"y{i}"]) for i in range(n)], n, names("y", n))


def concat(n: int) -> ModelProto:
    return model_of([("Concat", names("x", n), ["y"])], n, ["y"])


def summed(n: int) -> ModelProto:
    return model_of([("Sum", names("x", n), ["y"])], n, ["y"])


def chain(n: int) -> ModelProto:
    nodes = [("Add", [f"t{i}" if i else "x0", "x1"], [f"t{i + 1}"]) for i in range(n)]
    return model_of(nodes, 2, [f"t{n}"])


def split(n: int) -> ModelProto:
    return model_of([("Split", ["x0"], names("y", n))], 1, names("y", n), each=2 * n)


SHAPES: dict[str, Callable[[int], ModelProto]] = {
    made.__name__: made for made in (outputs, separate, concat, summed, chain, split)
}


def calls_to_compile(model: ModelProto) -> int:
    """How many functions Python calls to compile a model, and what it computes checked against NumPy."""
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    try:
        exe = tw.compile(model)
    finally:
        profile.disable()
    rng = np.random.default_rng(0)
    arrays = {p.name: rng.standard_normal(int(str(p.shape[0]))).astype(np.float32) for p in exe.inputs}
    expected = tw.evaluate(read(model), arrays)
    for name, array in exe.run(arrays).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5)
    return sum(row.callcount for row in profile.getstats())


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_as_many_take_twice_as_much(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "1")
    calls_to_compile(SHAPES[shape](2))  # what is imported, and computed once
    once, twice = (calls_to_compile(SHAPES[shape](n)) for n in (N, 2 * N))
    assert twice < MOST * once, f"{once:,} calls for {N}, {twice:,} for {2 * N}"


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_call_may_have_thousands_of_results(dynamic: bool) -> None:
    n = Var("n")
    outputs = tuple(Port(f"y{i}", TensorType.of(dtypes.f32, [n if dynamic else 3])) for i in range(5000))
    bind = Interface((Port("x", TensorType.of(dtypes.f32, [n])),), outputs, (n,)).binder()
    assert bind([(7,)]) == ((7,), ((7,) if dynamic else (3,),) * 5000, 5000 * 4 * (7 if dynamic else 3))


def test_a_program_reads_pointers_beside_the_calls_they_are_for() -> None:
    """Held from the start of the program on, thousands of pointers take LLVM time that grows with their square."""
    text = tw.compile(separate(8)).show("llvm")
    lines = text[text.index("@program(") :].partition("\n}")[0].splitlines()
    calls = [n for n, line in enumerate(lines) if "call i64 @" in line and "k.relu" in line]
    assert len(calls) == 8
    assert all(sum("load ptr, ptr" in line for line in lines[n - 5 : n]) == 2 for n in calls)
