"""Operators that a program registers: compiled as their meanings say for all sizes, fused with their neighbours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tw
from added_operators import DOMAIN, ScaledSum, model, node, registered
from tilewright.compiler import processes
from tilewright.compiler.apart import produce
from tilewright.compiler.pipeline import lower
from tilewright.core import extensions
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import call
from tilewright.expr.work import Work
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate
from tilewright.graph.op import REGISTRY
from tilewright.loops.build import load
from tilewright.target import native
from tilewright.types.tensor import TensorType

SIZES = [(0, 5), (5, 0), (1, 1), (1, 37), (13, 1), (13, 37), (64, 128)]


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    with registered():
        yield
    assert extensions.stamp() == ""


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def snake(x: np.ndarray, alpha: float) -> np.ndarray:
    return x + np.sin(alpha * x) ** 2 / alpha


def test_an_element_wise_operator_shares_a_kernel_with_its_neighbours() -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("Snake", ["a"], ["b"], alpha=0.5), node("Relu", ["b"], ["y"])]
    exe = tw.compile(model(nodes, x=["n", "m"], y=["n", "m"]))
    assert [kernel.operators for kernel in exe.plan.kernels] == [("neg", "snake", "relu")]
    for shape in SIZES:
        x = numbers(*shape)
        np.testing.assert_allclose(exe(x)[0], np.maximum(snake(-x, 0.5), 0), rtol=1e-5, atol=1e-6)


def test_a_reduction_takes_in_what_it_reads_and_what_follows() -> None:
    nodes = [
        node("Snake", ["x"], ["a"], alpha=2.0),
        node("ScaledSum", ["a"], ["b"], factor=3.0),
        node("Tanh", ["b"], ["y"]),
    ]
    exe = tw.compile(model(nodes, x=["n", "m"], y=["n"]))
    assert [kernel.operators for kernel in exe.plan.kernels] == [("snake", "scaled_sum", "tanh")]
    for shape in SIZES:
        x = numbers(*shape) / 8
        np.testing.assert_allclose(exe(x)[0], np.tanh(3 * snake(x, 2.0).sum(-1)), rtol=2e-5, atol=1e-5)


def test_it_is_the_epilogue_of_a_product() -> None:
    exe = tw.compile(
        model([node("MatMul", ["x", "w"], ["a"]), node("Snake", ["a"], ["y"])], x=["n", 48], w=[48, 32], y=["n", 32])
    )
    assert [kernel.template for kernel in exe.plan.kernels] == ["contraction"]
    x, w = numbers(7, 48), numbers(48, 32) / 7
    np.testing.assert_allclose(exe(x, w)[0], snake(x @ w, 1.0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [0, 1, 2, 13, 64])
def test_a_banded_product_of_any_size_and_of_others_is_a_fault(size: int) -> None:
    exe = tw.compile(model([node("Banded", ["w", "x"], ["y"], width=2)], w=["n", "n"], x=["n"], y=["n"]))
    w, x = numbers(size, size), numbers(size)
    band = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) <= 2
    np.testing.assert_allclose(exe(w, x)[0], (w * band) @ x, rtol=1e-5, atol=1e-5)


def test_a_condition_that_only_sizes_decide_is_a_check_of_the_call() -> None:
    exe = tw.compile(model([node("Banded", ["w", "x"], ["y"])], w=["n", "m"], x=["m"], y=["m"]))
    with pytest.raises(tw.RuntimeFault, match="the sizes of the matrix differ: 3 and 4"):
        exe(numbers(3, 4), numbers(4))


def test_a_handler_composes_operators_that_there_are() -> None:
    nodes = [node("Centred", ["x", "c"], ["a"]), node("Relu", ["a"], ["y"])]
    exe = tw.compile(model(nodes, x=["n", "m"], c=["m"], y=["n", "m"]))
    assert len(exe.plan.kernels) == 1
    x, c = numbers(5, 37), numbers(37)
    np.testing.assert_allclose(exe(x, c)[0], np.maximum(x - x.mean(-1, keepdims=True) + c, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_every_level_computes_what_the_meanings_say(level: int) -> None:
    nodes = [
        node("Snake", ["x"], ["a"], alpha=0.75),
        node("Transpose", ["a"], ["t"], perm=[1, 0]),
        node("Centred", ["t"], ["b", "mean"]),
        node("ScaledSum", ["b"], ["c"], factor=-1.5),
        node("Add", ["c", "c"], ["y"]),
    ]
    proto = model(nodes, x=["n", "m"], y=["m"])
    exe, module = tw.compile(proto, level=level), read(proto)
    for shape in SIZES:
        x = numbers(*shape)
        if 0 in shape:
            assert exe(x)[0].shape == shape[1:]
            continue
        np.testing.assert_allclose(exe(x)[0], evaluate(module, [x])["y"], rtol=1e-4, atol=2e-4)


def test_constants_are_folded_by_the_meaning() -> None:
    nodes = [node("Snake", ["k"], ["a"]), node("Add", ["a", "x"], ["y"])]
    proto = model(nodes, x=[3], y=[3])
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 2, 3], np.float32), "k"))
    exe = tw.compile(proto)
    assert [kernel.operators for kernel in exe.plan.kernels] == [("add",)]
    x = numbers(3)
    np.testing.assert_allclose(exe(x)[0], x + snake(np.array([1, 2, 3], np.float32), 1.0), rtol=1e-6)


def test_programs_as_text_have_them() -> None:
    graph = tw.parse("graph main[n](x: f32[n, 7]) -> y:\n  y: f32[n] = scaled_sum(x, factor=2.0)\n")
    assert "scaled_sum(x, factor=2.0)" in str(graph)
    (y,) = tw.compile(graph)(numbers(4, 7))
    np.testing.assert_allclose(y, 2 * numbers(4, 7).sum(-1), rtol=1e-5)


def test_laws_of_element_wise_operators_hold_for_them() -> None:
    """An operand that a broadcast repeats is read without the broadcast, as other element-wise operators do."""
    text = """
