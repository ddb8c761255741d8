"""Models that are read without fault but make no sense, or use what is not supported: the whole message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tilewright.core.reading import Reading
from tilewright.frontends.onnx.importer import read
from tilewright.report.errors import UserError

FLOAT = TensorProto.FLOAT


def build(
    nodes: Sequence[NodeProto],
    inputs: Sequence[tuple[str, int, Sequence[int | str] | None]] = (("x", FLOAT, (2, 3)),),
    outputs: Sequence[Any] = ("y",),
    constants: Mapping[str, Any] | None = None,
) -> ModelProto:
    infos = [helper.make_tensor_value_info(*entry) for entry in inputs]
    results = [helper.make_empty_tensor_value_info(o) if isinstance(o, str) else o for o in outputs]
    initializers = [numpy_helper.from_array(np.array(v), name) for name, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", infos, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def refusal(model: ModelProto, *, strict: bool = False) -> str:
    with pytest.raises(UserError) as caught:
        read(model, Reading(strict=strict))
    return str(caught.value)


def test_everything_that_is_not_supported_is_listed_at_once() -> None:
    nodes = [
        helper.make_node("ImageDecoder", ["x", "x"], ["a"], name="boxes"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Frobnicate", ["b"], ["c"], name="f", domain="acme"),
        helper.make_node("Conv", ["x"], ["d"], name="conv", flavour=3, group="two"),
        helper.make_node("Cast", ["x"], ["y"], to=TensorProto.COMPLEX64),
    ]
    model = build(nodes)
    model.opset_import.append(helper.make_opsetid("acme", 1))
    assert refusal(model) == (
        """\
the model uses what is not supported: 6 errors
   1. the operator ImageDecoder is not supported
      at:   ImageDecoder 'boxes'
      why:  opset 21 is imported
   2. the operator acme.Frobnicate is not supported
      at:   Frobnicate 'f'
      why:  opset 1 is imported
      fix:  register a handler of it: @tilewright.onnx_operator('acme', 'Frobnicate'), in a module of --import
   3. Conv is not supported here
      at:   Conv 'conv'
      why:  it needs 2 inputs, but has 1 of them
   4. Conv is not supported here
      at:   Conv 'conv'
      why:  its attribute 'flavour' is not supported
   5. Conv is not supported here
      at:   Conv 'conv'
      why:  its attribute 'group' is a string, not an integer
   6. Cast is not supported here
      at:   Cast '→ y'
      why:  the element type complex64 is not supported"""
    )


def test_a_function_called_twice_is_reported_once() -> None:
    body = [helper.make_node("ImageDecoder", ["a", "a"], ["b"], name="inner")]
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
    model = build([helper.make_node("F", ["x"], ["y"], domain="own", name="outer")])
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.append(function)
    assert refusal(model) == (
        """\
the operator ImageDecoder is not supported
at:   F 'outer' › ImageDecoder 'inner'
why:  opset 21 is imported"""
    )


def test_an_undefined_value() -> None:
    assert refusal(build([helper.make_node("Add", ["x", "w"], ["y"], name="sum")])) == (
        """\
the value 'w' is not defined
at:   Add 'sum'
why:  no input, initializer or node has it"""
    )


def test_an_undefined_output() -> None:
    assert refusal(build([helper.make_node("Relu", ["x"], ["z"])])) == (
        """\
the value 'y' is not defined
at:   the model's outputs
why:  no input, initializer or node has it"""
    )


def test_nodes_out_of_order() -> None:
    nodes = [helper.make_node("Relu", ["z"], ["y"], name="b"), helper.make_node("Neg", ["x"], ["z"], name="a")]
    assert refusal(build(nodes), strict=True) == (
        """\
the nodes of a graph are not in order
at:   Relu 'b'
why:  it uses 'z', which Neg 'a' defines later
fix:  sort them topologically"""
    )


def test_a_cycle() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["y"], name="a"), helper.make_node("Neg", ["y"], ["z"], name="b")]
    assert refusal(build(nodes)) == (
        """\
the nodes of a graph form a cycle
at:   Add 'a' → Neg 'b' → Add 'a'
fix:  use the operator Loop for repetition"""
    )


def test_a_value_defined_twice() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="a"), helper.make_node("Neg", ["x"], ["y"], name="b")]
    assert refusal(build(nodes)) == (
        """\
a value is defined twice
at:   Neg 'b'
why:  'y' is already defined by Relu 'a'
fix:  rename one of them"""
    )


def test_an_operator_set_that_is_not_imported() -> None:
    assert refusal(build([helper.make_node("Thing", ["x"], ["y"], domain="acme")])) == (
        """\
cannot tell what Thing means
at:   Thing '→ y'
why:  the model does not import the operator set 'acme'"""
    )


def test_inputs_of_other_kinds() -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"])], [("x", TensorProto.STRING, (2,)), ("n", FLOAT, None)])
    model.graph.input.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    assert refusal(model) == (
        """\
