"""If by a condition from data: one branch runs, and gives what the reference of ONNX gives, whatever the other is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from tilewright.frontends.onnx.branches import differing
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
    assert branches(read(model_of(both_used, XNT, ["q"]))) == 2


def test_a_node_that_takes_what_branches_of_different_ranks_give_is_read_in_both() -> None:
    """How many sizes there are differs as well, up to their sum."""
    nodes = [*squeezed("x", -1, "r"), *squeezed("x", 0, "s"), node("Shape", "r", "a"), node("Shape", "s", "b")]
    nodes += [node("Concat", "a b", "c", axis=0), node("ReduceSum", "c", "d", keepdims=0), node("Size", "c", "e")]
    assert branches(agree(model_of(nodes, XNT, ["d", "e"]), *sized(1, 2))) == 3


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


def test_an_if_of_different_ranks_in_a_branch_that_is_taken() -> None:
    """What follows the If around runs inside of it, also where two of them are in one branch."""
    no = body("no", [node("Neg", "x", "no1"), node("Neg", "x", "no2")], ["no1", "no2"])
    yes = body("yes", [*squeezed("x", -1, "r"), node("Exp", "r", "e"), node("Sqrt", "w", "s")], ["e", "s"])
    known = {"yes": np.array(True), "w": rand(1, 1, 4) + 2}
    around = [choose("yes", ["a", "b"], yes, no), *restored("a", 2, "y"), node("Mul", "b b", "z")]
    module = agree(model_of(around, XNT, ["y", "z"], **known), *sized(1, 2))
    assert branches(module) == 1
    deeper = body("deeper", [choose("yes", ["d1", "d2"], yes, no)], ["d1", "d2"])
    around[0] = choose("yes", ["a", "b"], deeper, no)
    assert branches(agree(model_of(around, XNT, ["y", "z"], **known), *sized(1, 2))) == 1
    two = body("two", [*squeezed("x", -1, "r"), *squeezed("x", 0, "s")], ["r", "s"])
    around = [choose("yes", ["a", "b"], two, no), *restored("a", 2, "y"), *restored("b", 2, "z")]
    assert branches(agree(model_of(around, XNT, ["y", "z"], **known), *sized(1, 2))) == 2


def chain(count: int, *, restored: bool = False) -> ModelProto:
    """A tensor that each of so many Ifs may give another dimension, as a condition from its elements says; `restored`
    to two dimensions after each."""
    nodes = []
    for n in range(count):
        then = body(f"a{n}", [node("Unsqueeze", f"r{n} last", f"u{n}")], [f"u{n}"])
        otherwise = body(f"b{n}", [node("Identity", f"r{n}", f"i{n}")], [f"i{n}"])
        to = f"o{n}" if restored else f"r{n + 1}"
        nodes += [node("ReduceMax", f"r{n}", f"m{n}", keepdims=0), node("Greater", f"m{n} limit", f"c{n}")]
        nodes += [choose(f"c{n}", [to], then, otherwise), *([node("Reshape", f"{to} two", f"q{n}")] * restored)]
        nodes += [node("Sub", f"q{n} limit", f"r{n + 1}")] * restored
    held = {
        "limit": np.array(0.25, np.float32),
        "last": np.array([-1]),
        **({"two": np.array([-1, 3])} if restored else {}),
    }
    end = [] if restored else [node("Reshape", f"r{count} last", "y")]
    return model_of([*nodes, *end], {"r0": (FLOAT, [2, 3])}, [f"r{count}" if restored else "y"], **held)


def test_nodes_behind_branches_of_different_ranks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each such branch doubles what follows, until all that is used later has one type again."""
    agree(chain(3), {"r0": rand(2, 3)}, {"r0": -(rand(2, 3) ** 2)})
    monkeypatch.setattr(differing, "MOST_COPIED", 500)
    with pytest.raises(UserError, match="these are more than 500 nodes"):
        read(chain(100))


def test_branches_of_different_ranks_one_after_the_other_cost_what_each_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differing, "MOST_COPIED", 6 * 40)
    assert branches(agree(chain(40, restored=True), {"r0": rand(2, 3)}, {"r0": -(rand(2, 3) ** 2)})) == 40


