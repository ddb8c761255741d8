"""Loops that end by a condition, or whose steps differ in size: the same results as ONNX's reference and ONNX Runtime,
wherever they end."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_runtime import session_of

import tilewright as tw
from tilewright.frontends.onnx.importer import read
from tilewright.frontends.onnx.operators.repeat import names_used
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.verify import verify
from tilewright.report.errors import RuntimeFault, UserError

Array = np.ndarray[Any, Any]
FLOAT, BOOL, INT = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
Types = dict[str, tuple[int, list[Any]]]

CONSTANTS: dict[str, Array] = {
    "yes": np.array(True),
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.array(2, np.float32),
    "lot": np.array(100, np.float32),
    "endless": np.array(2**63 - 1),
}


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    names = [["" if n == "-" else n for n in part.split()] for part in (inputs, outputs)]
    return helper.make_node(op, *names, **attributes)


def graph_of(nodes: Sequence[NodeProto], inputs: Types, outputs: Types, name: str = "body") -> GraphProto:
    sides = [[helper.make_tensor_value_info(n, *type) for n, type in part.items()] for part in (inputs, outputs)]
    return helper.make_graph(nodes, name, *sides)


def step_of(nodes: Sequence[NodeProto], states: Types, outputs: Types, number: str = "i") -> GraphProto:
    """The body of a Loop that is told the number of the step."""
    inputs = {number: (INT, []), f"{number}.on": (BOOL, []), **states}
    return graph_of(nodes, inputs, {**outputs}, f"step.{number}")


def model_of(nodes: Sequence[NodeProto], inputs: Types, outputs: Types, **constants: Array) -> ModelProto:
    graph = graph_of(nodes, inputs, outputs, "g")
    used = set(names_used(graph))
    known = {**{n: a for n, a in CONSTANTS.items() if n in used}, **constants}
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in known.items())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def agree(model: ModelProto, *feeds: dict[str, Any], reference: bool = True) -> Module:
    """The graph, and its compiled code, give what ONNX Runtime gives where it is installed, and ONNX's reference. That
    one cannot stack scalars, nor stack nothing."""
    module = read(model)
    verify(module)
    exe = tw.compile(model)
    runs = [lambda feed: ReferenceEvaluator(model).run(None, dict(feed))] if reference else []
    if find_spec("onnxruntime"):
        session = session_of(model)
        runs.append(lambda feed: session.run(None, feed))
    for feed in [{name: np.asarray(array) for name, array in feed.items()} for feed in feeds]:
        for run in runs:
            expected = run(feed)
            for found in (evaluate(module, feed), exe.run(feed)):
                for array, want in zip(found.values(), expected, strict=True):
                    if array.shape[:1] == want.shape[:1] == (0,):
                        continue  # the other extents of nothing are 0 to ONNX Runtime
                    assert array.shape == want.shape
                    np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-5)
    return module


def loops(module: Module) -> int:
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    return sum(node.op.name == "while" for f in graphs for node in f.nodes)


def rand(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(0.5, 1.5, shape).astype(np.float32)


DOUBLE = step_of(
    [
        node("Mul", "h two", "next"),
        node("ReduceMax", "next", "top", keepdims=0),
        node("Less", "top limit", "more"),
        node("Cast", "i", "f", to=FLOAT),
        node("Add", "next f", "seen"),
    ],
    {"h": (FLOAT, [None])},
    {"more": (BOOL, []), "next": (FLOAT, [None]), "seen": (FLOAT, [None])},
)
DOUBLED = {"x": (FLOAT, ["n"]), "limit": (FLOAT, [])}
RESULTS = {"y": (FLOAT, [None]), "z": (FLOAT, [None, None])}


@pytest.mark.parametrize("trips", ["endless", "-", "three", "t"])
def test_a_loop_ends_by_its_condition_or_its_trips(trips: str) -> None:
    """The trip count is the largest number there is, none, a constant, or comes from data: none, some, negative."""
    inputs = {**DOUBLED, **({"t": (INT, [])} if trips == "t" else {})}
    model = model_of([node("Loop", f"{trips} yes x", "y z", body=DOUBLE)], inputs, RESULTS, three=np.array(3))
    feeds = [{"x": rand(n), "limit": np.float32(limit)} for n, limit in ((3, 1e6), (1, 5), (5, 0.1))]
    if trips == "t":
        feeds = [{**feed, "t": np.array(t)} for feed in feeds for t in (0, 2, 2**40)]
    assert loops(agree(model, *feeds, reference=trips != "t")) == 1


def test_a_body_says_by_a_bool_whether_to_go_on() -> None:
    """A trip count from data, so that the loop is not unrolled."""
    counting = step_of([node("Add", "h h", "next"), node("Cast", "i", "more", to=FLOAT)], {"h": (FLOAT, [3])},
                       {"more": (FLOAT, []), "next": (FLOAT, [3])})  # fmt: skip
    inputs = {"x": (FLOAT, [3]), "t": (INT, [])}
    model = model_of([node("Loop", "t yes x", "y", body=counting)], inputs, {"y": (FLOAT, [3])})
    with pytest.raises(tw.UserError, match="by a number of type f32 whether to go on"):
        tw.compile(model)


def test_a_loop_may_not_begin() -> None:
    """The condition at first comes from data; the outputs are empty then."""
    inputs = {**DOUBLED, "c": (BOOL, [])}
    model = model_of([node("Loop", "- c x", "y z", body=DOUBLE)], inputs, RESULTS)
    agree(model, *({"x": rand(3), "limit": np.float32(9), "c": c} for c in (True, False)), reference=False)
    never = model_of([node("Loop", "none yes x", "y z", body=DOUBLE)], DOUBLED, RESULTS, none=np.array(0))
    (y, z) = tw.compile(never).run({"x": rand(3), "limit": np.float32(9)}).values()
    np.testing.assert_array_equal(y, rand(3))
    assert z.shape == (0, 3)


def test_a_number_of_steps_that_data_tells_without_a_condition() -> None:
    """The counter of the loop is what the body takes a part of a tensor by."""
    body = step_of(
        [
            node("Identity", "i.on", "on"),
            node("Gather", "x i", "row"),
            node("MatMul", "row w", "p"),
            node("Add", "h p", "next"),
            node("Identity", "next", "seen"),
        ],
        {"h": (FLOAT, [2])},
        {"on": (BOOL, []), "next": (FLOAT, [2]), "seen": (FLOAT, [2])},
    )
    inputs = {"x": (FLOAT, ["n", 3]), "h": (FLOAT, [2]), "t": (INT, [1])}
    model = model_of([node("Loop", "t - h", "y z", body=body)], inputs, RESULTS, w=rand(3, 2))
    agree(
        model,
        *({"x": rand(n, 3), "h": rand(2), "t": np.array([t])} for n, t in ((4, 4), (400, 300), (4, 0))),
        reference=False,
    )
    with pytest.raises(RuntimeFault, match="5"):
        tw.compile(model).run({"x": rand(5, 3), "h": rand(2), "t": np.array([6])})


APPEND = step_of(
    [
        node("Identity", "i.on", "on"),
        node("ReduceSum", "h zero", "sum", keepdims=1),
        node("Div", "sum lot", "row"),
        node("Concat", "h row", "next", axis=0),
        node("Add", "one i", "length"),
        node("Slice", "x zero length", "part"),
        node("ReduceMean", "part", "mean", keepdims=0),
    ],
    {"h": (FLOAT, [None, 3])},
    {"on": (BOOL, []), "next": (FLOAT, [None, 3]), "mean": (FLOAT, [])},
)


@pytest.mark.parametrize("steps", [4, 30, 300])
def test_states_that_grow_from_step_to_step(steps: int) -> None:
    """And a part of a tensor of another size in each step."""
    inputs = {"h": (FLOAT, ["n", 3]), "x": (FLOAT, ["m"])}
    outputs = {"y": (FLOAT, [None, 3]), "z": (FLOAT, [None])}
    model = model_of([node("Loop", "t yes h", "y z", body=APPEND)], inputs, outputs, t=np.array(steps))
    feeds = [{"h": rand(n, 3), "x": rand(steps + n)} for n in (1, 2)]
    assert loops(agree(model, *feeds, reference=False)) == (steps > 8)


def test_states_of_one_size_that_grow_together() -> None:
    """They are added, which fits because their sizes are one symbol."""
    body = step_of(
        [
            node("Add", "a b", "sum"),
            node("ReduceSum", "sum zero", "top", keepdims=1),
            node("Concat", "a top", "a2", axis=0),
            node("Concat", "b one.f", "b2", axis=0),
            node("ReduceMax", "a2", "max", keepdims=0),
            node("Less", "max lot", "on"),
        ],
        {"a": (FLOAT, [None]), "b": (FLOAT, [None])},
        {"on": (BOOL, []), "a2": (FLOAT, [None]), "b2": (FLOAT, [None])},
    )
    inputs = {"x": (FLOAT, ["n"]), "w": (FLOAT, ["n"])}
    outputs = {"y": (FLOAT, [None]), "z": (FLOAT, [None])}
    loop = node("Loop", "endless yes x w", "y z", body=body)
    model = model_of([loop], inputs, outputs, **{"one.f": np.ones(1, np.float32)})
    agree(model, *({"x": rand(n), "w": rand(n)} for n in (1, 4)))


def test_loops_in_loops_in_branches() -> None:
    """Values of all levels are seen inside; the number of inner steps is the outer one's."""
    inner = step_of(
        [
            node("Add", "g w", "k"),
            node("ReduceSum", "k zero", "l", keepdims=0),
            node("Less", "l lot", "go.on"),
            node("Identity", "l", "each"),
        ],
        {"g": (FLOAT, [3])},
        {"go.on": (BOOL, []), "k": (FLOAT, [3]), "each": (FLOAT, [])},
        "j",
    )
    outer = step_of(
        [
            node("Add", "i one.s", "times"),
            node("Loop", "times yes h", "h2 eachs", body=inner),
            node("ReduceSum", "eachs zero", "total", keepdims=0),
            node("Less", "total lot", "on"),
        ],
        {"h": (FLOAT, [3])},
        {"on": (BOOL, []), "h2": (FLOAT, [3]), "total": (FLOAT, [])},
    )
    then = graph_of([node("Loop", "endless yes x", "a b", body=outer)], {}, {"a": (FLOAT, [3]), "b": (FLOAT, [None])})
    copies = [node("Identity", "x", "c"), node("ReduceSum", "x zero", "d", keepdims=1)]
    otherwise = graph_of(copies, {}, {"c": (FLOAT, [3]), "d": (FLOAT, [None])}, "else")
    choice = node("If", "p", "y z", then_branch=then, else_branch=otherwise)
    inputs = {"p": (BOOL, []), "x": (FLOAT, [3])}
    outputs = {"y": (FLOAT, [3]), "z": (FLOAT, [None])}
    model = model_of([choice], inputs, outputs, w=rand(3), **{"one.s": np.array(1)})
    assert loops(agree(model, *({"p": np.array(p), "x": rand(3)} for p in (True, False)), reference=False)) == 2


