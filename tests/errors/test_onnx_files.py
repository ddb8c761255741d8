"""Files that are no ONNX model, or one too large or wrongly built: each is refused with one whole message."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx_models import (
    FIX_EXISTS,
    call,
    damaged,
    folder,
    functions,
    little_memory,
    message,
    model,
    read_all,
    refusal,
)

from tilewright.frontends.onnx import read
from tilewright.frontends.onnx.file import from_bytes, from_proto, open_model
from tilewright.frontends.onnx.limits import Limits
from tilewright.frontends.onnx.structure import check_opset
from tilewright.frontends.onnx.wire import varint
from tilewright.report.errors import UserError

__all__ = ["folder", "little_memory"]

pytestmark = pytest.mark.usefixtures("folder")


def test_missing_file() -> None:
    with pytest.raises(UserError) as caught:
        open_model("none.onnx")
    assert str(caught.value) == message(
        "cannot read the model file 'none.onnx'", None, "No such file or directory", FIX_EXISTS
    )


def test_folder_instead_of_a_file() -> None:
    with pytest.raises(UserError) as caught:
        open_model(".")
    assert str(caught.value) == message(
        "cannot read the model file '.'", None, "it is a folder", "give the path of an ordinary file"
    )


def test_pipe_does_not_block() -> None:
    os.mkfifo("pipe")
    with pytest.raises(UserError) as caught:
        open_model("pipe")
    assert str(caught.value) == message(
        "cannot read the model file 'pipe'",
        None,
        "it is a device, pipe or socket",
        "give the path of an ordinary file",
    )


def test_path_with_a_zero_character() -> None:
    with pytest.raises(UserError) as caught:
        open_model("a\0b")
    assert str(caught.value) == message("cannot read the model file 'a\\x00b'", None, "embedded null byte", FIX_EXISTS)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_unreadable_file() -> None:
    Path("m.onnx").write_bytes(model().SerializeToString())
    os.chmod("m.onnx", 0)
    with pytest.raises(UserError) as caught:
        open_model("m.onnx")
    assert str(caught.value) == message("cannot read the model file 'm.onnx'", None, "Permission denied", FIX_EXISTS)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"PK\x0b" + bytes(60), "byte 2 starts a field of unknown kind 3 in a ModelProto"),
        (b"#\0 a script\n" * 40, "byte 0 starts a field of unknown kind 3 in a ModelProto"),
        (b"\x00\x01", "byte 0 starts a field with the number 0 in a ModelProto"),
        (b"\x08\xff", "the ModelProto that ends at byte 2 ends within an integer at byte 1"),
        (
            b"\x08" + b"\xff" * 11 + b"\x01",
            "the ModelProto that ends at byte 13 holds an integer of more than ten bytes at byte 1",
        ),
        (b"\x3a", "the ModelProto that ends at byte 1 ends within an integer at byte 1"),
        (b"\x3a" + varint(1 << 62), f"the field at byte 0 ends at byte {(1 << 62) + 10}, its ModelProto at byte 10"),
        (
            b"\x3a" + varint(300) + b"\x52" + varint(299) + bytes(297),
            "the field at byte 3 ends at byte 305, its GraphProto at byte 303",
        ),
        (b"\x08\x08\x42\x04\x0a\x00\x10\x14", "it has no graph"),
        (b"\x3a\x04\x0a\x02\x2a\x05", "its fields do not follow the ONNX format"),
    ],
)
def test_not_a_model(data: bytes, why: str) -> None:
    assert refusal(data) == damaged(why)


def test_types_nested_too_deep() -> None:
    inner = b"\x08\x01"
    for _ in range(400):
        inner = b"\x22" + varint(len(inner) + len(varint(len(inner))) + 1) + b"\x0a" + varint(len(inner)) + inner
    info = b"\x12" + varint(len(inner)) + inner
    graph = b"\x5a" + varint(len(info)) + info
    assert refusal(b"\x3a" + varint(len(graph)) + graph) == damaged("messages are nested more than 100 deep")


def test_structure_past_the_limits() -> None:
    nodes = [helper.make_node("Relu", [f"a{i}"], [f"a{i + 1}"], doc_string="x" * 300) for i in range(40)]
    for limit, value in (("structure_bytes", 10_000), ("entries", 100)):
        assert refusal(model(nodes=nodes), Limits(**{limit: value})) == message(
            "the model's structure is too large",
            "'m.onnx'",
            f"without its tensors' data it is past the limit {limit} = {value}",
            f"if you trust the file, open it with a higher limit: open_model(path, Limits({limit}=…))",
        )


def test_tensor_of_unpacked_elements() -> None:
    tensor = b"\x08\x01\x10\x01" + b"\x25\x00\x00\x80\x3f" * 100_001
    graph = b"\x2a" + varint(len(tensor)) + tensor
    assert refusal(b"\x3a" + varint(len(graph)) + graph) == damaged(
        "a tensor holds more than 100000 separate fields; its data is not packed"
    )


@pytest.mark.usefixtures("little_memory")
def test_millions_of_empty_messages_are_refused_before_they_are_parsed() -> None:
    graph = b"\x0a\x00" * 8_000_000
    data = b"\x3a" + varint(len(graph)) + graph
    with pytest.raises(UserError, match="entries = 400000"):
        from_bytes(data, limits=Limits(entries=400_000))


@pytest.mark.usefixtures("little_memory")
def test_packed_integers_count_by_the_memory_they_take_when_parsed() -> None:
    elements = (
        TensorProto(name="w", dims=[0], data_type=7).SerializeToString() + b"\x3a" + varint(1 << 22) + bytes(1 << 22)
    )
    dims = b"\x10\x01\x0a" + varint(1 << 22) + bytes(1 << 22)
    ints = b"\x2a" + varint((1 << 22) + 5) + b"\x42" + varint(1 << 22) + bytes(1 << 22)
    for tag, content in ((b"\x2a", elements), (b"\x2a", dims), (b"\x0a", ints)):
        graph = tag + varint(len(content)) + content
        data = b"\x3a" + varint(len(graph)) + graph
        with pytest.raises(UserError, match=f"structure_bytes = {8 << 22}"):
            from_bytes(data, limits=Limits(structure_bytes=8 << 22))


@pytest.mark.parametrize(
    ("imports", "why", "fix"),
    [
        ([], "it imports no operator set", "export the model again with an opset, or add one to model.opset_import"),
        (
            [("", 20), ("ai.onnx", 21)],
            "the operator set 'ai.onnx' is imported twice, with versions 20 and 21",
            "keep one import of each operator set",
        ),
        *(
            (
                [("", version)],
                f"the operator set 'ai.onnx' has version {version}; "
                f"versions 1 to {onnx.defs.onnx_opset_version()} are known",
                "convert the model: onnx.version_converter.convert_version(model, version)",
            )
            for version in (0, 10**9, -1, -(2**63))
        ),
        (
            [("", 20), ("custom", 2**63 - 1)],
            "the operator set 'custom' has version 9223372036854775807; versions 1 to 1000000 are known",
            "convert the model: onnx.version_converter.convert_version(model, version)",
        ),
    ],
)
def test_operator_sets(imports: list[tuple[str, int]], why: str, fix: str) -> None:
    proto = model()
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(*entry) for entry in imports)
    expected = "cannot tell what the model's operators mean"
    assert refusal(proto) == message(expected, "'m.onnx'", why, fix)
    with pytest.raises(UserError) as caught:
        check_opset(proto)
    assert str(caught.value) == message(expected, "the model", why, fix)


def test_operator_set_of_a_function() -> None:
    proto = model()
    proto.functions.append(helper.make_function("f", "Body", [], [], [], [helper.make_opsetid("", 0)]))
    assert refusal(proto) == message(
        "cannot tell what the model's operators mean",
        "function 'Body' in 'm.onnx'",
        f"the operator set 'ai.onnx' has version 0; versions 1 to {onnx.defs.onnx_opset_version()} are known",
        "convert the model: onnx.version_converter.convert_version(model, version)",
    )


def test_text_that_is_not_utf8() -> None:
    nodes = [helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Relu", ["b", "XYZ"], ["c"])]
    for at, place in (("XYZ", "model.graph.node[1].input[1]"), ("Relu", "model.graph.node[0].op_type")):
        data = model(nodes=nodes).SerializeToString().replace(at.encode(), b"\xff" * len(at), 1)
        assert refusal(data) == message(
            "a string is not UTF-8",
            "'m.onnx'",
            f"{place} holds other bytes",
            "write the name in UTF-8 with the tool that made the model",
        )


def nested(depth: int, padding: str = "") -> ModelProto:
    """A model whose innermost graph lies inside `depth` others."""
    graph = GraphProto(name="g", doc_string=padding)
    for _ in range(depth):
        node = NodeProto(op_type="If", output=["y"])
        node.attribute.add(name="a", type=onnx.AttributeProto.GRAPH).g.CopyFrom(graph)
        graph = GraphProto(name="g", node=[node])
    proto = model()
    proto.graph.CopyFrom(graph)
    return proto


def bare_nest(depth: int) -> bytes:
    """The same with not one byte to spare in it."""
    graph = b""
    for _ in range(depth):
        attribute = b"\x32" + varint(len(graph)) + graph
        node = b"\x2a" + varint(len(attribute)) + attribute
        graph = b"\x0a" + varint(len(node)) + node
    return b"\x42\x04\x0a\x00\x10\x14\x3a" + varint(len(graph)) + graph


def test_subgraphs_nested_too_deep() -> None:
    expected = message(
        "sub-graphs are nested too deep",
        "'m.onnx'",
        "a sub-graph is nested in more than 30 others",
        "move the inner sub-graphs into model-local functions",
    )
    deep = [nested(31).SerializeToString(), nested(31, "x" * 300).SerializeToString(), nested(33).SerializeToString()]
    for data in [*deep, bare_nest(31), bare_nest(40), bare_nest(2000)]:
        assert refusal(data) == expected
    assert refusal(nested(4), Limits(nesting=3)) == expected.replace("30", "3")
    assert read_all(from_proto(nested(30, "x" * 300))) == 0


def test_functions_that_call_themselves() -> None:
    inner = helper.make_graph([call("A")], "then", [], [])
    in_branch = helper.make_node("If", ["p"], ["y"], then_branch=inner)
    for proto, why in (
        (functions(A=[call("A")]), "'f::A' calls 'f::A'"),
        (functions(A=[call("B")], B=[call("C")], C=[call("B")]), "'f::B' calls 'f::C' calls 'f::B'"),
        (functions(A=[call("B")], B=[in_branch]), "'f::A' calls 'f::B' calls 'f::A'"),
    ):
        assert refusal(proto) == message(
            "a model-local function calls itself",
            "'m.onnx'",
            why,
            "use the operator Loop for repetition; ONNX functions are expanded where they are called",
        )
    diamond = functions(A=[call("B"), call("C")], B=[call("D")], C=[call("D")], D=[call("A", "other")])
    assert read_all(from_proto(diamond)) == 0


def test_function_defined_twice() -> None:
    proto = functions(A=[])
    proto.functions.append(proto.functions[0])
    assert refusal(proto) == message(
        "two model-local functions have the same name",
        "'m.onnx'",
        "'f::A' is defined twice",
        "give each function its own name, domain or overload",
    )


def test_a_long_chain_of_functions_does_not_recurse() -> None:
    chain = {f"F{i}": [call(f"F{i + 1}")] for i in range(3000)}
    assert read_all(from_proto(functions(**chain))) == 0


def test_functions_that_expand_to_more_nodes_than_there_may_be() -> None:
    """Ten levels of functions that call the one below ten times: ten thousand million nodes."""
    nodes = {"F0": [helper.make_node("Neg", ["a"], ["b"])]}
    for n in range(1, 10):
        names = ["a", *(f"v{k}" for k in range(9)), "b"]
        nodes[f"F{n}"] = [helper.make_node(f"F{n - 1}", [i], [o], domain="own") for i, o in pairwise(names)]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    made = [helper.make_function("own", name, ["a"], ["b"], body, imports) for name, body in nodes.items()]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    result = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node("F9", ["x"], ["y"], domain="own")], "g", [info], [result])
    proto = helper.make_model(graph, opset_imports=imports, functions=made, ir_version=10)
    with pytest.raises(UserError) as caught:
        read(from_bytes(proto.SerializeToString(), limits=Limits(nodes=1000)))
    lines = str(caught.value).splitlines()
    assert lines[0] == "the model has too many nodes" and lines[1].startswith("at:   F9 '→ y' › F8")
    why = "with the bodies of functions, branches and loops in their places there are more than 1,000"
    fix = "split the model, or let its functions call each other less often"
    assert lines[2:] == [f"why:  {why}", f"fix:  {fix}"]
    assert lines[1].endswith("› F3 '→ v0'")  # the first of a thousand nodes and more, of functions that have fewer
