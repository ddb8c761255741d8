"""ONNX operators that the project's own suite leaves out: older versions, symbolic shapes, sizes from data, functions.

Expected values come from ONNX's reference evaluator, or are written out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tilewright.core.walk import preorder
from tilewright.frontends.onnx.importer import read
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.report.errors import RuntimeFault, UserError

Array = np.ndarray[Any, Any]


def build(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[Any, Sequence[int | str]]],
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, Array] | None = None,
    opset: int = 21,
) -> ModelProto:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, (dtype, shape) in inputs.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    initializers = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", infos, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def check(model: ModelProto, feeds: Mapping[str, Array]) -> Module:
    """Reads the model, compares all results with the reference, and gives the module."""
    module = read(model)
    results = evaluate(module, feeds)
    expected = ReferenceEvaluator(model).run(None, dict(feeds))
    for name, want in zip(results, expected, strict=True):
        assert results[name].dtype == want.dtype
        np.testing.assert_allclose(results[name], want, rtol=1e-5, atol=1e-6)
    return module


def ops_of(module: Module) -> list[str]:
    return [node.op.name for node in module.graph.nodes]


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def ramp(*shape: int) -> Array:
    return np.linspace(-2, 3, int(np.prod(shape)), dtype=np.float32).reshape(shape)


X = ramp(2, 3, 4)

OLD = {
    "Squeeze": (1, {"axes": [1]}, ramp(2, 1, 3)),
    "Unsqueeze": (1, {"axes": [0, 3]}, ramp(2, 3)),
    "ReduceSum": (11, {"axes": [-1], "keepdims": 0}, X),
    "ReduceMean": (13, {"axes": [0, 2]}, X),
    "Softmax": (11, {"axis": 1}, X),
    "LogSoftmax": (11, {"axis": 1}, X),
    "Hardmax": (11, {"axis": 1}, X),
    "Slice": (9, {"starts": [-3, 1], "ends": [9, -1], "axes": [2, 1]}, X),
    "Clip": (6, {"min": -0.5, "max": 1.0}, X),
    "Pad": (2, {"pads": [0, 1, 0, 0, 0, 2], "mode": "edge"}, X),
    "Dropout": (7, {"ratio": 0.3}, X),
    "Cast": (9, {"to": TensorProto.INT32}, X),
}


@pytest.mark.parametrize("op", OLD)
def test_an_older_version_reads_its_attributes(op: str) -> None:
    opset, attributes, x = OLD[op]
    model = build([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": (np.float32, x.shape)}, opset=opset)
    module = read(model)
    (got,) = evaluate(module, [x]).values()
    np.testing.assert_allclose(got, expected_of_old(op, x), rtol=1e-6, atol=1e-7)


def expected_of_old(op: str, x: Array) -> Array:
    """What the old version says, in NumPy."""
    flat = x.reshape(x.shape[0], -1)
    e = np.exp(flat - flat.max(1, keepdims=True))
    match op:
        case "Squeeze":
            return x.squeeze(1)
        case "Unsqueeze":
            return x[None, :, :, None]
        case "ReduceSum":
            return x.sum(-1)
        case "ReduceMean":
            return x.mean((0, 2), keepdims=True)
        case "Softmax":
            return (e / e.sum(1, keepdims=True)).reshape(x.shape)
        case "LogSoftmax":
            return np.log(e / e.sum(1, keepdims=True)).reshape(x.shape)
        case "Hardmax":
            return np.eye(flat.shape[1], dtype=x.dtype)[flat.argmax(1)].reshape(x.shape)
        case "Slice":
            return x[:, 1:-1, -3:]
        case "Clip":
            return x.clip(-0.5, 1.0)
        case "Pad":
            return np.pad(x, [(0, 0), (1, 0), (0, 2)], mode="edge")
        case "Cast":
            return x.astype(np.int32)
    return x


def test_split_and_top_k_of_old_versions() -> None:
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=2, split=[1, 3]),
        helper.make_node("TopK", ["b"], ["v", "i"], axis=2, k=2),
    ]
    results = evaluate(read(build(nodes, {"x": (np.float32, X.shape)}, ["a", "v", "i"], opset=9)), [X])
    np.testing.assert_array_equal(results["a"], X[..., :1])
    np.testing.assert_array_equal(results["v"], X[..., :1:-1])
    np.testing.assert_array_equal(results["i"], np.broadcast_to([2, 1], (2, 3, 2)))


def test_sizes_computed_from_a_shape_become_the_shape() -> None:
    """Shape → Gather → Mul → Concat → Reshape leaves the reshape, and the check that the product is exact."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Gather", ["s", "one"], ["m"]),
        helper.make_node("Mul", ["n", "m"], ["nm"]),
        helper.make_node("Unsqueeze", ["nm", "axes"], ["nm1"]),
        helper.make_node("Concat", ["nm1", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    constants = {"zero": np.array(0), "one": np.array(1), "axes": ints(0), "rest": ints(-1)}
    module = check(build(nodes, {"x": (np.float32, ["n", "m", 4])}, constants=constants), {"x": X})
    assert ops_of(module) == ["require", "reshape"]
    n, m = module.graph.symbols
    assert module.graph.results[0].type.shape == (n * m, module.graph.params[0].type.shape[2])


def test_a_size_that_went_through_floats_stays_an_integer() -> None:
    """The sizes that exporters compute for an upsampling: cast, multiply, floor, cast."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "two", "four"], ["hw"]),
        helper.make_node("Slice", ["s", "zero", "two"], ["nc"]),
        helper.make_node("Cast", ["hw"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "scale"], ["g"]),
        helper.make_node("Floor", ["g"], ["h"]),
        helper.make_node("Cast", ["h"], ["i"], to=TensorProto.INT64),
        helper.make_node("Concat", ["nc", "i"], ["t"], axis=0),
        helper.make_node(
            "Resize", ["x", "", "", "t"], ["y"], mode="linear", coordinate_transformation_mode="half_pixel"
        ),
    ]
    constants = {"zero": ints(0), "two": ints(2), "four": ints(4), "scale": np.array([2, 3], np.float32)}
    model = build(nodes, {"x": (np.float32, ["n", 2, "h", "w"])}, constants=constants)
    module = check(model, {"x": ramp(1, 2, 3, 5)})
    _, h, w = module.graph.symbols
    assert module.graph.results[0].type.shape[2:] == (h * 2, w * 3)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_one_module_serves_every_batch(rows: int) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "v"], ["y"], transB=1),
    ]
    constants = {"w": ramp(4, 2, 3, 3), "v": ramp(5, 4)}
    module = read(build(nodes, {"x": (np.float32, ["n", 2, "h", "w"])}, constants=constants))
    x = ramp(rows, 2, 5, 6)
    (y,) = evaluate(module, [x]).values()
    assert y.shape == (rows, 5)
    if rows:
        (want,) = ReferenceEvaluator(build(nodes, {"x": (np.float32, x.shape)}, constants=constants)).run(
            None, {"x": x}
        )
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


def test_weights_are_not_copied() -> None:
    w = ramp(64, 64)
    model = build([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (np.float32, [2, 64])}, constants={"w": w})
    (constant,) = read(model).constants.values()
    assert not constant.flags.owndata
    np.testing.assert_array_equal(constant, w)


@pytest.mark.parametrize("shape", [(2, 6), (-1, 3), (0, -1, 2)])
def test_a_shape_from_data_is_bound_at_run_time(shape: tuple[int, ...]) -> None:
    model = build(
        [helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": (np.float32, [2, 6]), "s": (np.int64, [len(shape)])}
    )
    check(model, {"x": ramp(2, 6), "s": ints(*shape)})


def test_a_shape_from_data_that_does_not_fit_fails_at_run_time() -> None:
    model = build([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": (np.float32, [2, 6]), "s": (np.int64, [2])})
    with pytest.raises(RuntimeFault):
        evaluate(read(model), [ramp(2, 6), ints(5, 2)])


@pytest.mark.parametrize("axes", [(0,), (-1,), (2, 0), (1, -1), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_reduction_over_axes_from_data(axes: tuple[int, ...], keepdims: int) -> None:
    node = helper.make_node("ReduceSum", ["x", "a"], ["y"], keepdims=keepdims)
    model = build([node], {"x": (np.float32, ["n", 3, "m"]), "a": (np.int64, [len(axes)])})
    check(model, {"x": X, "a": ints(*axes)})


def test_axes_from_data_must_be_different() -> None:
    model = build([helper.make_node("ReduceSum", ["x", "a"], ["y"])], {"x": (np.float32, [2, 3]), "a": (np.int64, [2])})
    with pytest.raises(RuntimeFault):
        evaluate(read(model), [ramp(2, 3), ints(1, -1)])


@pytest.mark.parametrize("axes", [(), (0,), (-1,), (0, 2), (3, -4), (1, -1, 3)])
def test_dimensions_are_added_and_removed_by_axes_from_data(axes: tuple[int, ...]) -> None:
    inputs = {"x": (np.float32, ["n", 3]), "a": (np.int64, [len(axes)])}
    nodes = [helper.make_node("Unsqueeze", ["x", "a"], ["u"]), helper.make_node("Squeeze", ["u", "a"], ["y"])]
    check(build(nodes, inputs, ["u", "y"]), {"x": ramp(4, 3), "a": ints(*axes)})


@pytest.mark.parametrize(
    ("op", "shape", "axes"), [("Unsqueeze", [2], [-4, 0]), ("Squeeze", [1, 2], [1]), ("Squeeze", [1], [1])]
)
def test_axes_from_data_are_checked(op: str, shape: list[int], axes: list[int]) -> None:
    inputs = {"x": (np.float32, shape), "a": (np.int64, [len(axes)])}
    module = read(build([helper.make_node(op, ["x", "a"], ["y"])], inputs))
    with pytest.raises(RuntimeFault):
        evaluate(module, [ramp(*shape), ints(*axes)])


@pytest.mark.parametrize(
    ("op", "rank", "count", "why"),
    [
        ("Unsqueeze", 2, 255, "there are 255 axes; a tensor has at most 32 dimensions"),
        ("Unsqueeze", 2, 31, "the result has 33 dimensions; a tensor has at most 32 dimensions"),
        ("Squeeze", 2, 3, "3 of 2 dimensions are left out"),
        ("ReduceSum", 2, 3, "there are 3 axes of 2 dimensions"),
    ],
)
def test_more_axes_than_a_tensor_may_have(op: str, rank: int, count: int, why: str) -> None:
    """They are refused while the model is read: what each of them names would be an expression of its own."""
    inputs = {"x": (np.float32, [1] * rank), "a": (np.int64, [count])}
    with pytest.raises(UserError, match=why):
        read(build([helper.make_node(op, ["x", "a"], ["y"])], inputs))


def test_a_result_has_as_many_dimensions_as_a_tensor_may_have() -> None:
    node = helper.make_node("Unsqueeze", ["x", "a"], ["y"])
    inputs = {"x": (np.float32, [2, 3])}
    assert read(build([node], inputs, constants={"a": np.arange(30)})).graph.results[0].type.rank == 32
    with pytest.raises(UserError, match="the result has 33 dimensions; a tensor has at most 32"):
        read(build([node], inputs, constants={"a": np.arange(31)}))


def test_many_axes_from_data_make_small_expressions() -> None:
    inputs = {"x": (np.float32, [2, 3]), "a": (np.int64, [30])}
    module = read(build([helper.make_node("Unsqueeze", ["x", "a"], ["y"])], inputs))
    assert len(list(preorder(module.graph.results[0].type.shape))) < 12 * 32


BOUNDS = [(0, 2, 1), (-2, 9, 1), (9, -9, -1), (3, 0, -2), (2, 2, 1), (-1, -(2**63) + 1, -1), (0, 2**63 - 1, 3)]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("known", [True, False])
def test_slices_clamp_their_bounds(bounds: tuple[int, int, int], known: bool) -> None:
    start, end, step = (ints(b) for b in bounds)
    feeds = {"x": X}
    given = {"s": start, "e": end, "a": ints(-1), "t": step}
    inputs = {"x": (np.float32, ["n", 3, "m"])}
    if not known:
        feeds |= given
        inputs |= {name: (np.int64, [1]) for name in given}
    model = build([helper.make_node("Slice", ["x", *given], ["y"])], inputs, constants=given if known else {})
    check(model, feeds)


@pytest.mark.parametrize("known", [True, False])
def test_an_if_takes_its_branch(known: bool) -> None:
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["x", "x"], [f"{op}_out"])],
            op,
            [],
            [helper.make_empty_tensor_value_info(f"{op}_out")],
        )
        for name, op in (("then_branch", "Add"), ("else_branch", "Mul"))
    }
    inputs: dict[str, tuple[Any, Sequence[int | str]]] = {"x": (np.float32, ["n"])}
    if not known:
        inputs["c"] = (np.bool_, [])
    constants = {"c": np.array(False)} if known else {}
    model = build([helper.make_node("If", ["c"], ["y"], **branches)], inputs, constants=constants)
    for value in (False,) if known else (False, True):
        feeds = {"x": ramp(4)} if known else {"x": ramp(4), "c": np.array(value)}
        module = check(model, feeds)
        assert ("add" in ops_of(module)) is not known


def test_a_loop_with_a_constant_trip_count_is_unrolled() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "x"], ["next"]),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["next", "f"], ["seen"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, ["n"]),
        ],
        [helper.make_empty_tensor_value_info(n) for n in ("c", "next", "seen")],
    )
    node = helper.make_node("Loop", ["trips", "", "x"], ["y", "z"], body=body)
    model = build([node], {"x": (np.float32, ["n"])}, ["y", "z"], {"trips": ints(3).reshape(())})
    results = evaluate(read(model), [ramp(4)])
    np.testing.assert_allclose(results["y"], ramp(4) * 4, rtol=1e-6)
    np.testing.assert_allclose(results["z"], [ramp(4) * k * (k + 2) for k in range(3)], rtol=1e-6)


def test_a_function_of_the_model_is_expanded() -> None:
    function = helper.make_function(
        "own",
        "Scaled",
        ["a", "b"],
        ["c"],
        [
            helper.make_node("Constant", [], ["k"]),
            helper.make_node("Mul", ["a", "k"], ["m"]),
            helper.make_node("Clip", ["m", "b"], ["c"]),
        ],
        [helper.make_opsetid("", 21)],
        ["factor"],
    )
    function.node[0].attribute.add(name="value_float", ref_attr_name="factor", type=1)
    nodes = [
        helper.make_node("Scaled", ["x", "low"], ["z"], domain="own", factor=2.0),
        helper.make_node("Scaled", ["z"], ["y"], domain="own", factor=-3.0),
    ]
    model = build(nodes, {"x": (np.float32, ["n"])}, constants={"low": np.array(-1, np.float32)})
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.append(function)
    (y,) = evaluate(read(model), [ramp(5)]).values()
    np.testing.assert_allclose(y, np.maximum(ramp(5) * 2, -1) * -3, rtol=1e-6)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_stop_at_each_sequence_s_length(op: str, direction: str) -> None:
    """A shorter sequence gives what it gives alone, zeros behind it."""
    gates, both = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 1 + (direction == "bidirectional")
    constants = {
        "w": ramp(both, gates * 3, 2),
        "r": ramp(both, gates * 3, 3)[::, ::-1] * 0.3,
        "b": ramp(both, gates * 6),
        "l": np.array([4, 2], np.int32),
    }
    node = helper.make_node(op, ["x", "w", "r", "b", "l"], ["y", "h"], hidden_size=3, direction=direction)
    whole = evaluate(read(build([node], {"x": (np.float32, [4, 2, 2])}, ["y", "h"], constants)), [ramp(4, 2, 2)])
    del node.input[-1]
    constants.pop("l")
    short = evaluate(
        read(build([node], {"x": (np.float32, [2, 1, 2])}, ["y", "h"], constants)), [ramp(4, 2, 2)[:2, 1:]]
    )
    np.testing.assert_allclose(whole["y"][:2, :, 1:], short["y"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(whole["h"][:, 1:], short["h"], rtol=1e-6, atol=1e-7)
    assert not whole["y"][2:, :, 1].any()


def test_unique_in_order_of_appearance() -> None:
    x = np.array([3, 1, 3, 2, 1, 3], np.float32)
    node = helper.make_node("Unique", ["x"], ["y", "i", "v", "c"], sorted=0)
    module = read(build([node], {"x": (np.float32, ["n"])}, ["y", "i", "v", "c"]))
    results = evaluate(module, [x])
    expected = {"y": [3, 1, 2], "i": [0, 1, 3], "v": [0, 1, 0, 2, 1, 0], "c": [3, 2, 1]}
    for name, want in expected.items():
        np.testing.assert_array_equal(results[name], want)
    assert all(array.shape == (0,) for array in evaluate(module, [x[:0]]).values())


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("target", [(3, 3), (7, 10), (2, 5)])
def test_resize_with_a_symbolic_image(mode: str, target: tuple[int, int]) -> None:
    node = helper.make_node("Resize", ["x", "", "", "t"], ["y"], mode=mode, axes=[2, 3])
    model = build([node], {"x": (np.float32, ["n", 2, "h", "w"]), "t": (np.int64, [2])})
    check(model, {"x": ramp(1, 2, 4, 5), "t": ints(*target)})


@pytest.mark.parametrize(
    "equation", ["ij,jk,kl->il", "...ij,jk->...ik", "ii->i", "ij->", "bij,bjk", "i,j->ji", "ij,ij,ij->j"]
)
def test_einsum(equation: str) -> None:
    terms = equation.split("->")[0].split(",")
    shapes = [[{"b": 2, "i": 3, "j": 4, "k": 2, "l": 5}[c] for c in t.replace("...", "b")] for t in terms]
    if equation == "ii->i":
        shapes = [[3, 3]]
    names = [f"x{n}" for n in range(len(terms))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    model = build([node], {n: (np.float32, s) for n, s in zip(names, shapes, strict=True)})
    check(model, {n: ramp(*s) for n, s in zip(names, shapes, strict=True)})


@pytest.mark.parametrize("index", [5, -6])
def test_an_index_out_of_range_fails_at_run_time(index: int) -> None:
    model = build([helper.make_node("Gather", ["x", "i"], ["y"])], {"x": (np.float32, ["n", 2]), "i": (np.int64, [2])})
    with pytest.raises(RuntimeFault):
        evaluate(read(model), [ramp(5, 2), ints(0, index)])


def test_upsampling_of_old_versions_repeats_elements() -> None:
    x = ramp(1, 1, 2, 3)
    node = helper.make_node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0])
    (y,) = evaluate(read(build([node], {"x": (np.float32, ["n", 1, "h", "w"])}, opset=8)), [x]).values()
    np.testing.assert_array_equal(y, x.repeat(2, 2).repeat(3, 3))
