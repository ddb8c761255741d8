"""If by a condition from data: one branch runs, and gives what the reference of ONNX gives, whatever the other is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from tilewright.frontends.onnx import differing
from tilewright.frontends.onnx.file import from_bytes
from tilewright.frontends.onnx.importer import read
from tilewright.frontends.onnx.limits import Limits
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.verify import verify
from tilewright.report.errors import RuntimeFault, UserError

Array = np.ndarray[Any, Any]
FLOAT, BOOL, INT = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def body(name: str, nodes: list[NodeProto], outputs: list[str], **constants: Array) -> GraphProto:
    held = [numpy_helper.from_array(array, key) for key, array in constants.items()]
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(n) for n in outputs], held)


def model_of(
    nodes: list[NodeProto], inputs: dict[str, tuple[int, list[Any]]], outputs: list[str], **constants: Array
) -> ModelProto:
    infos = [helper.make_tensor_value_info(name, *type) for name, type in inputs.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    held = [numpy_helper.from_array(array, key) for key, array in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def choose(cond: str, outputs: list[str], then: GraphProto, otherwise: GraphProto) -> NodeProto:
    return helper.make_node("If", [cond], outputs, then_branch=then, else_branch=otherwise)


def node(op: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def agree(model: ModelProto, *feeds: dict[str, Array]) -> Module:
    """The graph, and its compiled code, give what ONNX's reference gives."""
    module = read(model)
    verify(module)
    exe = tw.compile(model)
    for feed in feeds:
        expected = ReferenceEvaluator(model).run(None, dict(feed))
        for found in (evaluate(module, feed), exe.run(feed)):
            for array, want in zip(found.values(), expected, strict=True):
                assert array.shape == want.shape
                np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-5)
    return module


def branches(module: Module) -> int:
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    return sum(node.op.name == "if" for f in graphs for node in f.nodes)


