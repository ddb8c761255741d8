"""Loop, Scan and recurrent layers as scans: the same results as ONNX's reference, for any number of steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from drawn import in_turn
from tilewright.frontends.onnx.importer import read
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.verify import verify
from tilewright.report.errors import RuntimeFault

Array = np.ndarray[Any, Any]
FLOAT = TensorProto.FLOAT


def model_of(
    nodes: Sequence[NodeProto], inputs: dict[str, list[int | str]], outputs: Sequence[str], **constants: Array
) -> ModelProto:
    infos = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def graph_of(
    nodes: Sequence[NodeProto], inputs: dict[str, tuple[int, list[int]]], outputs: Sequence[str]
) -> GraphProto:
    infos = [helper.make_tensor_value_info(name, *type) for name, type in inputs.items()]
    return helper.make_graph(nodes, "body", infos, [helper.make_empty_tensor_value_info(n) for n in outputs])


def agree(model: ModelProto, *feeds: dict[str, Array], wanted: Callable[..., Sequence[Array]] | None = None) -> Module:
    """The graph, and its compiled code, give what ONNX's reference gives, or another one."""
    module = read(model)
    verify(module)
    exe = tw.compile(module)
    for feed in feeds:
        expected = wanted(**feed) if wanted else ReferenceEvaluator(model).run(None, dict(feed))
        for found in (evaluate(module, feed), exe.run(feed)):
            for array, want in zip(found.values(), expected, strict=True):
                np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-5)
    return module


def scans(module: Module) -> int:
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    return sum(node.op.name == "scan" for f in graphs for node in f.nodes)


