"""A front end in a page, on `frontends/build` alone: models are lists of nodes in JSON, as no framework writes them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const
from tilewright.frontends.build.bounds import bounded
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.handlers import Handlers
from tilewright.frontends.build.loop import Loop
from tilewright.frontends.build.names import Dimensions, symbol_name
from tilewright.frontends.build.problems import AlreadyReported, Problems, Unsupported
from tilewright.frontends.build.scopes import UNREAD, Known, Scopes
from tilewright.frontends.build.values import Tensor
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.report.errors import UserError
from tilewright.types.tensor import TensorType

HANDLERS = Handlers()


@HANDLERS.handles("size")
def size(b: Emit, x: Tensor, *, axis: int) -> Tensor:
    return b.of_size(x.shape[b.axis(axis, x.rank)])


@HANDLERS.handles("layer_norm")
def layer_norm(b: Emit, x: Tensor, scale: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-5) -> Tensor:
    last = [x.rank - 1]
    count = b.cast(b.of_size(x.shape[-1]), x.dtype)
    deviation = x - b.reduce("sum", x, last, keepdims=True) / count
    variance = b.reduce("sum", deviation * deviation, last, keepdims=True) / count
    normal = deviation / b.map("sqrt", variance + epsilon) * scale
    return normal if bias is None else normal + bias


@HANDLERS.handles("view")
def view(b: Emit, x: Tensor, *sizes: Tensor) -> Tensor:
    return b.reshape(x, [b.size(s, "a size of the view", 0) for s in sizes])


@HANDLERS.handles("running_sum")
def running_sum(b: Emit, x: Tensor) -> Tensor:
    zero = b.full(x.shape[1:], 0.0, x.dtype)
    loop = Loop(b, "sums", x.shape[0], [zero], [x], [False])
    total = loop.states[0] + loop.slices[0]
    _, (stacked,) = loop.finish([total], [total], [False])
    return stacked


@HANDLERS.handles("roll", since=2)
def roll(b: Emit, x: Tensor, *, by: int) -> Tensor:
    (places,) = bounded([by], lambda _: "its attribute 'by'", b.error)
    if not isinstance(x.shape[0], Const):
        raise Unsupported("roll along a dynamic dimension", "give the dimension a size")
    n = int(x.shape[0].value)
    return b.take(x, b.of_array((np.arange(n) - places) % n), 0)


@HANDLERS.handles("broken")
def broken(b: Emit, x: Tensor) -> Tensor:
    raise IndexError("list index out of range")


Model = Mapping[str, Any]
"""params: {name: shape}; constants: {name: array}; nodes: [(output, operator, inputs, attributes)]; results: names."""


def read(model: Model, version: int = 2) -> Module:
    graph = GraphBuilder("main")
    b, scopes, problems, dimensions = Emit(graph), Scopes(), Problems(), Dimensions(graph)
    scope: dict[str, Known] = {}
    with scopes.inner(scope):
        for name, shape in model["params"].items():
            dims = [d if isinstance(d, int) else dimensions.symbol(d, f"{name}_{n}") for n, d in enumerate(shape)]
            scope[name] = b.of_value(graph.param(name, TensorType.of(f32, dims)), name)
        for name, array in model.get("constants", {}).items():
            scope[name] = b.of_array(array, name)
        for output, operator, inputs, attributes in model["nodes"]:
            scope[output] = _read_node(b, scopes, problems, (output, operator, inputs, attributes), version)
        results = {
            name: known.value for name in model["results"] if isinstance(known := scopes.find(name, "results"), Tensor)
        }
    problems.check("the model uses what is not supported")
    return graph.module(results)


Node = tuple[str, str, Sequence[str], Mapping[str, Any]]


def _read_node(b: Emit, scopes: Scopes, problems: Problems, node: Node, version: int) -> Known:
    output, operator, inputs, attributes = node
    source = f"{operator} {output}"
    handler = HANDLERS.find(operator, version)
    if handler is None:
        problems.add(f"the operator {operator} is not supported", where=source)
        return UNREAD
    wrong = handler.check([True] * len(inputs), attributes)
    for why in wrong:
        problems.add(f"{operator} is not supported here", where=source, why=why)
    if wrong:
        return UNREAD
    try:
        tensors = [scopes.tensor(name, source) for name in inputs]
        with b.at(source):
            return handler.call(b, tensors, lambda: attributes, "ask the framework")[0]
    except Unsupported as error:
        problems.add(f"{operator} is not supported here", where=source, why=error.why, fix=error.fix)
    except AlreadyReported:
        pass
    return UNREAD


NORM = {
    "params": {"x": ("n", 8)},
    "constants": {"scale": np.linspace(0.5, 2, 8, dtype=np.float32), "bias": np.ones(8, np.float32)},
    "nodes": [
        ("y", "layer_norm", ("x", "scale", "bias"), {"epsilon": 1e-3}),
        ("rows", "size", ("x",), {"axis": 0}),
        ("four", "size", ("half",), {"axis": 0}),
        ("z", "view", ("y", "rows", "four", "two"), {}),
    ],
    "results": ["z"],
}
NORM["constants"] |= {"half": np.zeros(4, np.float32), "two": np.int64(2) * np.ones((), np.int64)}  # type: ignore[operator]


def test_a_front_end_without_onnx_builds_what_it_says() -> None:
    module = read(NORM)
    x = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    z = evaluate(module, [x])["z"]
    deviation = x - x.mean(-1, keepdims=True)
    wanted = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + 1e-3)
    wanted = wanted * np.linspace(0.5, 2, 8) + 1
    np.testing.assert_allclose(z, wanted.reshape(3, 4, 2), rtol=1e-5, atol=1e-5)


def test_sizes_leave_no_arithmetic_behind() -> None:
    """What is computed between the size of an axis and the view by it is an expression, not a node."""
    operators = {node.op.name for node in read(NORM).functions["main"].nodes}
    assert "reshape" in operators and "index_values" not in operators and "size" not in operators


def test_loops_are_scans() -> None:
    module = read({"params": {"x": ("n", 3)}, "nodes": [("y", "running_sum", ("x",), {})], "results": ["y"]})
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    y = evaluate(module, [x])["y"]
    np.testing.assert_array_equal(y, np.cumsum(x, 0))


def test_all_that_is_not_supported_is_one_error() -> None:
    model = {
        "params": {"x": ("n", 8)},
        "nodes": [
            ("a", "sparkle", ("x",), {}),
            ("b", "roll", ("x",), {"by": 3}),
            ("c", "layer_norm", ("a",), {"eps": 1.0}),
            ("d", "size", ("b",), {"axis": 0}),
        ],
        "results": ["d"],
    }
    with pytest.raises(UserError) as caught:
        read(model)
    text = str(caught.value)
    assert text.startswith("the model uses what is not supported: 4 errors")
    assert "the operator sparkle is not supported" in text
    assert "roll along a dynamic dimension" in text and "give the dimension a size" in text
    assert "it needs 2 inputs, but has 1 of them" in text and "its attribute 'eps' is not supported" in text
    assert "size d" not in text, "what only reads a missing value has no problem of its own"


@pytest.mark.parametrize(
    ("nodes", "version", "text"),
    [
        ([("y", "roll", ("x",), {"by": 1})], 1, "the operator roll is not supported"),
        ([("y", "roll", ("x",), {})], 2, "its attribute 'by' is missing"),
        ([("y", "roll", ("x",), {"by": 1 << 50})], 2, "its attribute 'by' is 1125899906842624; sizes are computed"),
        ([("y", "size", ("x",), {"axis": 2})], 2, "axis 2 is outside -2..2 for a tensor of 2 dimensions"),
        ([("y", "broken", ("x",), {})], 2, "reading it ended with IndexError: list index out of range"),
        ([("y", "size", ("x'\x1b",), {"axis": 0})], 2, r"the value \"x'\\x1b\" is not defined"),
    ],
)
def test_errors_name_the_node(nodes: list[Node], version: int, text: str) -> None:
    with pytest.raises(UserError, match=re.escape(text) if "\\" not in text else text) as caught:
        read({"params": {"x": (4, 8)}, "nodes": nodes, "results": ["y"]}, version)
    assert f"at:   {nodes[0][1]} y" in str(caught.value)


def test_dimensions_of_one_name_are_one_symbol() -> None:
    dimensions = Dimensions(graph := GraphBuilder("main"))
    n = dimensions.symbol("n", "x_0")
    assert dimensions.symbol("n", "y_0") is n
    assert dimensions.symbol("", "x_1") is not dimensions.symbol("", "y_1")
    assert dimensions.symbol("", "x_1") is dimensions.symbol("", "x_1")
    assert [s.name for s in graph.symbols] == ["n", "x_1", "y_1"]
    assert symbol_name("batch size") == "batch_size" and symbol_name("2d") == "d2d"


def test_a_function_sees_its_parameters_alone() -> None:
    scopes, b = Scopes(), Emit(GraphBuilder("main"))
    outer, inner = b.scalar(1, f32), b.scalar(2, f32)
    with scopes.inner({"x": outer, "y": outer, "z": UNREAD}):
        with scopes.inner({"x": inner}):
            assert scopes.find("x", "") is inner and scopes.find("y", "") is outer
            assert scopes.visible(["x", "y", "z", "w"]) == {"x": inner, "y": outer}
            with scopes.apart({"y": inner}), pytest.raises(UserError, match="'x' is not defined"):
                scopes.find("x", "node")
        assert scopes.find("x", "") is outer
        with pytest.raises(AlreadyReported):
            scopes.tensor("z", "node")


def test_it_stands_without_onnx() -> None:
    program = (
        "import sys, pkgutil, importlib, tilewright.frontends.build as build\n"
        "for m in pkgutil.iter_modules(build.__path__): importlib.import_module(f'{build.__name__}.{m.name}')\n"
        "print([m for m in sys.modules if m.split('.')[0] == 'onnx' or '.onnx' in m])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "[]", run.stderr