def test_a_branch_in_a_loop_decides_the_size_of_a_state() -> None:
    then = graph_of([node("Concat", "h h", "a", axis=0)], {}, {"a": (FLOAT, [None])}, "then")
    otherwise = graph_of([node("Slice", "h one far", "b")], {}, {"b": (FLOAT, [None])}, "else")
    body = step_of(
        [
            node("ReduceSum", "h zero", "s", keepdims=0),
            node("Less", "s lot", "few"),
            node("If", "few", "next", then_branch=then, else_branch=otherwise),
            node("Identity", "i.on", "on"),
            node("Shape", "next", "size"),
        ],
        {"h": (FLOAT, [None])},
        {"on": (BOOL, []), "next": (FLOAT, [None]), "size": (INT, [1])},
    )
    outputs = {"y": (FLOAT, [None]), "z": (INT, [None, 1])}
    loop = node("Loop", "t yes x", "y z", body=body)
    model = model_of([loop], {"x": (FLOAT, ["n"])}, outputs, t=np.array(12), far=np.array([2**62]))
    agree(model, *({"x": rand(n)} for n in (1, 3)))


def test_a_scan_whose_states_grow() -> None:
    body = graph_of(
        [node("Concat", "h row", "next", axis=0), node("ReduceMean", "next", "mean", keepdims=0)],
        {"h": (FLOAT, [None]), "row": (FLOAT, [2])},
        {"next": (FLOAT, [None]), "mean": (FLOAT, [])},
    )
    for back in (0, 1):
        ways = {"scan_input_directions": [back], "scan_output_directions": [back]}
        scan = node("Scan", "h x", "y z", body=body, num_scan_inputs=1, **ways)
        inputs = {"h": (FLOAT, ["k"]), "x": (FLOAT, ["n", 2])}
        model = model_of([scan], inputs, {"y": (FLOAT, [None]), "z": (FLOAT, ["n"])})
        exe, module = tw.compile(model), read(model)
        for k, n in ((0, 1), (3, 40)):
            h, x = rand(k), rand(n, 2)
            rows = [x[::-1] if back else x][0]
            means = [np.concatenate([h, rows[: step + 1].reshape(-1)]).mean() for step in range(n)]
            for y, z in (exe(h, x), tuple(evaluate(module, [h, x]).values())):
                np.testing.assert_allclose(y, np.concatenate([h, rows.reshape(-1)]), rtol=1e-5)
                np.testing.assert_allclose(z, means[::-1] if back else means, rtol=1e-5)