the model uses what is not supported: 3 errors
   1. the element type of a value is not supported
      at:   input 'x'
      why:  it has string
   2. an input has no rank
      at:   input 'n'
      why:  the model can be read with any number of dimensions
      fix:  give its dimensions, sizes or names: dims={'n': ['n', 3]}, or --dim 'n=[n, 3]'
   3. only tensors can be inputs
      at:   input 's'
      why:  its type is sequence"""
    )


def test_nodes_of_a_sub_graph_out_of_order() -> None:
    inner = [helper.make_node("Relu", ["z"], ["r"], name="b"), helper.make_node("Neg", ["x"], ["z"], name="a")]
    branch = helper.make_graph(inner, "then", [], [helper.make_empty_tensor_value_info("r")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    assert refusal(build([node], [("x", FLOAT, (2, 3)), ("c", TensorProto.BOOL, ())])) == (
        """\
the nodes of a graph are not in order
at:   Relu 'b'
why:  it uses 'z', which Neg 'a' defines later
fix:  sort them topologically"""
    )


def test_an_output_declared_with_another_element_type() -> None:
    y = helper.make_tensor_value_info("y", TensorProto.DOUBLE, (2, 3))
    assert refusal(build([helper.make_node("Relu", ["x"], ["y"])], outputs=[y])) == (
        """\
an output is declared with another type than it has
at:   output 'y'
why:  it is declared as float64, but its elements are f32"""
    )


def test_a_default_value_of_another_type() -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"])], constants={"x": np.ones((2, 4), np.float32)})
    assert refusal(model) == (
        """\
an input has a default value of another type
at:   input 'x'
why:  dimension 1 is declared as 3, but is 4"""
    )


def test_all_that_a_strict_reading_refuses_is_listed_at_once() -> None:
    nodes = [helper.make_node("Relu", ["z"], ["y"], name="a"), helper.make_node("Neg", ["x"], ["z"], name="a")]
    y = helper.make_tensor_value_info("y", FLOAT, (2, 4))
    assert refusal(build(nodes, [("x", FLOAT, (-1, 3))], [y, y]), strict=True) == (
        """\
the model is not written as its format says: 5 errors
   1. two nodes have the same name
      at:   Neg 'a'
      why:  another node is called 'a'
      fix:  give each its own name
   2. the nodes of a graph are not in order
      at:   Relu 'a'
      why:  it uses 'z', which Neg 'a' defines later
      fix:  sort them topologically
   3. a dimension is declared with a negative size
      at:   input 'x'
      why:  dimension 0 is -1
      fix:  give the dimension a name in place of the size
   4. a value is declared with another shape than it has
      at:   output 'y'
      why:  dimension 1 is declared as 4, but is 3
      fix:  correct the declaration: onnx.shape_inference.infer_shapes after clearing graph.value_info
   5. two outputs have the same name
      at:   output 'y'
      why:  it is listed twice
      fix:  give each its own name"""
    )


def test_a_loop_that_changes_the_rank_of_its_state() -> None:
    body = helper.make_graph(
        [helper.make_node("Flatten", ["s"], ["f"]), helper.make_node("ReduceSum", ["f"], ["t"], keepdims=0)],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, [2, 3]),
        ],
        [helper.make_empty_tensor_value_info(n) for n in ("c", "t")],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body)
    assert refusal(build([node], [("x", FLOAT, (2, 3)), ("n", TensorProto.INT64, ())])) == (
        """\
Loop is not supported here
at:   Loop 'loop'
why:  the state 0 of the loop begins as f32 of 2 dimensions and goes on as f32 of 0 dimensions"""
    )


WRONG_NODES = {
    "axis": (
        helper.make_node("Softmax", ["x"], ["y"], axis=2),
        {},
        "axis 2 is outside -2..2 for a tensor of 2 dimensions",
    ),
    "axes": (
        helper.make_node("ReduceSum", ["x", "a"], ["y"]),
        {"a": [0, -2]},
        "the axes [0, -2] name a dimension twice",
    ),
    "index": (
        helper.make_node("Gather", ["x", "i"], ["y"]),
        {"i": [1, 2]},
        "Gather '→ y' along axis 0: index 2 is outside [-2, 2)",
    ),
    "reshape": (
        helper.make_node("Reshape", ["x", "s"], ["y"]),
        {"s": [-1, -1]},
        "the shape ['-1', '-1'] has more than one -1",
    ),
    "step": (
        helper.make_node("Slice", ["x", "a", "a", "a", "a"], ["y"]),
        {"a": [0]},
        "a step of Slice is 0",
    ),
    "split": (
        helper.make_node("Split", ["x", "s"], ["y", "z"], axis=1),
        {"s": [1, 3]},
        "the sizes of Split add up to 4, not to the dimension's extent 3",
    ),
    "pads": (helper.make_node("Pad", ["x", "p"], ["y"]), {"p": [1, 1]}, "Pad of 2 dimensions needs 4 amounts, not 2"),
    "stride": (
        helper.make_node("MaxPool", ["i"], ["y"], kernel_shape=[2], strides=[0]),
        {"i": np.zeros((1, 1, 4), np.float32)},
        "strides [0] has an entry below 1",
    ),
}


@pytest.mark.parametrize("case", WRONG_NODES)
def test_a_node_that_contradicts_itself(case: str) -> None:
    node, constants, why = WRONG_NODES[case]
    assert refusal(build([node], constants=constants)) == (
        f"cannot read a node of the model\nat:   {node.op_type} '→ y'\nwhy:  {why}"
    )