def test_a_condition_is_known_in_its_branches() -> None:
    inner = choose(
        "c", ["z"], body("a", [node("Neg", "x", "a")], ["a"]), body("b", [node("ReduceSum", "x", "b")], ["b"])
    )
    then = body("then", [inner, node("MatMul", "z w", "m")], ["m"])
    otherwise = body("else", [node("Not", "c", "d"), choose("d", ["e"], then, then)], ["e"])
    model = model_of([choose("c", ["y"], then, otherwise)], {"c": (BOOL, [1]), "x": (FLOAT, ["n", 4])}, ["y"], w=W)
    module = read(model)
    assert branches(module) == 1
    (found,) = evaluate(module, {"c": np.array([True]), "x": rand(3, 4)}).values()
    np.testing.assert_allclose(found, -rand(3, 4) @ W, rtol=1e-5)


@pytest.mark.parametrize("ranks", [False, True])
def test_branches_of_branches_are_read_once(ranks: bool) -> None:
    """Twenty levels are some eighty nodes. Where each level was read twice, they would be a million."""
    nodes, result = [node("Neg", "x", "s0")], "s0"
    for n in range(1, 20):
        inner = body(f"p{n}", nodes, [result])
        other = body(f"q{n}", [node("Unsqueeze", "x zero", f"q{n}") if ranks else node("Exp", "x", f"q{n}")], [f"q{n}"])
        chosen, result = choose(f"i{n}", [f"s{n}"], inner, other), f"r{n}"
        nodes = [node("Gather", f"c at{n}", f"i{n}"), chosen, node("Reshape", f"s{n} flat", result)]
    held = {f"at{n}": np.array(n) for n in range(1, 20)}
    inputs = {"c": (BOOL, [20]), "x": (FLOAT, [3])}
    model = model_of(nodes, inputs, [result], **held, flat=np.array([-1]), **({"zero": np.array([0])} if ranks else {}))
    module = read(from_bytes(model.SerializeToString(), limits=Limits(nodes=150)))
    x = np.array([1, -2, 3], np.float32)
    other_branch = x if ranks else np.exp(x)
    for conditions in (np.ones(20, bool), np.arange(20) != 19, np.arange(20) != 4):
        (found,) = evaluate(module, {"c": conditions, "x": x}).values()
        np.testing.assert_allclose(found, -x if conditions.all() else other_branch, rtol=1e-6)


def calling_functions(depth: int, *, sizes: bool = False) -> ModelProto:
    """Functions whose branches call the next one: of what they take, and of something else, of another size if
    `sizes`."""
    other = node("Concat", "x x", "n", axis=0) if sizes else node("Neg", "x", "n")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    last = [node("MatMul", "x w", "m"), node("Add", "m x", "y")]
    functions = [helper.make_function("f", "f0", ["x", "c", "w"], ["y"], last, opsets)]
    for n in range(1, depth):
        call = [helper.make_node(f"f{n - 1}", [x, "c", "w"], [y], domain="f") for x, y in (("x", "a"), ("n", "b"))]
        otherwise = body("else", [other, call[1]], ["b"])
        nodes = [
            node("Constant", "", "at", value_int=n),
            node("Gather", "c at", "is"),
            choose("is", ["z"], body("then", call[:1], ["a"]), otherwise),
            node("Exp", "z", "y"),
        ]
        functions.append(helper.make_function("f", f"f{n}", ["x", "c", "w"], ["y"], nodes, opsets))
    graph = helper.make_graph(
        [helper.make_node(f"f{depth - 1}", ["x", "c", "w"], ["y"], domain="f")],
        "g",
        [helper.make_tensor_value_info(*info) for info in (("c", BOOL, [depth]), ("x", FLOAT, ["n", 4]))],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(rand(4, 4) / 8, "w")],
    )
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


