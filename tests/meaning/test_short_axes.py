"""Products and sums over axes of one element or of none, fixed, dynamic, and fixed by `dims`: the schedules have no
loops there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from compiled_once import compiled
from drawn import drawn
from tilewright.frontends.onnx import read
from tilewright.target import Target
from tilewright.target.host import current_host

Array = np.ndarray[Any, Any]
TARGETS = [
    t for t in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "native") if Target.parse(t).is_runnable_on(current_host())
]
LONG = 130
"""Longer than a panel of any target, and no multiple of one."""

TYPES = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.int32: TensorProto.INT32}
ROWS = (0, 1, 15, 16, 17, 40)


def model_of(
    op: str, inputs: Mapping[str, tuple[Any, Sequence[int | str]]], constants: Mapping[str, Array], **attributes: Any
) -> Any:
    """A model of one operator."""
    names = [*inputs, *(name for name in constants if name not in inputs)]
    ports = [helper.make_tensor_value_info(n, TYPES[t], shape) for n, (t, shape) in inputs.items()]
    kind = next(iter(inputs.values()))[0]
    result = [helper.make_tensor_value_info("y", TYPES[kind], None)]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "short", ports, result, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def values(shape: Sequence[int], kind: Any) -> Array:
    return (np.random.default_rng(0).standard_normal(shape) * 4).astype(kind)


@pytest.mark.parametrize(
    ("target", "kind", "transposed", "depth", "columns", "rows"),
    drawn(TARGETS, TYPES, [False, True], [0, 1], [64, LONG], ["m", 40]),
)
def test_products_of_few_terms(
    target: str, kind: Any, transposed: bool, depth: int, columns: int, rows: int | str
) -> None:
    """Rows that only the call knows, and as many as the model says."""
    b, c = values((depth, columns), kind), values((columns,), kind)
    given = np.ascontiguousarray(b.T if transposed else b)
    ports = {"a": (kind, (rows, depth)), "b": (kind, given.shape), "c": (kind, c.shape)}
    exe = tw.compile(model_of("Gemm", ports, {}, transB=int(transposed)), target=target)
    for m in ROWS if rows == "m" else (40,):
        a = values((m, depth), kind)
        np.testing.assert_allclose(exe(a, given, c)[0], a @ b + c, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "equation", ["ij,kj->ik", "ij,jk->ik", "bij,bkj->bik", "ij,ij->i", "ij,jk,kl->il", "ijk,ijk->j"]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_einsums_over_short_axes(equation: str, dynamic: bool) -> None:
    """Each axis empty, beside one of one element."""
    terms = equation.partition("->")[0].split(",")
    axes = sorted(set(equation) - set(",->"))
    for empty, single in zip(axes, [*axes[1:], axes[0]], strict=True):
        sizes = dict.fromkeys(axes, LONG) | {single: 1, empty: 0}
        arrays = {f"x{n}": values([sizes[axis] for axis in term], np.float32) for n, term in enumerate(terms)}
        shapes = {n: [*term] if dynamic else [sizes[a] for a in term] for n, term in zip(arrays, terms, strict=True)}
        model = model_of("Einsum", {n: (np.float32, s) for n, s in shapes.items()}, {}, equation=equation)
        expected = np.einsum(equation, *arrays.values())
        np.testing.assert_array_equal(tw.compile(model).run(arrays)["y"], expected)
        np.testing.assert_array_equal(tw.evaluate(read(model), arrays)["y"], expected)
        if dynamic:
            fixed = tw.compile(model, dims={empty: 0, single: 1})
            np.testing.assert_array_equal(fixed.run(arrays)["y"], expected)


SHAPES = ((0,), (3, 0), (0, 3), (2, 0, 130))
SUMS = ("ReduceSum", "ReduceProd", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")


@pytest.mark.parametrize(
    ("op", "along", "dynamic"), drawn(SUMS, [(s, n) for s in SHAPES for n in range(len(s))], [False, True])
)
def test_sums_over_empty_axes(op: str, along: tuple[tuple[int, ...], int], dynamic: bool) -> None:
    shape, axis = along
    x = values(shape, np.float32)
    given = [f"n{d}" for d in range(len(shape))] if dynamic else shape
    exe = tw.compile(model_of(op, {"x": (np.float32, given)}, {"axes": np.array([axis])}, keepdims=0))
    with np.errstate(divide="ignore"):
        meaning = {"ReduceProd": np.prod, "ReduceLogSum": lambda x, axis: np.log(np.sum(x, axis))}
        expected = meaning.get(op, np.sum)(x, axis=axis)
    np.testing.assert_array_equal(exe(x)[0], expected)


RESIZES = {
    "nearest": {"mode": "nearest"},
    "linear": {"mode": "linear"},
    "cubic": {"mode": "cubic", "exclude_outside": 1},
    "antialias": {"mode": "linear", "antialias": 1},
    "corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    "proportions": {"mode": "linear", "keep_aspect_ratio_policy": "not_larger"},
}


@pytest.mark.parametrize(("case", "height", "level"), drawn(RESIZES, [1, 4, 9], [0, 3]))
def test_resizing_to_sizes_a_dimension_that_is_fixed(case: str, height: int, level: int) -> None:
    constants = {"roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32), "sizes": np.array([1, 2, 7, 5])}
    model = model_of("Resize", {"x": (np.float32, (1, 2, "H", 3))}, constants, **RESIZES[case])
    x = values((1, 2, height, 3), np.float32)
    (expected,) = compiled(model)(x)
    (result,) = tw.compile(model, dims={"H": height}, level=level)(x)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


OTHERS: dict[str, tuple[str, dict[str, Array], dict[str, Any]]] = {
    "upsample by scales": (
        "Resize",
        {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 1.5, 2], np.float32)},
        {},
    ),
    "pool": ("AveragePool", {}, {"kernel_shape": [3, 2], "ceil_mode": 1, "strides": [2, 1], "pads": [1, 0, 1, 0]}),
    "same": ("MaxPool", {}, {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "crop": ("Slice", {"s": np.array([1]), "e": np.array([-1]), "axes": np.array([2]), "steps": np.array([2])}, {}),
    "range": ("Shape", {}, {}),
    "tile": ("Tile", {"repeats": np.array([1, 2, 3, 1])}, {}),
    "shuffle": ("Reshape", {"shape": np.array([0, -1, 3])}, {}),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_else_computes_sizes_of_a_dimension_that_is_fixed(case: str) -> None:
    op, constants, attributes = OTHERS[case]
    model = model_of(op, {"x": (np.float32, (1, 2, "H", 3))}, constants, **attributes)
    if op == "Shape":
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    x = values((1, 2, 4, 3), np.float32)
    dynamic = tw.compile(model)
    assert "H" in str(dynamic.interface)
    fixed = tw.compile(model, dims={"H": 4})
    assert "?" not in str(fixed.interface) and "H" not in str(fixed.interface)
    assert reduce(lambda same, pair: same and np.array_equal(*pair), zip(dynamic(x), fixed(x), strict=True), True)
