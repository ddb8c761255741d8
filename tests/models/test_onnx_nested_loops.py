"""Loops in loops: each is read a few times for every one around it, however deep they are nested, and not several
times as often as that."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.frontends.onnx.importer import Importer, read
from tilewright.graph.verify import verify
from tilewright.report.errors import UserError

FLOAT, BOOL, INT = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
Dims = list[Any]
DEPTHS = (2, 4, 8, 16)


def info(name: str, type: int, dims: Dims) -> Any:
    return helper.make_tensor_value_info(name, type, dims)


def model_of(nodes: list[NodeProto], result: str, dims: Dims, **constants: Any) -> ModelProto:
    inputs = [info("s", FLOAT, dims), info("xs", FLOAT, [20, 3])]
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [info(result, FLOAT, [None] * len(dims))], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def loops(depth: int, dims: Dims, inner: list[NodeProto], trips: int, *, grown: bool = False) -> ModelProto:
    """Loops in one another around nodes that make `y` of `s`, a tensor of these sizes; a row longer after each step if
    `grown`."""
    nodes, result = inner, "y"
    for n in range(depth):
        if grown:
            nodes.append(helper.make_node("Concat", [result, "row"], [f"c{n}"], axis=0))
            result = f"c{n}"
        nodes.append(helper.make_node("Identity", [f"on{n}"], [f"more{n}"]))
        outputs = [info(f"more{n}", BOOL, []), info(result, FLOAT, dims)]
        inputs = [info(f"i{n}", INT, []), info(f"on{n}", BOOL, []), info("s", FLOAT, dims)]
        body = helper.make_graph(nodes, f"body{n}", inputs, outputs)
        nodes, result = [helper.make_node("Loop", ["trips", "", "s"], [f"r{n}"], body=body)], f"r{n}"
    more = {"row": np.ones((1, 3), np.float32)} if grown else {}
    return model_of(nodes, result, dims, trips=trips, **more)


def scans(depth: int, dims: Dims, inner: list[NodeProto]) -> ModelProto:
    """The same with Scan over the rows of `xs`."""
    nodes, result = inner, "y"
    for n in range(depth):
        nodes.append(helper.make_node("Identity", [f"x{n}"], [f"row{n}"]))
        outputs = [info(result, FLOAT, dims), info(f"row{n}", FLOAT, [3])]
        body = helper.make_graph(nodes, f"body{n}", [info("s", FLOAT, dims), info(f"x{n}", FLOAT, [3])], outputs)
        nodes = [helper.make_node("Scan", ["s", "xs"], [f"r{n}", f"rows{n}"], body=body, num_scan_inputs=1)]
        result = f"r{n}"
    return model_of(nodes, result, dims)


def tanh() -> list[NodeProto]:
    return [helper.make_node("Tanh", ["s"], ["y"])]


def drawn() -> list[NodeProto]:
    return [helper.make_node("RandomNormalLike", ["s"], ["r"]), helper.make_node("Add", ["s", "r"], ["y"])]


def unknown() -> list[NodeProto]:
    return [helper.make_node("Nonsense", ["s"], ["y"])]


def readings(model: ModelProto, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each body is read; a model may be refused."""
    found: Counter[str] = Counter()
    whole = Importer.body

    def counted(self: Importer, graph: GraphProto, inputs: Any) -> Any:
        found[graph.name] += 1
        return whole(self, graph, inputs)

    with monkeypatch.context() as patch:
        patch.setattr(Importer, "body", counted)
        with contextlib.suppress(UserError):
            verify(read(model))
    return found


ONCE: dict[str, Callable[[int], ModelProto]] = {
    "counted": lambda depth: loops(depth, [2, 3], tanh(), 100),
    "counted, of any size": lambda depth: loops(depth, ["n", 3], tanh(), 100),
    "with draws": lambda depth: loops(depth, [2, 3], drawn(), 100),
    "many steps of what is not supported": lambda depth: loops(depth, [2, 3], unknown(), 1000),
    "scans": lambda depth: scans(depth, [9, 3], tanh()),
    "scans of any size": lambda depth: scans(depth, ["n", 3], tanh()),
    "scans with draws": lambda depth: scans(depth, [9, 3], drawn()),
}
OFTEN: dict[str, Callable[[int], ModelProto]] = {
    "of one step": lambda depth: loops(depth, [2, 3], tanh(), 1),
    "what is not supported": lambda depth: loops(depth, [2, 3], unknown(), 100),
    "states that grow": lambda depth: loops(depth, ["n", 3], tanh(), 100, grown=True),
}