def rand(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def both(**feed: Array) -> list[dict[str, Array]]:
    return [{"c": np.array(c), **feed} for c in (True, False)]


W = rand(4, 5)


def test_branches_of_different_sizes() -> None:
    then = body(
        "then", [node("MatMul", "x w", "t"), node("ReduceSum", "t last", "s", keepdims=0)], ["s"], last=np.array([1])
    )
    places = [
        node("NonZero", "x", "p"),
        node("Cast", "p", "f", to=FLOAT),
        node("ReduceMean", "f first", "s", keepdims=0),
    ]
    otherwise = body("else", places, ["s"], first=np.array([0]))
    model = model_of([choose("c", ["y"], then, otherwise)], {"c": (BOOL, []), "x": (FLOAT, ["n", 4])}, ["y"], w=W)
    feeds = [feed for n in (0, 1, 6) for feed in both(x=np.where(rand(n, 4) > 0, rand(n, 4), 0).astype(np.float32))]
    assert branches(agree(model, *feeds)) == 1


def test_checks_of_the_other_branch_do_not_fire() -> None:
    """Gather of a row that is not there, and a Reshape that fits for some sizes only."""
    then = body(
        "then",
        [node("Gather", "x i", "r"), node("Reshape", "x wide", "s"), node("Add", "s r", "y")],
        ["y"],
        wide=np.array([-1, 4]),
    )
    otherwise = body("else", [node("Relu", "x", "y")], ["y"])
    inputs = {"c": (BOOL, []), "x": (FLOAT, ["n", 4]), "i": (INT, [])}
    model = model_of([choose("c", ["y"], then, otherwise)], inputs, ["y"])
    agree(model, *both(x=rand(3, 4), i=np.array(2)), {"c": np.array(False), "x": rand(3, 4), "i": np.array(7)})
    with pytest.raises(RuntimeFault):
        tw.compile(model)(np.array(True), rand(3, 4), np.array(7))


def test_branches_within_branches_share_what_is_around() -> None:
    inner = choose(
        "d",
        ["z"],
        body("a", [node("MatMul", "h w", "a")], ["a"]),
        body("b", [node("Concat", "h h", "b", axis=0)], ["b"]),
    )
    then = body("then", [node("Relu", "x", "h"), inner], ["z"])
    otherwise = body("else", [node("Neg", "x", "n")], ["n"])
    inputs = {"c": (BOOL, []), "d": (BOOL, [1]), "x": (FLOAT, ["n", 4])}
    model = model_of([choose("c", ["y"], then, otherwise), node("Shape", "y", "size")], inputs, ["y", "size"], w=W)
    feeds = [{**feed, "d": np.array([d])} for n in (1, 3) for feed in both(x=rand(n, 4)) for d in (True, False)]
    assert branches(agree(model, *feeds)) == 2


def test_little_is_computed_twice_and_selected() -> None:
    then = body("then", [node("Exp", "x", "y")], ["y"])
    otherwise = body("else", [node("Neg", "x", "y")], ["y"])
    model = model_of([choose("c", ["y"], then, otherwise)], {"c": (BOOL, []), "x": (FLOAT, ["n"])}, ["y"])
    assert branches(agree(model, *both(x=rand(5)))) == 0


def test_a_branch_in_a_loop() -> None:
    """The condition is that of the step."""
    then = body("then", [node("MatMul", "h v", "t")], ["t"])
    otherwise = body("else", [node("Add", "h row", "u")], ["u"])
    step = helper.make_graph(
        [
            node("ReduceSum", "row", "s", keepdims=0),
            node("Greater", "s zero", "p"),
            choose("p", ["n"], then, otherwise),
        ],
        "step",
        [helper.make_tensor_value_info("h", FLOAT, [1, 4]), helper.make_tensor_value_info("row", FLOAT, [4])],
        [helper.make_empty_tensor_value_info("n")],
    )
    scan = helper.make_node("Scan", ["h0", "x"], ["y"], body=step, num_scan_inputs=1)
    inputs = {"h0": (FLOAT, [1, 4]), "x": (FLOAT, ["n", 4])}
    model = model_of([scan], inputs, ["y"], v=rand(4, 4), zero=np.array(0, np.float32))
    assert branches(agree(model, *({"h0": rand(1, 4), "x": rand(n, 4)} for n in (1, 12)))) == 1


def test_branches_of_different_ranks_are_refused() -> None:
    then = body("then", [node("ReduceSum", "x", "y", keepdims=0)], ["y"])
    otherwise = body("else", [node("Relu", "x", "y")], ["y"])
    model = model_of([choose("c", ["y"], then, otherwise)], {"c": (BOOL, []), "x": (FLOAT, ["n"])}, ["y"])
    with pytest.raises(UserError, match="same element type and rank, not f32 of 0 dimensions and f32 of 1"):
        read(model)
    model = model_of(
        [choose("c", ["r"], then, otherwise), node("Neg", "r", "y")], {"c": (BOOL, []), "x": (FLOAT, ["n"])}, ["y"]
    )
    with pytest.raises(UserError, match=r"'y', which follows .* not f32 of 0 dimensions and f32 of 1"):
        read(model)


def squeezed(x: str, axis: int, to: str) -> list[NodeProto]:
    """`x` without an axis of its last two dimensions where that has extent one, as exporters write it."""
    then = body(f"{to}-then", [node("Squeeze", f"{x} {to}-axis", f"{to}-s")], [f"{to}-s"])
    otherwise = body(f"{to}-else", [node("Identity", x, f"{to}-i")], [f"{to}-i"])
    return [
        node("Constant", "", f"{to}-axis", value_ints=[axis]),
        node("Constant", "", f"{to}-one", value_ints=[1]),
        node("Shape", x, f"{to}-size"),
        node("Gather", f"{to}-size {to}-axis", f"{to}-extent"),
        node("Equal", f"{to}-extent {to}-one", f"{to}-is-one"),
        choose(f"{to}-is-one", [to], then, otherwise),
    ]


def restored(x: str, rank: int, to: str) -> list[NodeProto]:
    """`x` with a last dimension of extent one if it has `rank` dimensions."""
    then = body(f"{to}-then", [node("Unsqueeze", f"{x} {to}-axis", f"{to}-u")], [f"{to}-u"])
    otherwise = body(f"{to}-else", [node("Identity", x, f"{to}-i")], [f"{to}-i"])
    return [
        node("Constant", "", f"{to}-axis", value_ints=[-1]),
        node("Constant", "", f"{to}-rank", value_int=rank),
        node("Shape", x, f"{to}-size"),
        node("Size", f"{to}-size", f"{to}-found"),
        node("Equal", f"{to}-found {to}-rank", f"{to}-is"),
        choose(f"{to}-is", [to], then, otherwise),
    ]


XNT: dict[str, tuple[int, list[Any]]] = {"x": (FLOAT, ["n", 4, "t"])}


def sized(*extents: int) -> list[dict[str, Array]]:
    return [{"x": rand(n, 4, t)} for n in (1, 3) for t in extents]


def test_what_follows_branches_of_different_ranks_runs_inside_of_them() -> None:
    """The product does not depend on them: it is computed once, outside."""
    nodes = [*squeezed("x", -1, "r"), node("MatMul", "v x", "m"), node("Exp", "r", "e"), *restored("e", 2, "y")]
    module = agree(model_of([*nodes, node("Neg", "m", "z")], XNT, ["y", "z"], v=rand(1, 1, 4)), *sized(1, 2))
    assert branches(module) == 1
    assert any(node.op.name == "contract" for node in module.functions["main"].nodes)


def test_branches_that_what_follows_contradicts_are_checks() -> None:
    """Only two dimensions can be transposed so, whichever the Ifs around choose. Nothing is left to choose."""
    nodes = [*squeezed("x", -1, "r"), node("Transpose", "r", "y", perm=[1, 0])]
    model = model_of(nodes, XNT, ["y"])
    assert branches(agree(model, *sized(1))) == 0
    with pytest.raises(RuntimeFault, match="contradicts the branch that is chosen: Transpose"):
        tw.compile(model)(rand(3, 4, 2))


@pytest.mark.parametrize("taken", [True, False])
def test_a_condition_from_data_must_not_choose_a_contradiction(taken: bool) -> None:
    two = body("two", [node("ReduceSum", "x last", "s", keepdims=0)], ["s"], last=np.array([2]))
    three = body("three", [node("Neg", "x", "o")], ["o"])
    nodes = [choose("c", ["r"], *((two, three) if taken else (three, two))), node("Transpose", "r", "y", perm=[1, 0])]
    model = model_of(nodes, {"c": (BOOL, []), **XNT}, ["y"])
    assert branches(agree(model, {"c": np.array(taken), "x": rand(3, 4, 2)})) == 0
    with pytest.raises(RuntimeFault, match="contradicts the branch that is chosen: Transpose"):
        tw.compile(model)(np.array(not taken), rand(3, 4, 2))


def test_what_contradicts_both_branches_is_an_error() -> None:
    nodes = [*squeezed("x", -1, "r"), node("Transpose", "r", "y", perm=[3, 2, 1, 0])]
    with pytest.raises(UserError, match="Transpose"):
        read(model_of(nodes, XNT, ["y"]))


def test_what_is_not_supported_behind_branches_is_listed_once() -> None:
    nodes = [*squeezed("x", -1, "r"), node("Nonsense", "r", "y"), node("Nonsense", "x", "z")]
    with pytest.raises(UserError, match="2 errors") as raised:
        read(model_of(nodes, XNT, ["y", "z"]))
    assert str(raised.value).count("Nonsense") == 4


def test_branches_of_different_element_types() -> None:
    then = body("then", [node("Cast", "x", "t", to=INT)], ["t"])
    otherwise = body("else", [node("Exp", "x", "e")], ["e"])
    nodes = [choose("c", ["r"], then, otherwise), node("Add", "r r", "s"), node("Cast", "s", "y", to=FLOAT)]
    model = model_of(nodes, {"c": (BOOL, []), "x": (FLOAT, ["n"])}, ["y"])
    assert branches(agree(model, *both(x=rand(5) * 3))) == 1


def test_independent_branches_of_different_ranks_are_read_apart() -> None:
    nodes = [
        *squeezed("x", -1, "r"),
        *squeezed("x", 0, "s"),
        *restored("r", 2, "y"),
        node("Flatten", "s", "z", axis=0),
    ]
    module = agree(model_of(nodes, XNT, ["y", "z"]), *sized(1, 2))
    assert branches(module) == 2
    both_used = [*nodes, node("Mul", "y z", "p"), node("ReduceSum", "p", "q")]
    assert branches(read(model_of(both_used, XNT, ["q"]))) == 3


def test_branches_of_different_ranks_in_a_branch_and_in_a_loop() -> None:
    """Each within its own scope; the condition of the loop's is that of the step."""
    inner = body("inner", [*squeezed("x", -1, "r"), node("Exp", "r", "e"), *restored("e", 2, "z")], ["z"])
    model = model_of(
        [choose("c", ["y"], inner, body("o", [node("Neg", "x", "o")], ["o"]))], {"c": (BOOL, []), **XNT}, ["y"]
    )
    assert branches(agree(model, *(feed for x in sized(1, 2) for feed in both(**x)))) == 2
    then = body("then", [node("ReduceSum", "row", "t", keepdims=1)], ["t"])
    otherwise = body("else", [node("Unsqueeze", "row last", "u")], ["u"])
    nodes = [
        node("ReduceSum", "row", "s", keepdims=0),
        node("Greater", "s zero", "p"),
        choose("p", ["r"], then, otherwise),
        *restored("r", 1, "f"),
        node("Add", "h f", "n"),
        node("ReduceSum", "n", "m", keepdims=0),
    ]
    infos = [helper.make_tensor_value_info("h", FLOAT, [4, 1]), helper.make_tensor_value_info("row", FLOAT, [4])]
    step = helper.make_graph(nodes, "step", infos, [helper.make_empty_tensor_value_info(n) for n in ("n", "m")])
    scan = helper.make_node("Scan", ["h0", "x"], ["end", "y"], body=step, num_scan_inputs=1)
    inputs = {"h0": (FLOAT, [4, 1]), "x": (FLOAT, ["n", 4])}
    model = model_of([scan], inputs, ["end", "y"], zero=np.array(0, np.float32), last=np.array([-1]))
    assert branches(agree(model, *({"h0": rand(4, 1), "x": rand(n, 4)} for n in (1, 12)))) == 1


def chain(count: int) -> ModelProto:
    """A tensor that each of so many Ifs may give another dimension."""
    nodes = []
    for n in range(count):
        then = body(f"a{n}", [node("Unsqueeze", f"r{n} last", f"u{n}")], [f"u{n}"])
        otherwise = body(f"b{n}", [node("Identity", f"r{n}", f"i{n}")], [f"i{n}"])
        nodes += [choose("c", [f"r{n + 1}"], then, otherwise)]
    inputs = {"c": (BOOL, []), "r0": (FLOAT, [3])}
    return model_of([*nodes, node("Reshape", f"r{count} last", "y")], inputs, ["y"], last=np.array([-1]))


def test_nodes_behind_branches_of_different_ranks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each such branch doubles what follows."""
    agree(chain(3), *both(r0=rand(3)))
    with pytest.raises(UserError, match="more than 20 such Ifs depend on each other"):
        read(chain(100))
    monkeypatch.setattr(differing, "MOST_COPIED", 500)
    with pytest.raises(UserError, match="these are more than 500 nodes"):
        read(chain(12))


def test_branches_of_branches_are_read_once() -> None:
    """Twenty levels are some sixty nodes. Where each level was read twice, they would be a million."""
    inner = body("p0", [node("Neg", "x", "p0")], ["p0"])
    for n in range(1, 20):
        other = body(f"q{n}", [node("Exp", "x", f"q{n}")], [f"q{n}"])
        inner = body(f"p{n}", [choose("c", [f"r{n}"], inner, other)], [f"r{n}"])
    last = body("last", [node("Abs", "x", "z")], ["z"])
    model = model_of([choose("c", ["y"], inner, last)], {"c": (BOOL, []), "x": (FLOAT, [3])}, ["y"])
    module = read(from_bytes(model.SerializeToString(), limits=Limits(nodes=100)))
    for taken in (True, False):
        (found,) = evaluate(module, {"c": np.array(taken), "x": np.array([1, -2, 3], np.float32)}).values()
        np.testing.assert_array_equal(found, [-1, 2, -3] if taken else [1, 2, 3])
