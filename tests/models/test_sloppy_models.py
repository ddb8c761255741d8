"""What ONNX does not allow and ONNX Runtime reads: one file for each kind, read with one warning, refused if strict."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import tilewright as tw
from cli_models import invoke
from tilewright.core.reading import Reading
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate

Array = np.ndarray[Any, Any]
FLOAT = TensorProto.FLOAT
W = np.arange(6, dtype=np.float32).reshape(2, 3)
X = W - 2


def info(name: str, shape: Sequence[int | str] | None = (2, 3), type: int = FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, type, shape)


def chain() -> list[NodeProto]:
    return [helper.make_node("Relu", ["x"], ["z"], name="a"), helper.make_node("Neg", ["z"], ["y"], name="b")]


def model(
    nodes: Sequence[NodeProto] | None = None,
    inputs: Sequence[ValueInfoProto] = (info("x"),),
    outputs: Sequence[ValueInfoProto] = (info("y"),),
    constants: Sequence[tuple[str, Array]] = (),
    types: Sequence[ValueInfoProto] = (),
    opsets: Sequence[tuple[str, int]] = (("", 21),),
    format: int | None = 10,
) -> ModelProto:
    held = [numpy_helper.from_array(array, name) for name, array in constants]
    graph = helper.make_graph(nodes or chain(), "g", inputs, outputs, held, value_info=types)
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*o) for o in opsets], ir_version=1 if format is None else format
    )
    if format is None:
        proto.ClearField("ir_version")
    return proto


def add() -> list[NodeProto]:
    return [helper.make_node("Add", ["x", "w"], ["y"], name="sum")]


def captures_later() -> ModelProto:
    then = helper.make_graph([helper.make_node("Relu", ["late"], ["q"])], "t", [], [info("q")])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["q"])], "e", [], [info("q")])
    nodes = [
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other),
        helper.make_node("Neg", ["x"], ["late"], name="neg"),
    ]
    return model(nodes, [info("x"), info("c", (), TensorProto.BOOL)])


def attribute_twice() -> ModelProto:
    node = helper.make_node("Softmax", ["x"], ["y"], name="softmax", axis=0)
    node.attribute.append(helper.make_attribute("axis", 1))
    return model([node])


SHAPE = "a value is declared with another shape than it has"
NEGATIVE = "a dimension is declared with a negative size"
NOWHERE = "a type is declared of a value that does not exist"
FORMAT = "the version of the file's format is not a known one"
OPSET = "an operator set is imported twice"
ORDER = "the nodes of a graph are not in order"
UNUSED = "an initializer is used by nothing"
TWICE = "two initializers have the same name"

SLOPPY: dict[str, tuple[Callable[[], ModelProto], str, str]] = {
    "output of more dimensions": (lambda: model(outputs=[info("y", (2, 3, 1))]), SHAPE, "output 'y'"),
    "output of fewer dimensions": (lambda: model(outputs=[info("y", (3,))]), SHAPE, "output 'y'"),
    "output of another size": (lambda: model(outputs=[info("y", (2, 4))]), SHAPE, "output 'y'"),
    "output of size 0": (lambda: model(outputs=[info("y", (0, 3))]), SHAPE, "output 'y'"),
    "output of size -1": (lambda: model(outputs=[info("y", (-1, 3))]), NEGATIVE, "output 'y'"),
    "value of more dimensions": (lambda: model(types=[info("z", (2, 3, 1))]), SHAPE, "value 'z'"),
    "value of another size": (lambda: model(types=[info("z", (2, 5))]), SHAPE, "value 'z'"),
    "input of size -1": (lambda: model(inputs=[info("x", (-1, 3))]), NEGATIVE, "input 'x'"),
    "input of sizes -2": (lambda: model(inputs=[info("x", (-2, -2))]), NEGATIVE, "input 'x'"),
    "type of no value": (lambda: model(types=[info("nowhere")]), NOWHERE, "value 'nowhere'"),
    "type of no name": (lambda: model(types=[info("")]), NOWHERE, "value ''"),
    "operator set twice": (lambda: model(opsets=[("", 21), ("", 21)]), OPSET, "the model in memory"),
    "operator set by two names": (lambda: model(opsets=[("", 21), ("ai.onnx", 21)]), OPSET, "the model in memory"),
    "no import of the operator set": (
        lambda: model(opsets=[("com.microsoft", 1)]),
        "an operator set is used that the model does not import",
        "Relu 'a', and 1 more place",
    ),
    "format 0": (lambda: model(format=0), FORMAT, "the model in memory"),
    "constant that is an input": (
        lambda: model(add(), [info("x"), info("w")], constants=[("w", W)]),
        "an input has a default value in the file",
        "input 'w'",
    ),
    "constant of no use": (lambda: model(constants=[("w", W)]), UNUSED, "initializer 'w'"),
    "constant of no name": (lambda: model(constants=[("", W)]), UNUSED, "initializer ''"),
    "two constants of one name": (
        lambda: model(add(), constants=[("w", W), ("w", W * 5)]),
        TWICE,
        "graph 'g' in the model in memory",
    ),
    "nodes out of order": (lambda: model(chain()[::-1]), ORDER, "Neg 'b'"),
    "sub-graph before what it takes": (captures_later, ORDER, "If 'if'"),
    "output listed twice": (
        lambda: model(outputs=[info("y"), info("y")]),
        "two outputs have the same name",
        "output 'y'",
    ),
}
"""Files that ONNX Runtime reads: how to make one, what is said of it, and where."""

TOLERATED: dict[str, tuple[Callable[[], ModelProto], str, str]] = {
    "no format": (lambda: model(format=None), FORMAT, "the model in memory"),
    "format of the future": (lambda: model(format=99), FORMAT, "the model in memory"),
    "value of another element type": (
        lambda: model(types=[info("z", (2, 3), TensorProto.DOUBLE)]),
        "a value is declared with another element type than it has",
        "value 'z'",
    ),
    "nodes of one name": (
        lambda: model(
            [helper.make_node("Relu", ["x"], ["z"], name="a"), helper.make_node("Neg", ["z"], ["y"], name="a")]
        ),
        "two nodes have the same name",
        "Neg 'a'",
    ),
    "attribute twice": (attribute_twice, "a node has an attribute twice", "Softmax 'softmax'"),
}
"""Files that ONNX Runtime refuses, although what they compute is clear."""

RIGHT: dict[str, Callable[[], ModelProto]] = {
    "nothing": model,
    "old constant that is an input": lambda: model(add(), [info("x"), info("w")], constants=[("w", W)], format=3),
    "old constant that is no input": lambda: model(add(), constants=[("w", W)], format=3),
    "input of size 0": lambda: model(inputs=[info("x", (0, 3))], outputs=[info("y", (0, 3))]),
    "input of no use": lambda: model(inputs=[info("x"), info("q")]),
    "output that is an input": lambda: model(outputs=[info("y"), info("x")]),
    "output that is a constant": lambda: model(outputs=[info("y"), info("w")], constants=[("w", W)]),
    "nodes of no name": lambda: model([helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Neg", ["z"], ["y"])]),
    "node of no use": lambda: model([*chain(), helper.make_node("Relu", ["x"], ["q"])]),
    "inputs left out at the end": lambda: model([helper.make_node("Clip", ["x", "", ""], ["y"])]),
    "types of what there is": lambda: model(types=[info("z", ("n", 3)), info("x")]),
    "sizes that nobody knows": lambda: model(inputs=[info("x", ("n", 3))], outputs=[info("y", (2, "m"))]),
}
"""Files that look odd, and of which there is nothing to say."""


def warned(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a call gives, and the texts of its warnings of models."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = call()
    assert all(w.category is tw.ModelWarning for w in found)
    return result, [str(w.message) for w in found]


def feeds_of(proto: ModelProto) -> dict[str, Array]:
    held = {t.name for t in proto.graph.initializer}
    feeds: dict[str, Array] = {}
    for port in proto.graph.input:
        if port.name not in held:
            dims = [d.dim_value if d.HasField("dim_value") else -1 for d in port.type.tensor_type.shape.dim]
            assert port.type.tensor_type.elem_type in (FLOAT, TensorProto.BOOL)
            shape = [(2, 3)[n] if d < 0 else d for n, d in enumerate(dims)]
            feeds[port.name] = X[: shape[0]] if shape else np.array(True)
    return feeds


def check_runs(proto: ModelProto, *, known_to_runtime: bool) -> None:
    """Compiled code gives what the evaluator does and, where it is installed and reads the file, ONNX Runtime."""
    feeds = feeds_of(proto)
    module, _ = warned(lambda: read(proto))
    exe, _ = warned(lambda: tw.compile(proto))
    expected, found = evaluate(module, feeds), exe.run(feeds)
    assert list(found) == list(dict.fromkeys(o.name for o in proto.graph.output))
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-7)
    if known_to_runtime:
        runtime = pytest.importorskip("onnxruntime")
        runtime.set_default_logger_severity(4)
        session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        for name, array in zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True):
            assert found[name].shape == array.shape
            np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", [*SLOPPY, *TOLERATED])
def test_is_read_with_one_warning(case: str) -> None:
    make, what, where = (SLOPPY | TOLERATED)[case]
    _, texts = warned(lambda: read(make()))
    assert [text.split("\n")[:2] for text in texts] == [[what, f"at:   {where}"]]
    assert all(line[:6] in ("why:  ", "so:   ") and line[6:] for line in texts[0].split("\n")[2:])


@pytest.mark.parametrize("case", [*SLOPPY, *TOLERATED])
def test_is_refused_if_strict(case: str) -> None:
    make, what, where = (SLOPPY | TOLERATED)[case]
    for call in (lambda m: read(m, Reading(strict=True)), lambda m: tw.compile(m, strict=True)):
        with pytest.raises(tw.UserError) as caught:
            call(make())
        assert (caught.value.what, caught.value.where) == (what, where)
        assert caught.value.why
        assert caught.value.fix


@pytest.mark.parametrize("case", RIGHT)
def test_what_only_looks_odd_is_read_without_a_word(case: str) -> None:
    _, texts = warned(lambda: read(RIGHT[case](), Reading(strict=True)))
    assert texts == []


@pytest.mark.parametrize("case", [*SLOPPY, *TOLERATED, *RIGHT])
def test_results(case: str) -> None:
    make = RIGHT[case] if case in RIGHT else (SLOPPY | TOLERATED)[case][0]
    check_runs(make(), known_to_runtime=case not in TOLERATED)


@pytest.mark.parametrize("case", TOLERATED)
def test_what_onnx_runtime_refuses(case: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        runtime.InferenceSession(TOLERATED[case][0]().SerializeToString(), providers=["CPUExecutionProvider"])


def test_dimensions_of_negative_size_are_symbols_of_their_own() -> None:
    exe, _ = warned(lambda: tw.compile(model(inputs=[info("x", (-1, -1))], outputs=[info("y", None)])))
    assert str(exe.interface).startswith("(x: f32[x_0, x_1])")
    assert exe(np.ones((4, 1), np.float32))[0].shape == (4, 1)


def test_a_kind_is_told_once_with_the_number_of_places() -> None:
    types = [info(f"gone{n}") for n in range(4)]
    outputs = [info("y", (2, 4)), info("z", (1, 3))]
    _, texts = warned(lambda: read(model(types=types, outputs=outputs)))
    assert texts == [
        f"{NOWHERE}\nat:   value 'gone0', and 3 more places\n"
        "why:  no input, initializer or node has this name\nso:   it is left out",
        f"{SHAPE}\nat:   output 'y', and 1 more place\n"
        "why:  dimension 1 is declared as 4, but is 3\nso:   it has the shape that its node gives",
    ]


def test_a_warning_is_at_the_line_that_asked_for_the_model() -> None:
    with pytest.warns(tw.ModelWarning) as found:
        tw.compile(model(types=[info("nowhere")]))
    assert [w.filename for w in found] == [__file__]


def test_looking_inside_says_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    path = tmp_path / "m.onnx"
    onnx.save(model(types=[info("nowhere")]), path)
    exe, first = warned(lambda: tw.compile(path))
    _, again = warned(lambda: exe.show("simplify"))
    assert (len(first), again) == (1, [])


def test_names_from_a_file_are_printed_safely() -> None:
    _, texts = warned(lambda: read(model(types=[info("a\x1b[2Jb" + "c" * 500)])))
    assert "\x1b" not in texts[0] and len(texts[0]) < 300


def test_of_two_constants_the_last_one_is_taken() -> None:
    exe, _ = warned(lambda: tw.compile(model(add(), constants=[("w", W), ("w", W * 5)])))
    assert np.array_equal(exe(X)[0], X + W * 5)


def test_an_order_is_found_for_long_chains() -> None:
    count = 20_000
    nodes = [helper.make_node("Neg", [f"v{n}"], [f"v{n + 1}"], name=f"n{n}") for n in range(count)]
    module, texts = warned(
        lambda: read(model(nodes[::-1], [info("v0")], [info(f"v{count}")])),
    )
    assert len(module.main.nodes) == count
    assert texts == [
        f"{ORDER}\nat:   Neg 'n{count - 1}', and {count - 2} more places\n"
        f"why:  it uses 'v{count - 1}', which Neg 'n{count - 2}' defines later\nso:   nodes run in an order that fits"
    ]


def test_strict_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    (tmp_path / "store").mkdir(mode=0o700)
    path = tmp_path / "m.onnx"
    onnx.save(model(outputs=[info("y", (2, 4))]), path)
    outcome = invoke("run", path, "--random")
    assert outcome.code == 0
    assert outcome.err.startswith(f"warning: {SHAPE}\nat:   output 'y'\n")
    for words in (["run", "--random"], ["compile"], ["show"], ["bench", "--seconds", "0"], ["profile"], ["why"]):
        outcome = invoke(words[0], path, *words[1:], "--strict")
        assert outcome.code == 2, words
        assert outcome.err.startswith(f"{SHAPE}\nat:   output 'y'\n"), words


def test_strict_and_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    (tmp_path / "store").mkdir(mode=0o700)
    path = tmp_path / "m.onnx"
    onnx.save(model(outputs=[info("y", (2, 4))]), path)
    for _ in range(2):
        warned(lambda: tw.compile(path))
        with pytest.raises(tw.UserError, match=SHAPE):
            tw.compile(path, strict=True)
