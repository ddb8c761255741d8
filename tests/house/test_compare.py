"""`run --compare` finds defects that are small, and does not take rounding for one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.analysis.rounding import in_double
from tilewright.cli import compare as compare_module
from tilewright.cli.agreement import Verdict
from tilewright.cli.compare import compare
from tilewright.frontends.onnx import read
from tilewright.runtime.executable import Executable

Array = np.ndarray[Any, Any]
F32 = np.float32
RNG = np.random.default_rng(5)
WEIGHTS = {
    "w0": (RNG.standard_normal((96, 64)) / 8).astype(F32),
    "b0": (RNG.standard_normal(64) / 4).astype(F32),
    "w1": (RNG.standard_normal((64, 10)) / 8).astype(F32),
}


def save(folder: Path, name: str, last: str = "", **weights: Array) -> str:
    """y = relu(x w0 + b0) w1, and the operator `last` behind it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h0"]),
        helper.make_node("Add", ["h0", "b0"], ["h1"]),
        helper.make_node("Relu", ["h1"], ["h2"]),
        helper.make_node("MatMul", ["h2", "w1"], ["h3" if last else "y"]),
    ]
    if last:
        nodes.append(helper.make_node(last, ["h3"], ["y"], axis=1, keepdims=0))
    kind = TensorProto.INT64 if last else TensorProto.FLOAT
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 96])]
    results = [helper.make_tensor_value_info("y", kind, ["n"] if last else ["n", 10])]
    constants = [numpy_helper.from_array(a, n) for n, a in (WEIGHTS | weights).items()]
    graph = helper.make_graph(nodes, "net", ports, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    (folder / name).write_bytes(model.SerializeToString())
    return str(folder / name)


@dataclass
class Case:
    """A compiled model with the arrays of a call."""

    path: str
    executable: Executable
    feeds: dict[str, Array]

    def verdict(self, y: Array | None = None) -> Verdict:
        """The verdict on y, or on what the model computes."""
        found = self.executable.run(self.feeds)["y"] if y is None else y
        (verdict,) = compare(self.path, self.executable, self.feeds, {"y": found})
        return verdict


def case(folder: Path, last: str = "", precision: str = "f32", **weights: Array) -> Case:
    path = save(folder, f"net{last}.onnx", last, **weights)
    x = np.random.default_rng(1).standard_normal((40, 96)).astype(F32)
    return Case(path, tw.compile(path, precision=precision), {"x": x})


def test_a_right_result_agrees(tmp_path: Path) -> None:
    verdict = case(tmp_path).verdict()
    assert verdict.agrees and 0 < verdict.relative < verdict.allowed < 2e-4 and verdict.decided == 0


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_result_slightly_beyond_what_is_allowed_differs(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_module, "SAMPLES", (6,))
    c = case(tmp_path, precision=precision)
    y = c.executable.run(c.feeds)["y"]
    for factor, agrees in ((0.5, True), (1.1, False)):
        broken = y.astype(np.float64)
        scale = np.abs(broken) + np.abs(broken).mean()
        at = np.unravel_index(np.argmax(broken), broken.shape)
        limit = _limit(c, y, at)
        broken[at] += np.sign(broken[at] - _exact(c)[at]) * (factor * limit - abs(broken[at] - _exact(c)[at]))
        verdict = c.verdict(broken.astype(F32))
        assert verdict.agrees is agrees
        assert agrees or verdict.relative == pytest.approx(1.1 * limit / scale[at], rel=0.05)


def _exact(c: Case) -> Array:
    return in_double(read(c.path))(c.feeds)["y"]


def _limit(c: Case, y: Array, at: tuple[Any, ...]) -> float:
    """What the element at a place is allowed: that of a verdict on a result which is right but for this element."""
    wrong = y.copy()
    wrong[at] += 1000
    verdict = c.verdict(wrong)
    return verdict.allowed * verdict.absolute / verdict.relative


@pytest.mark.parametrize(
    ("name", "place", "change"),
    [("w0", (3, 5), 1e-3), ("b0", (7,), 1e-4), ("w1", (11, 2), 2e-4)],
)
def test_a_wrong_constant_differs(name: str, place: tuple[int, ...], change: float, tmp_path: Path) -> None:
    wrong = WEIGHTS[name].copy()
    wrong[place] += change
    other = case(tmp_path, **{name: wrong}).executable
    c = case(tmp_path)
    assert not c.verdict(other.run(c.feeds)["y"]).agrees


def test_a_dropped_term_differs(tmp_path: Path) -> None:
    """The last of 96 terms is left out, for one column of 64."""
    wrong = WEIGHTS["w0"].copy()
    wrong[95, 3] = 0
    other = case(tmp_path, w0=wrong).executable
    c = case(tmp_path)
    assert not c.verdict(other.run(c.feeds)["y"]).agrees


def test_factors_rounded_to_bf16_differ_where_none_were_to_be(tmp_path: Path) -> None:
    c = case(tmp_path)
    rounded = case(tmp_path, precision="bf16")
    y = rounded.executable.run(c.feeds)["y"]
    if "bf16" not in rounded.executable.show(after="reduce-precision"):
        pytest.skip("this machine is no faster with factors in bf16")
    assert not c.verdict(y).agrees
    assert rounded.verdict(y).agrees


def test_an_index_that_rounding_decides_is_told_and_no_other_passes(tmp_path: Path) -> None:
    """Two columns of w1 are sums of the same terms in another order, and the greatest: which one is, rounding decides.
    Any third column is wrong."""
    half = np.abs(WEIGHTS["w1"][:, 0]) + 1
    w0, w1 = np.concatenate([WEIGHTS["w0"][:, :32]] * 2, axis=1), WEIGHTS["w1"].copy()
    w1[:, 4], w1[:, 8] = half, np.concatenate([half[32:], half[:32]])
    b0 = np.concatenate([WEIGHTS["b0"][:32]] * 2)
    c = case(tmp_path, "ArgMax", w0=w0, w1=w1, b0=b0)
    y = c.executable.run(c.feeds)["y"]
    assert set(y) <= {4, 8}
    assert c.verdict(y).agrees
    other = c.verdict(12 - y)
    assert other.agrees and other.decided > 0
    third = y.copy()
    third[2] = 5
    assert not c.verdict(third).agrees


def test_an_index_that_rounding_does_not_decide_must_be_the_exact_one(tmp_path: Path) -> None:
    c = case(tmp_path, "ArgMax")
    y = c.executable.run(c.feeds)["y"]
    assert c.verdict(y).agrees
    y[0] = (y[0] + 1) % 10
    assert not c.verdict(y).agrees