graph main(x: f32[64, 96], b: f32[96]) -> y:
  r: f32[64, 96] = broadcast(b, shape=(64, 96))
  y: f32[64, 96] = snake(x, r)
"""
    graph = tw.parse(text)
    exe = tw.compile(graph)
    assert [kernel.operators for kernel in exe.plan.kernels] == [("snake",)]


def test_the_models_own_function_goes_before_the_handler() -> None:
    body = [helper.make_node("Neg", ["x"], ["y"])]
    function = helper.make_function(DOMAIN, "Snake", ["x"], ["y"], body, [helper.make_opsetid("", 20)])
    proto = model([node("Snake", ["x"], ["y"])], x=[3], y=[3])
    proto.functions.append(function)
    x = numbers(3)
    assert (tw.compile(proto)(x)[0] == -x).all()


def test_a_version_of_the_operator_set_has_its_handler() -> None:
    def doubled(b: tw.Emit, x: tw.Tensor) -> tw.Tensor:
        return x + x

    def tripled(b: tw.Emit, x: tw.Tensor) -> tw.Tensor:
        return x + x + x

    tw.onnx_operator(DOMAIN, "Times", until=2)(doubled)
    tw.onnx_operator(DOMAIN, "Times", since=3)(tripled)
    x = numbers(3)
    try:
        for version, times in ((1, 2), (2, 2), (3, 3), (7, 3)):
            exe = tw.compile(model([node("Times", ["x"], ["y"], DOMAIN)], version, x=[3], y=[3]))
            np.testing.assert_allclose(exe(x)[0], times * x, rtol=1e-6)
    finally:
        tw.unregister(doubled)
        tw.unregister(tripled)


def test_other_processes_compile_kernels_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LARGE_MODEL", 1)
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "2")
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    nodes = [
        node("Snake", ["x"], ["a"]),
        node("MatMul", ["a", "w"], ["b"]),
        node("ScaledSum", ["b"], ["c"], factor=2.0),
        node("Banded", ["w", "c"], ["y"]),
    ]
    module = read(model(nodes, x=[24, 24], w=[24, 24], y=[24]))
    assert processes.useful_processes(module) == 2
    assert produce(module, native()).code == lower(module, native()).code


def test_what_the_store_keeps_depends_on_what_they_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    path = tmp_path / "model.onnx"
    onnx.save(model([node("Snake", ["x"], ["a"]), node("ScaledSum", ["a"], ["y"], factor=2.0)], x=[8, 8], y=[8]), path)
    assert not tw.compile(path, threads=1).cached
    assert tw.compile(path, threads=1).cached
    kept = REGISTRY["scaled_sum"]
    tw.unregister(kept)

    class Doubled(ScaledSum):
        def meaning(self, inputs, attrs):  # type: ignore[no-untyped-def]
            return (2 * super().meaning(inputs, attrs)[0],)

    doubled = Doubled()
    tw.register(doubled)
    assert not tw.compile(path, threads=1).cached
    tw.unregister(doubled)
    tw.register(kept)
    assert tw.compile(path, threads=1).cached


def test_closures_and_states_that_differ_have_keys_of_their_own() -> None:
    def scaling(factor: float) -> tw.Operator:
        return tw.elementwise("scaling")(lambda x: x * factor)

    def stamp_of(factor: float) -> str:
        op = scaling(factor)
        try:
            return extensions.stamp()
        finally:
            tw.unregister(op)

    assert stamp_of(2.0) == stamp_of(2.0) != stamp_of(3.0)


PROGRAM = """
import sys
import tilewright as tw
from added_operators import registered
with registered():
    print(tw.compile(sys.argv[1], threads=1).cached)
