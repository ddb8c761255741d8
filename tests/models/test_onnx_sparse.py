"""Sparse initializers and constants: dense constants, or refused before memory is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, SparseTensorProto, TensorProto, checker, helper, numpy_helper

import tilewright as tw
from tilewright.frontends.onnx.file import from_proto
from tilewright.frontends.onnx.importer import read
from tilewright.frontends.onnx.limits import Limits
from tilewright.graph.evaluate import evaluate
from tilewright.report.errors import UserError

Array = np.ndarray[Any, Any]


def sparse_of(array: Array, coordinates: bool = False) -> SparseTensorProto:
    """The elements of an array that are not zero."""
    places = np.flatnonzero(array)
    indices = np.argwhere(array) if coordinates else places
    return sparse(list(array.shape), array.reshape(-1)[places], indices)


def sparse(dims: list[int], values: Array, indices: Array) -> SparseTensorProto:
    return helper.make_sparse_tensor(numpy_helper.from_array(values, "w"), numpy_helper.from_array(indices, "i"), dims)


def model_of(graph: Any) -> ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def untyped(name: str) -> Any:
    return helper.make_empty_tensor_value_info(name)


def initializer(given: SparseTensorProto) -> ModelProto:
    """x @ w."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", min(max(given.dims[0], 1), 64)])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [untyped("y")])
    graph.sparse_initializer.append(given)
    return model_of(graph)


def constant(given: SparseTensorProto) -> ModelProto:
    """The sum of it and x, of one element."""
    x = helper.make_tensor_value_info("x", given.values.data_type, [])
    nodes = [helper.make_node("Constant", [], ["c"], sparse_value=given), helper.make_node("Add", ["c", "x"], ["y"])]
    return model_of(helper.make_graph(nodes, "g", [x], [untyped("y")]))


def some_weights(rows: int, columns: int) -> Array:
    random = np.random.default_rng(rows)
    return np.where(random.random((rows, columns)) < 0.2, random.random((rows, columns)) - 0.5, 0).astype(np.float32)


@pytest.mark.parametrize("coordinates", [False, True])
def test_initializers_are_the_dense_ones(coordinates: bool) -> None:
    w, x = some_weights(24, 40), np.random.default_rng(0).random((3, 24), np.float32)
    model = initializer(sparse_of(w, coordinates))
    (evaluated,) = evaluate(read(model), {"x": x}).values()
    np.testing.assert_allclose(evaluated, x @ w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tw.compile(model)(x)[0], x @ w, rtol=1e-5, atol=1e-6)


def test_initializers_of_branches() -> None:
    w = some_weights(4, 5)
    then = helper.make_graph([helper.make_node("Relu", ["w"], ["t"])], "then", [], [untyped("t")])
    then.sparse_initializer.append(sparse_of(w))
    otherwise = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "else", [], [untyped("o")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 5])
    exe = tw.compile(model_of(helper.make_graph([node], "g", [c, x], [untyped("y")])))
    ones = np.ones((4, 5), np.float32)
    np.testing.assert_array_equal(exe(np.array(True), ones)[0], np.maximum(w, 0))
    np.testing.assert_array_equal(exe(np.array(False), ones)[0], ones)


@pytest.mark.parametrize("coordinates", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(), (7,), (0, 3), (2, 3, 4)])
def test_constants_of_any_shape(shape: tuple[int, ...], dtype: type, coordinates: bool) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 3 + (shape == ())).astype(dtype).reshape(shape)
    made = tw.compile(constant(sparse_of(array, coordinates)))(np.array(1, dtype))[0]
    assert made.dtype == array.dtype
    np.testing.assert_array_equal(made, array + np.array(1, dtype))


ONE, TWO = np.ones(1, np.float32), np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("dims", "values", "indices", "why"),
    [
        ([4, 4], TWO, np.array([3, 3]), "index 1, [3], is there twice"),
        ([4, 4], TWO, np.array([3, 2]), "index 1, [2], comes after a greater one"),
        ([4, 4], TWO, np.array([-1, 2]), "index 0 is [-1], outside of [4, 4]"),
        ([4, 4], TWO, np.array([1, 16]), "index 1 is [16], outside of [4, 4]"),
        ([4, 4], TWO, np.array([[0, 1], [1, 4]]), "index 1 is [1, 4], outside of [4, 4]"),
        ([4, 4], TWO, np.array([[0, -1], [1, 0]]), "index 0 is [0, -1], outside of [4, 4]"),
        ([4, 4], TWO, np.array([[1, 1], [0, 1]]), "index 1, [0, 1], comes after a greater one"),
        ([4, 4], TWO, np.array([1]), "they are of shape [1], for 2 values in 2 dimensions"),
        ([4, 4], TWO, np.array([[1], [2]]), "they are of shape [2, 1], for 2 values in 2 dimensions"),
        ([4, 4], TWO, np.array([1, 2], np.int32), "they are int32, not int64"),
        ([4, 4], TWO.reshape(2, 1), np.array([1, 2]), "they have 2 dimensions, not 1"),
        ([4, -4], ONE, np.array([1]), "its shape is [4, -4]: a dimension is negative"),
        ([1] * 33, ONE, np.array([0]), "it has 33 dimensions, more than 32"),
        ([0, 1 << 62], ONE, np.array([[0, 0]]), "index 0 is [0, 0], outside of [0, 4611686018427387904]"),
        ([1 << 40, 1 << 40], ONE, np.array([5]), f"made dense they are {1 << 82} bytes"),
        ([1 << 14, 1 << 14, 2], ONE, np.array([5]), f"made dense they are {1 << 31} bytes"),
    ],
)
def test_what_is_no_sparse_tensor(dims: list[int], values: Array, indices: Array, why: str) -> None:
    for make in (initializer, constant):
        with pytest.raises(UserError) as caught:
            tw.compile(make(sparse(dims, values, indices)))
        assert why in str(caught.value) and "sparse tensor 'w'" in str(caught.value)


@pytest.mark.parametrize(
    "indices",
    [[0, 15], [3, 3], [3, 2], [-1, 2], [1, 16], [[0, 1], [1, 0]], [[0, 1], [1, 4]], [[1, 1], [0, 1]], [[1, 1]]],
)
def test_indices_are_right_where_the_checker_of_onnx_says_so(indices: list[Any]) -> None:
    given, is_right = sparse([4, 4], TWO, np.array(indices)), True
    try:
        checker.check_sparse_tensor(given)
    except checker.ValidationError:
        is_right = False
    if is_right:
        read(constant(given))
        return
    with pytest.raises(UserError, match="wrong indices"):
        read(constant(given))


def test_sizes_are_bounded_together() -> None:
    """Two tensors that are small enough alone; a higher limit takes them."""
    w = some_weights(24, 24)
    model = initializer(sparse_of(w))
    model.graph.sparse_initializer.append(sparse_of(w))
    model.graph.sparse_initializer[1].values.name = "v"
    model.graph.node.insert(0, helper.make_node("MatMul", ["x", "v"], ["h"]))
    model.graph.node[1].input[0] = "h"
    read(from_proto(model, limits=Limits(dense_bytes=2 * w.nbytes)))
    with pytest.raises(UserError, match=f"made dense they are {2 * w.nbytes} bytes up to this one, past dense_bytes"):
        read(from_proto(model, limits=Limits(dense_bytes=2 * w.nbytes - 1)))