@pytest.mark.parametrize("make", ONCE.values(), ids=ONCE)
def test_bodies_that_are_read_once(make: Callable[[int], ModelProto], monkeypatch: pytest.MonkeyPatch) -> None:
    for depth in DEPTHS:
        assert readings(make(depth), monkeypatch) == {f"body{n}": 1 for n in range(depth)}


@pytest.mark.parametrize("make", OFTEN.values(), ids=OFTEN)
def test_bodies_that_are_read_again(make: Callable[[int], ModelProto], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a first reading shows how a loop has to be read, what is inside is read once more for each one around."""
    for depth in DEPTHS:
        found = readings(make(depth), monkeypatch)
        assert all(found[f"body{n}"] <= 2 + depth - n for n in range(depth))


def test_a_counted_loop_takes_no_memory_for_its_steps() -> None:
    """A thousand steps, each of which adds its number: as integers they would be 8 KiB."""
    nodes = [
        helper.make_node("Cast", ["i0"], ["number"], to=TensorProto.DOUBLE),
        helper.make_node("Add", ["s", "number"], ["y"]),
    ]
    body = helper.make_graph(
        [*nodes, helper.make_node("Identity", ["on0"], ["more0"])],
        "body",
        [info("i0", INT, []), info("on0", BOOL, []), info("s", TensorProto.DOUBLE, [])],
        [info("more0", BOOL, []), info("y", TensorProto.DOUBLE, [])],
    )
    node = helper.make_node("Loop", ["trips", "", "x"], ["sum"], body=body)
    held = [numpy_helper.from_array(np.array(2**10), "trips")]
    sides = [[info("x", TensorProto.DOUBLE, [])], [info("sum", TensorProto.DOUBLE, [])]]
    graph = helper.make_graph([node], "g", *sides, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exe = tw.compile(model)
    assert exe(np.array(0.5))[0] == 0.5 + 2**9 * (2**10 - 1)
    assert exe.arena().reserved < 1024


def test_the_number_of_a_step_in_loops_in_one_another() -> None:
    """Numbers of the steps of a Loop are seen in a Scan in it, and in the Loop in that."""
    inner = helper.make_graph(
        [
            helper.make_node("Add", ["i", "j"], ["ij"]),
            helper.make_node("Cast", ["ij"], ["f"], to=FLOAT),
            helper.make_node("Gather", ["x", "j"], ["part"]),
            helper.make_node("Mul", ["part", "f"], ["scaled"]),
            helper.make_node("Add", ["v", "scaled"], ["w"]),
            helper.make_node("Identity", ["b"], ["b2"]),
        ],
        "inner",
        [info("j", INT, []), info("b", BOOL, []), info("v", FLOAT, [])],
        [info("b2", BOOL, []), info("w", FLOAT, [])],
    )
    middle = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
            helper.make_node("Loop", ["three", "", "total"], ["last"], body=inner),
            helper.make_node("Add", ["h", "last"], ["k"]),
            helper.make_node("Identity", ["last"], ["each"]),
        ],
        "middle",
        [info("h", FLOAT, []), info("x", FLOAT, [3])],
        [info("k", FLOAT, []), info("each", FLOAT, [])],
    )
    outer = helper.make_graph(
        [
            helper.make_node("Scan", ["s", "xs"], ["t", "eachs"], body=middle, num_scan_inputs=1),
            helper.make_node("Identity", ["a"], ["a2"]),
        ],
        "outer",
        [info("i", INT, []), info("a", BOOL, []), info("s", FLOAT, [])],
        [info("a2", BOOL, []), info("t", FLOAT, []), info("eachs", FLOAT, [20])],
    )
    node = helper.make_node("Loop", ["ten", "", "s"], ["y", "all"], body=outer)
    held = [numpy_helper.from_array(np.array(a), n) for n, a in (("three", 3), ("ten", 10))]
    inputs, outputs = (
        [info("s", FLOAT, []), info("xs", FLOAT, [20, 3])],
        [info("y", FLOAT, []), info("all", FLOAT, [10, 20])],
    )
    graph = helper.make_graph([node], "g", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    verify(read(model))
    xs = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    each = np.asarray([[x.sum() + (x * (i + np.arange(3))).sum() for x in xs] for i in range(10)])
    y, every = tw.compile(model)(np.float32(1), xs)
    np.testing.assert_allclose(every, each, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(y, 1 + each.sum(), rtol=1e-4)