def rand(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


LOOP = graph_of(
    [
        helper.make_node("MatMul", ["state", "w"], ["product"]),
        helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
        helper.make_node("Div", ["f", "count"], ["part"]),
        helper.make_node("Add", ["product", "part"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["next"]),
        helper.make_node("Gather", ["x", "i"], ["row"]),
        helper.make_node("Mul", ["row", "next"], ["seen"]),
        helper.make_node("Identity", ["c"], ["on"]),
    ],
    {"i": (TensorProto.INT64, []), "c": (TensorProto.BOOL, []), "state": (FLOAT, [3])},
    ["on", "next", "seen"],
)


@pytest.mark.parametrize("steps", [5, 9, 400])
def test_a_loop_sees_the_values_around_it(steps: int) -> None:
    """Weights, a scalar, and an input that is indexed by the step. Few steps are unrolled."""
    node = helper.make_node("Loop", ["trips", "yes", "h"], ["y", "z"], body=LOOP)
    constants = {"trips": np.array(steps), "yes": np.array(True), "w": rand(3, 3), "count": np.array(steps, np.float32)}
    model = model_of([node], {"x": [steps, 3], "h": [3]}, ["y", "z"], **constants)
    assert scans(agree(model, {"x": rand(steps, 3), "h": rand(3)})) == (steps > 8)


def scan_model(steps: int | str, inner: int = 3) -> ModelProto:
    body = graph_of(
        [
            helper.make_node("Add", ["s", "a"], ["t"]),
            helper.make_node("Mul", ["t", "b"], ["u"]),
            helper.make_node("Sub", ["t", "u"], ["v"]),
        ],
        {"s": (FLOAT, [inner]), "a": (FLOAT, [inner]), "b": (FLOAT, [inner])},
        ["v", "u", "t"],
    )
    attributes = {"scan_input_axes": [1, 0], "scan_input_directions": [0, 1], "scan_output_axes": [0, -1]}
    node = helper.make_node(
        "Scan",
        ["h", "x", "y"],
        ["s", "u", "t"],
        body=body,
        num_scan_inputs=2,
        scan_output_directions=[1, 0],
        **attributes,
    )
    return model_of([node], {"h": [3], "x": [3, steps], "y": [steps, 3]}, ["s", "u", "t"])


def scanned(h: Array, x: Array, y: Array) -> Sequence[Array]:
    """What that scan gives."""
    s, u, t = h, np.zeros(y.shape, np.float32), np.zeros(x.shape, np.float32)
    last = len(y) - 1
    for k in range(len(y)):
        t[:, k] = s + x[:, k]
        u[last - k] = t[:, k] * y[last - k]
        s = t[:, k] - u[last - k]
    return s, u, t


@pytest.mark.parametrize("steps", [4, 20])
def test_scan_along_any_axis_in_any_direction(steps: int) -> None:
    module = agree(scan_model(steps), {"h": rand(3), "x": rand(3, steps), "y": rand(steps, 3)}, wanted=scanned)
    assert scans(module) == (steps > 8)


def test_scan_of_a_symbolic_number_of_steps() -> None:
    feeds = [{"h": rand(3), "x": rand(3, n), "y": rand(n, 3)} for n in (1, 7, 300)]
    assert scans(agree(scan_model("n"), *feeds, wanted=scanned)) == 1


@pytest.mark.parametrize("steps", [5, 20, 300])
def test_steps_of_sizes_of_their_own(steps: int) -> None:
    """A body that slices by the number of the step. Few steps are unrolled."""
    body = graph_of(
        [
            helper.make_node("Unsqueeze", ["i", "zero"], ["end"]),
            helper.make_node("Slice", ["x", "zero", "end"], ["part"]),
            helper.make_node("ReduceSum", ["part"], ["sum"], keepdims=0),
            helper.make_node("Add", ["s", "sum"], ["t"]),
        ],
        {"i": (TensorProto.INT64, []), "c": (TensorProto.BOOL, []), "s": (FLOAT, [])},
        ["c", "t"],
    )
    node = helper.make_node("Loop", ["trips", "yes", "h"], ["y"], body=body)
    constants = {"zero": np.array([0]), "yes": np.array(True)}
    model = model_of([node], {"x": [20], "h": []}, ["y"], trips=np.array(steps), **constants)
    module = agree(model, {"x": rand(20), "h": np.float32(1)})
    assert scans(module) == 0
    assert any(n.op.name == "while" for n in module.graph.nodes) == (steps > 8)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_of_symbolic_sizes(op: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    node = helper.make_node(op, ["x", "w", "r", "b"], ["y", "h"], hidden_size=5)
    constants = {"w": rand(1, gates * 5, 4), "r": rand(1, gates * 5, 5), "b": rand(1, gates * 10)}
    model = model_of([node], {"x": ["steps", "batch", 4]}, ["y", "h"], **constants)
    assert scans(agree(model, *({"x": rand(n, m, 4)} for n, m in ((1, 1), (6, 2), (300, 1))))) == 1


def test_states_whose_batch_is_another_symbol() -> None:
    """Both batches are equal in each call, which it checks."""
    node = helper.make_node("GRU", ["x", "w", "r", "", "", "h0"], ["y", "h"], hidden_size=5)
    constants = {"w": rand(1, 15, 4), "r": rand(1, 15, 5)}
    model = model_of([node], {"x": ["steps", "batch", 4], "h0": [1, "rows", 5]}, ["y", "h"], **constants)
    assert scans(agree(model, *({"x": rand(n, m, 4), "h0": rand(1, m, 5)} for n, m in ((1, 1), (12, 3))))) == 1
    with pytest.raises(RuntimeFault, match="dimension 1 of initial_h is 2, for 3 sequences of X"):
        tw.compile(model)(rand(6, 3, 4), rand(1, 2, 5))


@pytest.mark.parametrize(("op", "rows"), in_turn(["RNN", "GRU", "LSTM"], [3, "rows"]))
def test_lengths_whose_batch_is_another_size(op: str, rows: int | str) -> None:
    """What the file says of X's batch and of the lengths' is equal in each call; states have X's."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    node = helper.make_node(op, ["x", "w", "r", "", "lengths"], ["y", "h"], hidden_size=5)
    weights = {"w": rand(1, gates * 5, 4), "r": rand(1, gates * 5, 5)}
    model = model_of([node], {"x": ["steps", "batch", 4]}, ["y", "h"], **weights)
    model.graph.input.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [rows]))
    module = read(model)
    verify(module)
    feeds = {"x": rand(6, 3, 4), "lengths": np.array([6, 1, 4], np.int32)}
    wanted = evaluate(module, feeds)
    for name, found in tw.compile(module).run(feeds).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5)
    assert wanted["y"][3, 0, 2].all() and not wanted["y"][4:, 0, 2].any()


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_both_directions_are_each_the_layer_of_one(op: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    x, w, r, b = rand(7, 2, 4), rand(2, gates * 5, 4), rand(2, gates * 5, 5), rand(2, gates * 10)
    both = helper.make_node(op, ["x", "w", "r", "b"], ["y", "h"], hidden_size=5, direction="bidirectional")
    found = tw.compile(read(model_of([both], {"x": [7, 2, 4]}, ["y", "h"], w=w, r=r, b=b))).run({"x": x})
    for d in range(2):
        one = helper.make_node(op, ["x", "w", "r", "b"], ["y", "h"], hidden_size=5)
        model = model_of([one], {"x": [7, 2, 4]}, ["y", "h"], w=w[d : d + 1], r=r[d : d + 1], b=b[d : d + 1])
        y, h = ReferenceEvaluator(model).run(None, {"x": x[::-1] if d else x})
        np.testing.assert_allclose(found["y"][:, d], (y[::-1] if d else y)[:, 0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["h"][d], h[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("steps", "loops"), [((8, 8), 0), ((3, 4, 7), 12), ((8, 8, 8, 8, 8), 64 * 3)])
def test_loops_of_few_steps_in_one_another_are_unrolled_while_copies_are_few(steps: Sequence[int], loops: int) -> None:
    """Steps multiply: there are 64 copies at most of what is inside."""
    nodes = [helper.make_node("Mul", ["h", "half"], ["a"]), helper.make_node("Add", ["a", "one"], ["next"])]
    for depth, count in enumerate(reversed(steps)):
        types = {f"i{depth}": (TensorProto.INT64, []), f"c{depth}": (TensorProto.BOOL, []), "h": (FLOAT, [3])}
        body = graph_of([*nodes, helper.make_node("Identity", [f"c{depth}"], ["on"])], types, ["on", "next"])
        nodes = [helper.make_node("Loop", [f"trips{count}", "yes", "h"], ["next"], body=body)]
    held = {f"trips{count}": np.array(count) for count in steps}
    constants = {"yes": np.array(True), "half": np.array(0.5, np.float32), "one": np.array(1, np.float32)}
    module = read(model_of(nodes, {"h": [3]}, ["next"], **held, **constants))
    assert scans(module) == loops
    if len(steps) > 3:
        return
    h = rand(3)
    wanted = h
    for _ in range(math.prod(steps)):
        wanted = wanted * np.float32(0.5) + np.float32(1)
    np.testing.assert_allclose(tw.compile(module).run({"h": h})["next"], wanted, rtol=1e-6)