@pytest.mark.parametrize("sizes", [False, True])
def test_functions_that_both_branches_end_with_are_called_once(sizes: bool) -> None:
    model = calling_functions(4, sizes=sizes)
    x = (rand(3, 4) - 1) / 8
    agree(model, *({"c": np.array([0, a, b, a], bool), "x": x} for a in (0, 1) for b in (0, 1)))
    deep = calling_functions(20, sizes=sizes)
    assert branches(read(from_bytes(deep.SerializeToString(), limits=Limits(nodes=300)))) == (19 if sizes else 0)


def test_functions_that_branches_do_not_end_with_are_bounded() -> None:
    """Each is called by both branches of the one around it, and something follows."""
    model = calling_functions(20)
    for function in model.functions:
        for chosen in (n for n in function.node if n.op_type == "If"):
            then = next(a.g for a in chosen.attribute if a.name == "then_branch")
            then.node.append(node("Relu", "a", "r"))
            then.output[0].name = "r"
    with pytest.raises(UserError, match="more than 2,000"):
        read(from_bytes(model.SerializeToString(), limits=Limits(nodes=2000)))


def known_around(then: GraphProto, otherwise: GraphProto, *after: NodeProto, outputs: str = "y") -> ModelProto:
    """An If that takes its first branch, as the rank of an input says, and nodes after it."""
    nodes = [
        node("Shape", "x", "s"),
        node("Size", "s", "rank"),
        node("Equal", "rank one", "known"),
        choose("known", outputs.split(), then, otherwise),
        *after,
    ]
    inputs = {"c": (BOOL, []), "x": (FLOAT, [1])}
    return model_of(nodes, inputs, ["r"], one=np.array(1), two=np.array([2], np.float32))


def differing_inside(name: str) -> GraphProto:
    """A branch that holds an If whose branches give a scalar and a vector, and a constant of its own."""
    inner = choose("c", ["z"], body("t", [node("Squeeze", "x", "a")], ["a"]), body("e", [node("Neg", "x", "b")], ["b"]))
    return body(name, [node("Add", "x k", "w"), inner, node("Mul", "z w", "v")], ["z"], k=np.array([3], np.float32))


FEEDS = [{"c": np.array(c), "x": np.array([5], np.float32)} for c in (True, False)]


def test_what_stays_open_in_a_branch_that_is_known_does_so_behind_it() -> None:
    """The results differ in rank; what follows the outer If makes them alike."""
    other = body("other", [node("Exp", "x", "o")], ["o"])
    model = known_around(differing_inside("known"), other, node("Add", "y two", "q"), node("Exp", "q", "r"))
    assert branches(agree(model, *FEEDS)) == 1


def test_branches_in_branches_that_are_known_stay_open_too() -> None:
    outer = body(
        "outer", [choose("known", ["p"], differing_inside("i"), body("j", [node("Exp", "x", "o")], ["o"]))], ["p"]
    )
    other = body("other", [node("Exp", "x", "o2")], ["o2"])
    agree(known_around(outer, other, node("Add", "y two", "r")), *FEEDS)


def test_names_of_branches_that_are_known_are_their_own() -> None:
    """Two such branches use the same names, one of them names a value of its own as another result of the If, and a
    later node defines a name of theirs again."""
    first = body("first", [node("Neg", "x", "a"), node("Exp", "a", "b")], ["a", "b"])
    swapped = body("swapped", [node("Neg", "p", "a"), node("Exp", "a", "u"), node("Add", "u a", "t")], ["t", "u"])
    other = body("other", [node("Exp", "x", "o")], ["o", "o"])
    again = choose("known", ["u", "t"], swapped, other)
    model = known_around(first, other, again, node("Mul", "x two", "a"), node("Sub", "u t", "d"),
                         node("Add", "d a", "e"), node("Add", "e q", "r"), outputs="p q")  # fmt: skip
    agree(model, *FEEDS)


def test_names_of_a_branch_that_is_known_mean_nothing_behind_it() -> None:
    branch = body("branch", [node("Neg", "x", "a"), node("Exp", "a", "b")], ["b"])
    with pytest.raises(UserError, match="'a' is not defined"):
        read(known_around(branch, branch, node("Add", "y a", "r")))
