"""Operators that are composed of many others, on random data, of fixed and dynamic sizes, against their references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_runtime import session_of

import tilewright as tw
from compiled_once import compiled
from drawn import drawn, in_turn
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate
from tilewright.report.errors import TilewrightError

Array = np.ndarray[Any, Any]


def model(
    node: NodeProto, feeds: Mapping[str, Array], dynamic: Sequence[str] = (), opset: int = 22, **constants: Array
) -> ModelProto:
    """The node over these inputs; the sizes of the `dynamic` ones have names."""
    infos = []
    for name, x in feeds.items():
        shape = [f"{name}{d}" for d in range(x.ndim)] if name in dynamic else list(x.shape)
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), shape))
    results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", infos, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def check(
    proto: ModelProto,
    feeds: Mapping[str, Array],
    expected: Sequence[Array],
    tolerance: float = 1e-5,
    executable: tw.Executable | None = None,
) -> tuple[Array, ...]:
    """Evaluator and compiled code give what is expected."""
    found = (executable or compiled(proto))(**feeds)
    for results in (tuple(evaluate(read(proto), feeds).values()), found):
        for array, want in zip(results, expected, strict=True):
            assert array.dtype == want.dtype and array.shape == want.shape
            if want.dtype.kind == "f":
                np.testing.assert_allclose(array, want, rtol=tolerance, atol=tolerance)
            else:
                assert np.array_equal(array, want)
    return found


def by_reference(proto: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    results: list[Array] = ReferenceEvaluator(proto).run(None, dict(feeds))
    return results


def by_runtime(proto: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    results: list[Array] = session_of(proto).run(None, dict(feeds))
    return results


def generator(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# Boxes


def suppressed(
    boxes: Array, scores: Array, most: int, overlap: float, least: float | None, center: bool = False
) -> Array:
    """What NonMaxSuppression gives, box by box."""
    chosen = []
    for batch, per_class in enumerate(scores):
        for kind, row in enumerate(per_class):
            kept: list[int] = []
            for place in np.argsort(-row, kind="stable"):
                if len(kept) >= most or (least is not None and row[place] <= least):
                    break
                if all(common(boxes[batch, place], boxes[batch, k], center) <= overlap for k in kept):
                    kept.append(int(place))
            chosen += [(batch, kind, place) for place in kept]
    return np.array(chosen, np.int64).reshape(-1, 3)


def common(a: Array, b: Array, center: bool) -> float:
    """The area in common over the area of both."""
    ends = []
    for box in (a, b):
        x = np.float32(box)
        if center:
            ends.append((x[1] - x[3] / 2, x[1] + x[3] / 2, x[0] - x[2] / 2, x[0] + x[2] / 2))
        else:
            ends.append((min(x[0], x[2]), max(x[0], x[2]), min(x[1], x[3]), max(x[1], x[3])))
    (y0, y1, x0, x1), (v0, v1, u0, u1) = ends
    shared = max(min(y1, v1) - max(y0, v0), 0) * max(min(x1, u1) - max(x0, u0), 0)
    both = (y1 - y0) * (x1 - x0) + (v1 - v0) * (u1 - u0) - shared
    return float(shared / both) if shared > 0 else 0.0


def random_boxes(batch: int, classes: int, count: int, seed: int) -> dict[str, Array]:
    draw = generator(batch, classes, count, seed)
    boxes = draw.uniform(0, 4, (batch, count, 4)).astype(np.float32)
    scores = draw.integers(0, 12, (batch, classes, count)).astype(np.float32) / 12
    return {"boxes": boxes, "scores": scores}


LIMITS = [(3, 0.1, 0.3), (100, 0.3, None), (2**62, 0.0, 0.5), (0, 0.5, 0.0)]


@pytest.mark.parametrize(("given", "center"), in_turn(LIMITS, [False, True]))
def test_non_max_suppression(given: tuple[int, float, float | None], center: bool) -> None:
    most, overlap, least = given
    limits = {"m": np.array([most]), "o": np.array([overlap], np.float32)}
    limits |= {} if least is None else {"s": np.array([least], np.float32)}
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", *limits], ["y"], center_point_box=int(center))
    exe = None
    for n, sizes in enumerate(((1, 1, 20), (2, 3, 9), (1, 2, 1), (1, 1, 0))):
        feeds = random_boxes(*sizes, n)
        proto = model(node, feeds, ("boxes", "scores"), **limits)
        exe = exe or tw.compile(proto)
        wanted = [suppressed(*feeds.values(), most, overlap, least, center)]
        (found,) = check(proto, feeds, wanted, executable=exe)
        if sizes[2]:
            assert np.array_equal(found, by_runtime(proto, feeds)[0])


def test_limits_of_non_max_suppression_from_data() -> None:
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "m", "o", "s"], ["y"])
    feeds = random_boxes(2, 2, 12, 0)
    for most, overlap in ((2, 0.1), (50, 0.4), (-1, 0.2)):
        own = {"m": np.array([most]), "o": np.array([overlap], np.float32), "s": np.array([0.2], np.float32)}
        proto = model(node, feeds | own)
        check(proto, feeds | own, [suppressed(*feeds.values(), max(most, 0), overlap, 0.2)])


def test_boxes_and_scores_have_the_same_batches() -> None:
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "m"], ["y"])
    feeds = {"boxes": random_boxes(3, 1, 5, 0)["boxes"], "scores": random_boxes(1, 1, 5, 0)["scores"]}
    for dynamic in ((), ("boxes", "scores")):
        proto = model(node, feeds, dynamic, m=np.array([2]))
        for run in (lambda proto=proto: tw.compile(proto)(**feeds), lambda proto=proto: evaluate(read(proto), feeds)):
            with pytest.raises(TilewrightError, match="3 batches of boxes and 1 of scores"):
                run()


@pytest.mark.parametrize("dynamic", ["boxes", "scores"])
def test_sizes_of_boxes_alone_may_have_names(dynamic: str) -> None:
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "m", "o"], ["y"])
    limits = {"m": np.array([2]), "o": np.array([0.2], np.float32)}
    feeds = random_boxes(2, 2, 7, 1)
    check(model(node, feeds, (dynamic,), **limits), feeds, [suppressed(*feeds.values(), 2, 0.2, None)])


def test_boxes_without_a_limit_are_none() -> None:
    feeds = random_boxes(1, 1, 5, 0)
    check(
        model(helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["y"]), feeds),
        feeds,
        [np.zeros((0, 3), np.int64)],
    )


def test_max_roi_pool() -> None:
    draw = generator(1)
    feeds = {
        "x": draw.normal(size=(2, 3, 9, 11)).astype(np.float32),
        "r": np.array([[0, 0, 0, 10, 8], [1, 3, 2, 5, 9], [1, 4, 4, 4, 4], [0, 6, 7, 30, 40]], np.float32),
    }
    for (shape, scale), dynamic in in_turn([((2, 2), 1.0), ((3, 4), 0.5), ((1, 5), 1.0)], [(), ("x", "r")]):
        node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=shape, spatial_scale=scale)
        proto = model(node, feeds, dynamic, opset=20)
        check(proto, feeds, [pooled(feeds["x"], feeds["r"], shape, scale)])
        check(proto, feeds, by_runtime(proto, feeds))


def pooled(x: Array, regions: Array, shape: tuple[int, int], scale: float) -> Array:
    """What MaxRoiPool gives, bin by bin."""
    result = np.zeros((len(regions), x.shape[1], *shape), np.float32)
    for n, (image, *corners) in enumerate(regions):
        left, top, right, bottom = (int(np.floor(c * scale + 0.5)) for c in corners)
        for i, j in np.ndindex(*shape):
            rows, columns = (
                slice(
                    *(
                        min(max(int(f(k * max(hi - lo + 1, 1) / count)) + lo, 0), size)
                        for f, k in ((np.floor, at), (np.ceil, at + 1))
                    )
                )
                for at, lo, hi, count, size in (
                    (i, top, bottom, shape[0], x.shape[2]),
                    (j, left, right, shape[1], x.shape[3]),
                )
            )
            part = x[int(image), :, rows, columns]
            if part.size:
                result[n, :, i, j] = part.max((1, 2))
    return result


# Sampling


@pytest.mark.parametrize(("size", "corners"), in_turn([(2, 3, 4, 5), (1, 2, 3, 1, 4)], [1, 0]))
def test_affine_grid(corners: int, size: tuple[int, ...]) -> None:
    n = len(size) - 2
    feeds = {"theta": generator(n).normal(size=(size[0], n, n + 1)).astype(np.float32)}
    node = helper.make_node("AffineGrid", ["theta", "size"], ["y"], align_corners=corners)
    proto = model(node, feeds, size=np.array(size))
    expected = by_reference(proto, feeds) if 1 not in size or not corners else None
    if expected is not None:
        check(proto, feeds, expected)
    by_data = feeds | {"size": np.array(size)}
    check(model(node, by_data), by_data, [tw.compile(proto)(**feeds)[0]])


DEFORMED: list[tuple[dict[str, Any], int, int]] = [
    ({}, 1, 1),
    ({"strides": [2, 1], "pads": [1, 0, 2, 1]}, 2, 1),
    ({"dilations": [2, 1], "pads": [1, 1, 1, 1]}, 1, 2),
]


@pytest.mark.parametrize(("setting", "extras"), in_turn(DEFORMED, [False, True]))
def test_deformable_convolution(setting: tuple[dict[str, Any], int, int], extras: bool) -> None:
    attributes, group, offsets = setting
    draw, (height, width) = generator(group, offsets), (6, 7)
    strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    pads = attributes.get("pads", [0] * 4)
    out = [
        (extent + pads[d] + pads[d + 2] - dilations[d] * (k - 1) - 1) // strides[d] + 1
        for d, (extent, k) in enumerate(((height, 3), (width, 2)))
    ]
    feeds = {
        "x": draw.normal(size=(2, 4, height, width)).astype(np.float32),
        "w": draw.normal(size=(6, 4 // group, 3, 2)).astype(np.float32),
        "o": draw.normal(0, 1.5, size=(2, offsets * 12, *out)).astype(np.float32),
    }
    if extras:
        feeds |= {"b": draw.normal(size=6).astype(np.float32)}
        feeds |= {"m": draw.uniform(size=(2, offsets * 6, *out)).astype(np.float32)}
    node = helper.make_node("DeformConv", [*feeds], ["y"], group=group, offset_group=offsets, **attributes)
    expected = by_reference(model(node, feeds), feeds)
    check(model(node, feeds), feeds, expected, 1e-4)


# Matrices, signals, counts, bits


@pytest.mark.parametrize(
    ("dtype", "shape", "dynamic"),
    drawn([np.float32, np.float64], [(3, 3), (5, 1, 1), (2, 3, 4, 4), (7, 7), (0, 3, 3), (4, 0, 0)], [False, True]),
)
def test_determinants(dtype: Any, shape: tuple[int, ...], dynamic: bool) -> None:
    x = generator(*shape).normal(size=shape).astype(dtype)
    node, feeds = helper.make_node("Det", ["x"], ["y"]), {"x": x}
    infos = [*[f"b{n}" for n in range(len(shape) - 2)], "n", "n"]
    proto = model(node, feeds)
    if dynamic:
        info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), infos)
        proto.graph.input[0].CopyFrom(info)
    check(proto, feeds, [np.asarray(np.linalg.det(x.astype(np.float64)).astype(dtype))], 1e-4)


def test_determinants_that_need_other_pivots() -> None:
    x = np.array([[[0, 2, 1], [3, 0, 0], [0, 1, 0]], [[1, 2, 3], [2, 4, 6], [1, 1, 1]], [[0] * 3] * 3], np.float32)
    check(model(helper.make_node("Det", ["x"], ["y"]), {"x": x}), {"x": x}, [np.array([3, 0, 0], np.float32)])


@pytest.mark.parametrize("type", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_mel_weights(type: int) -> None:
    constants = {
        "n": np.array(12), "l": np.array(64), "r": np.array(8192), "a": np.array(60.0, np.float32),
        "b": np.array(3900.0, np.float32),
    }  # fmt: skip
    node = helper.make_node("MelWeightMatrix", [*constants], ["y"], output_datatype=type)
    (expected,) = by_reference(model(node, {}, **constants), {})
    assert (expected.max(0) > 0).all()
    check(model(node, {}, **constants), {}, [expected])
    feeds = {key: np.asarray(value) for key, value in constants.items()}
    check(model(node, feeds), feeds, [expected])


POOL = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 5, 6, 7]
"""Three single numbers, three pairs and … of four: see the counts."""


LENGTHS = [(1, 1, 0), (2, 2, 0), (1, 3, 2), (2, 3, 5)]


@pytest.mark.parametrize(("lengths", "mode"), in_turn(LENGTHS, ["TF", "IDF", "TFIDF"]))
def test_counts_of_sequences(lengths: tuple[int, int, int], mode: str) -> None:
    least, most, skip = lengths
    counts, indexes = [0, 4, 10], [6, 0, 3, 2, 1, 4, 5, 7]
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=least, max_gram_length=most, max_skip_count=skip,
        ngram_counts=counts, ngram_indexes=indexes, pool_int64s=POOL, weights=[0.5 + n for n in range(8)],
    )  # fmt: skip
    for shape, dtype in in_turn([(12,), (3, 8), (2, 1)], [np.int32, np.int64]):
        feeds = {"x": generator(*shape).integers(2, 9, shape).astype(dtype)}
        proto = model(node, feeds)
        check(proto, feeds, by_runtime(proto, feeds))


@pytest.mark.parametrize(("axis", "ascending", "dynamic"), drawn([0, 1, -1], [True, False], [False, True]))
def test_unique_slices(axis: int, ascending: bool, dynamic: bool) -> None:
    for shape in ((6, 4), (3, 7, 2), (1, 1), (12, 1)):
        x = generator(*shape).integers(0, 2, shape).astype(np.float32)
        node = helper.make_node("Unique", ["x"], ["y", "i", "v", "c"], axis=axis, sorted=int(ascending))
        values, index, inverse, counts = np.unique(x, True, True, True, axis=axis)
        inverse = inverse.reshape(-1)
        if not ascending:
            order = np.argsort(index)
            values, index, counts = np.take(values, order, axis), index[order], counts[order]
            inverse = np.argsort(order)[inverse]
        check(model(node, {"x": x}, ("x",) if dynamic else ()), {"x": x}, [values, index, inverse, counts])


BITS: dict[str, tuple[Callable[[], Array], list[Any]]] = {
    "f32": (lambda: np.array([0.0, -0.0, 1.5, np.nan, np.inf, 1e-45], np.float32), [np.int32, np.uint32]),
    "f64": (lambda: np.array([0.0, -2.5, np.nan, 5e-324], np.float64), [np.int64, np.uint64]),
    "f16": (lambda: np.array([0.0, -0.0, 65504, np.nan, 6e-8], np.float16), [np.int16, np.uint16]),
    "i32": (lambda: np.array([0, -1, 2**30, -(2**31)], np.int32), [np.float32, np.uint32]),
    "u64": (lambda: np.array([0, 2**64 - 1, 2**62], np.uint64), [np.float64, np.int64]),
    "i16": (lambda: np.array([0, -1, 15360], np.int16), [np.float16, np.uint16]),
    "i8": (lambda: np.array([0, -1, 127], np.int8), [np.uint8]),
    "bool": (lambda: np.array([True, False]), [np.uint8, np.int8]),
}


@pytest.mark.parametrize("source", BITS)
def test_bits_as_another_type(source: str) -> None:
    make, targets = BITS[source]
    x = make()
    for target in targets:
        node = helper.make_node("BitCast", ["x"], ["y"], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
        proto = model(node, {"x": x}, ("x",), opset=26)
        bits = np.dtype(f"u{x.itemsize}")
        (found,) = tw.compile(proto)(x)
        assert found.dtype == target and np.array_equal(found.view(bits), x.view(bits))
        (evaluated,) = evaluate(read(proto), {"x": x}).values()
        assert np.array_equal(evaluated.view(bits), x.view(bits))


def test_bits_of_another_number() -> None:
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.INT64)
    with pytest.raises(tw.UserError, match="f32 and i64 have other numbers of bits"):
        read(model(node, {"x": np.zeros(2, np.float32)}, opset=26))
