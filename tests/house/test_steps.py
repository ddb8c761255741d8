"""`run --compare` counts the elements of quantised results that are off, by steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from cli_models import invoke
from tilewright.cli.compare import compare
from tilewright.cli.steps import count_steps, evaluate_with_steps
from tilewright.frontends.onnx import read

WEIGHTS = np.random.default_rng(0).integers(-127, 127, (64, 8)).astype(np.int8)
CONSTANTS = {
    "sx": np.float32(0.02),
    "zx": np.uint8(128),
    "sw": np.linspace(0.005, 0.02, 8, dtype=np.float32),
    "zw": np.zeros(8, np.int8),
    "w": WEIGHTS,
    "sy": np.float32(0.05),
    "zy": np.uint8(120),
    "shape": np.array([-1], np.int64),
}
NODES = [
    helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
    helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
    helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], axis=1),
    helper.make_node("MatMul", ["xd", "wd"], ["m"]),
    helper.make_node("QuantizeLinear", ["m", "sy", "zy"], ["q"]),
    helper.make_node("DequantizeLinear", ["q", "sy", "zy"], ["y"]),
    helper.make_node("Reshape", ["y", "shape"], ["flat"]),
    helper.make_node("Relu", ["y"], ["other"]),
]
OUTPUTS = {"y": TensorProto.FLOAT, "q": TensorProto.UINT8, "flat": TensorProto.FLOAT, "other": TensorProto.FLOAT}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])]
    outputs = [helper.make_tensor_value_info(n, t, ["k"] if n == "flat" else ["n", 8]) for n, t in OUTPUTS.items()]
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANTS.items()]
    graph = helper.make_graph(NODES, "quantised", inputs, outputs, constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(proto)
    (tmp_path / "q.onnx").write_bytes(proto.SerializeToString())
    return tmp_path / "q.onnx"


def test_which_results_are_quantised_and_by_what_step(model: Path) -> None:
    results, steps = evaluate_with_steps(read(model), {"x": np.zeros((3, 64), np.float32)})
    assert set(results) == set(OUTPUTS)
    assert {name: float(step) for name, step in steps.items()} == pytest.approx({"y": 0.05, "q": 1.0, "flat": 0.05})


def test_elements_are_counted_by_their_steps() -> None:
    exact = np.arange(8, dtype=np.float64)
    found = exact.astype(np.float32)
    found[[1, 5]] += 1
    found[3] -= 4
    assert count_steps(found, exact, np.ones(())).told() == "3 of 8 elements differ: 2 by 1 step, 1 by 4 steps"
    assert count_steps(exact, exact, np.ones(())).told() == "none of 8 elements differs by a step"
    assert count_steps(found[None], exact, np.ones(())) is None
    assert count_steps(np.full(8, np.inf), exact, np.ones(())) is None
    assert count_steps(found * 0.5, exact * 0.5, np.float64(0.5)).counts == ((1, 2), (4, 1))


def test_wrong_results_are_told_in_steps(model: Path) -> None:
    executable = tw.compile(model)
    feeds = {"x": np.zeros((3, 64), np.float32)}
    outputs = executable.run(feeds)
    outputs["q"] = outputs["q"].copy()
    outputs["q"][0, :2] += np.array([1, 3], np.uint8)
    verdicts = {v.name: v for v in compare(str(model), executable, feeds, outputs)}
    assert verdicts["q"].steps.told() == "2 of 24 elements differ: 1 by 1 step, 1 by 3 steps"
    assert not verdicts["q"].agrees and verdicts["other"].steps is None


def test_the_command_prints_and_records_steps(model: Path) -> None:
    told = invoke("run", model, "--input", "x=0", "--size", "n=2", "--compare")
    assert told.code == 0 and told.out.count("none of 16 elements differs by a step") == 3
    recorded = invoke("run", model, "--input", "x=0", "--size", "n=2", "--compare", "--json").out
    assert '"steps": {\n        "elements": 16,\n        "differ": []\n      }' in recorded