def test_outputs_of_an_endless_loop_are_a_fault_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MEMORY_LIMIT", "1MiB")
    exe = tw.compile(model_of([node("Loop", "- yes x", "y z", body=DOUBLE)], DOUBLED, RESULTS))
    with pytest.raises(RuntimeFault, match="TILEWRIGHT_MEMORY_LIMIT"):
        exe.run({"x": np.zeros(3, np.float32), "limit": np.float32(1)})
    assert exe.run({"x": rand(3), "limit": np.float32(9)})["z"].shape[1] == 3


def test_a_stack_of_other_sizes_in_later_steps_is_a_fault() -> None:
    nodes = [node("Identity", "i.on", "on"), node("Concat", "h h", "next", axis=0), node("Neg", "h", "seen")]
    types = {"on": (BOOL, []), "next": (FLOAT, [None]), "seen": (FLOAT, [None])}
    body = step_of(nodes, {"h": (FLOAT, [None])}, types)
    exe = tw.compile(model_of([node("Loop", "t yes x", "y z", body=body)], DOUBLED, RESULTS, t=np.array(20)))
    with pytest.raises(RuntimeFault, match="a Loop stacks a dimension of 6, which is 3 in its first step"):
        exe.run({"x": rand(3), "limit": np.float32(1)})


def test_states_that_change_their_rank_are_refused() -> None:
    nodes = [node("Identity", "i.on", "on"), node("Unsqueeze", "h zero", "next")]
    body = step_of(nodes, {"h": (FLOAT, [None])}, {"on": (BOOL, []), "next": (FLOAT, [None])})
    model = model_of([node("Loop", "- yes x", "y", body=body)], DOUBLED, {"y": (FLOAT, [None])})
    with pytest.raises(UserError, match="begins as f32 of 1 dimensions and goes on as f32 of 2 dimensions"):
        read(model)


def test_what_a_body_cannot_do_is_said_of_the_body() -> None:
    nodes = [node("Identity", "i.on", "on"), node("StringNormalizer", "h", "next")]
    body = step_of(nodes, {"h": (FLOAT, [None])}, {"on": (BOOL, []), "next": (FLOAT, [None])})
    model = model_of([node("Loop", "endless yes x", "y", body=body)], DOUBLED, {"y": (FLOAT, [None])})
    with pytest.raises(UserError, match="StringNormalizer"):
        read(model)