"""


def test_another_process_finds_what_this_one_compiled(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model([node("Snake", ["x"], ["y"], alpha=0.5)], x=[8, 8], y=[8, 8]), path)
    tw.compile(path, threads=1)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.stdout.split()[-1:] == ["True"], run.stdout + run.stderr


def test_registering_the_same_again_changes_nothing() -> None:
    before = extensions.stamp()
    tw.register(REGISTRY["snake"])
    assert extensions.stamp() == before


def test_work_that_an_operator_does_not_tell_is_that_of_its_definition() -> None:
    class Exponentials(ScaledSum):
        name = "exponentials"

        def define(self, build, inputs, outputs, attrs):  # type: ignore[no-untyped-def]
            (x,), (y,) = inputs, outputs
            build.accumulate(
                self.name, y, [x.shape[-1]], init=0, update=lambda total, *at: total + call("exp", load(x, *at))
            )

    types = (TensorType.of(f32, [8, 8]),)
    plain, costly = REGISTRY["scaled_sum"], Exponentials()
    tw.register(costly)
    try:
        assert plain.estimate(types, plain.attributes()) == Work(plain=2)
        assert costly.estimate(types, costly.attributes()).chained > 8
        costly.cost = Work(roots=1)
        assert costly.estimate(types, costly.attributes()) == Work(roots=1)
    finally:
        tw.unregister(costly)


def test_bodies_of_loops_and_branches_have_them() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["on"]),
            node("Snake", ["state"], ["a"], alpha=0.5),
            node("Centred", ["a"], ["next", "mean"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", 7, []),
            helper.make_tensor_value_info("going", 9, []),
            helper.make_tensor_value_info("state", 1, ["n", 8]),
        ],
        [helper.make_tensor_value_info("on", 9, []), helper.make_tensor_value_info("next", 1, ["n", 8])],
    )
    proto = model([helper.make_node("Loop", ["steps", "", "x"], ["y"], body=body)], x=["n", 8], y=["n", 8])
    proto.graph.input.append(helper.make_tensor_value_info("steps", 7, []))
    x, state = numbers(3, 8), numbers(3, 8)
    for _ in range(4):
        state = snake(state, 0.5)
        state = state - state.mean(-1, keepdims=True)
    np.testing.assert_allclose(tw.compile(proto)(x, np.int64(4))[0], state, rtol=1e-4, atol=1e-5)
