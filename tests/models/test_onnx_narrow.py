"""ONNX models with narrow types: packed constants, casts by all attributes, quantization, operators that move elements,
and files and stores of what was compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from drawn import in_turn
from tilewright.expr.dtypes import NARROW, DType
from tilewright.frontends.onnx import read
from tilewright.frontends.onnx.tensors import ELEMENTS
from tilewright.graph.evaluate import evaluate

Array = np.ndarray[Any, Any]

NUMBERS = {element.dtype: number for number, element in ELEMENTS.items()}
EIGHT_BITS = [d for d in NARROW if d.is_float and d.width == 8 and d.signed]
FOUR_BITS = [d for d in NARROW if d.width < 8]


def number(dtype: DType) -> int:
    return NUMBERS[dtype.numpy]


def codes(dtype: DType, *shape: int, seed: int = 0) -> Array:
    """Random numbers of a narrow type, every code among them that there is room for; no NaN."""
    assert dtype.code is not None
    count = int(np.prod(shape))
    found = np.random.default_rng(seed).permutation(np.arange(count) % (dtype.code.mask + 1)).astype(np.uint8)
    found[np.isnan(found.view(dtype.numpy).astype(np.float32))] = 1
    return found.view(dtype.numpy).reshape(shape)


def model(
    nodes: Sequence[NodeProto],
    feeds: Mapping[str, Array],
    outputs: Mapping[str, int],
    *held: TensorProto,
    opset: int = 25,
) -> ModelProto:
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "g", infos, results, list(held))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def same(a: Array, b: Array) -> None:
    """The same numbers of the same type; a NaN equals a NaN."""
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind in "biu":
        np.testing.assert_array_equal(a, b)
    else:
        np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


def check(proto: ModelProto, feeds: Mapping[str, Array], expected: Sequence[Array] | None = None) -> None:
    """The evaluator and compiled code give what is expected, or else what the ONNX project's evaluator gives."""
    wanted = ReferenceEvaluator(proto).run(None, dict(feeds)) if expected is None else expected
    for results in (tuple(evaluate(read(proto), feeds).values()), tw.compile(proto)(**feeds)):
        for found, want in zip(results, wanted, strict=True):
            same(found, np.asarray(want))


# Constants


def tensor(name: str, values: Array, way: str, folder: Path) -> TensorProto:
    """A constant whose elements are in raw bytes, in a typed field, or in a file."""
    made = numpy_helper.from_array(values, name)
    if way == "typed":
        raw, made.raw_data = made.raw_data, b""
        made.ClearField("raw_data")
        made.int32_data.extend(raw)
    elif way == "external":
        (folder / "w.bin").write_bytes(b"\0\0\0" + made.raw_data)
        onnx.external_data_helper.set_external_data(made, "w.bin", offset=3, length=len(made.raw_data))
        made.ClearField("raw_data")
    return made


@pytest.mark.parametrize(("dtype", "way"), in_turn(NARROW, ["raw", "typed", "external"]), ids=str)
def test_constants(dtype: DType, way: str, tmp_path: Path) -> None:
    """Of numbers of elements that fill their last byte and that do not."""
    for count in (1, 2, 3, 4, 5, 17, 600):
        values = codes(dtype, count)
        nodes = [
            helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT),
            helper.make_node("Identity", ["w"], ["z"]),
        ]
        outputs = {"y": TensorProto.FLOAT, "z": number(dtype)}
        proto = model(nodes, {}, outputs, tensor("w", values, way, tmp_path))
        (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
        y, z = tw.compile(tmp_path / "m.onnx")()
        same(y, values.astype(np.float32))
        same(z, values)


@pytest.mark.parametrize("dtype", FOUR_BITS, ids=str)
def test_packed_constants_of_a_wrong_length(dtype: DType) -> None:
    element = ELEMENTS[number(dtype)]
    proto = TensorProto(name="w", data_type=number(dtype), dims=[9], raw_data=b"\0" * 9)
    with pytest.raises(tw.UserError) as error:
        tw.compile(model([helper.make_node("Identity", ["w"], ["z"])], {}, {"z": number(dtype)}, proto))
    assert f"[9] elements of {element.name} are {-(-9 // element.packed)} bytes, but it has 9" in str(error.value)
    proto = TensorProto(name="w", data_type=number(dtype), dims=[9], int32_data=[0] * 9)
    with pytest.raises(tw.UserError) as error:
        tw.compile(model([helper.make_node("Identity", ["w"], ["z"])], {}, {"z": number(dtype)}, proto))
    assert f"bytes with {element.packed} elements each, but int32_data has 9" in str(error.value)


def test_packed_bytes_beyond_a_byte() -> None:
    proto = TensorProto(name="w", data_type=TensorProto.INT4, dims=[2], int32_data=[256])
    with pytest.raises(tw.UserError, match="elements outside 0 … 255"):
        tw.compile(model([helper.make_node("Identity", ["w"], ["z"])], {}, {"z": TensorProto.INT4}, proto))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_constants_of_nodes(dtype: DType) -> None:
    values = codes(dtype, 7)
    filled = numpy_helper.from_array(values[3:4], "value")
    nodes = [
        helper.make_node("Constant", [], ["a"], value=numpy_helper.from_array(values, "value")),
        helper.make_node("ConstantOfShape", ["s"], ["b"], value=filled),
    ]
    feeds = {"s": np.array([2, 3])}
    proto = model(nodes, feeds, {"a": number(dtype), "b": number(dtype)})
    a, b = tw.compile(proto)(**feeds)
    same(a, values)
    same(b, np.broadcast_to(values[3:4], (2, 3)))


# Casts


EDGES = np.array(
    [0, 0.4, 1, -1.5, 2.5, 240, 247, 248, 249, 448, 463, 464, 465, 57344, 61439, 61440, 7e4, 1e9, np.inf, np.nan]
)


SOURCES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@pytest.mark.parametrize(("dtype", "source"), in_turn(EIGHT_BITS, SOURCES), ids=str)
def test_casts_that_do_not_saturate(dtype: DType, source: type) -> None:
    """What `ml_dtypes` converts to, which does not saturate; both ways of saying the type."""
    with np.errstate(all="ignore"):
        x = np.concatenate([EDGES, -EDGES]).astype(source)
        wanted = x.astype(np.float32).astype(dtype.numpy)
        limited = np.where(
            np.isfinite(wanted.astype(np.float32)) | np.isnan(x.astype(np.float32)),
            wanted.astype(np.float32),
            np.copysign(dtype.code.largest, x.astype(np.float32)),
        ).astype(dtype.numpy)
    like = codes(dtype, 1)
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=number(dtype), saturate=0),
        helper.make_node("Cast", ["x"], ["b"], to=number(dtype)),
        helper.make_node("CastLike", ["x", "l"], ["c"], saturate=0),
        helper.make_node("CastLike", ["x", "l"], ["d"], saturate=1),
    ]
    feeds = {"x": x, "l": like}
    check(model(nodes, feeds, dict.fromkeys("abcd", number(dtype))), feeds, [wanted, limited, wanted, limited])


POWERS = {
    "up": [0, 0, 0, 1, 1, 2, 127, 128, 129, 254, 254, 254, 255, 255],
    "down": [0, 0, 0, 0, 1, 1, 127, 127, 128, 254, 254, 254, 255, 255],
    "nearest": [0, 0, 0, 0, 1, 2, 127, 128, 128, 254, 254, 254, 255, 255],
}
"""The codes of x below, where numbers beyond the range become its ends."""


@pytest.mark.parametrize("mode", POWERS)
def test_powers_of_two(mode: str) -> None:
    x = np.array(
        [
            0,
            2.0**-149,
            2.0**-127,
            1.25 * 2.0**-127,
            2.0**-126,
            1.75 * 2.0**-126,
            1,
            1.5,
            2.5,
            2.0**127,
            1.25 * 2.0**127,
            np.inf,
            np.nan,
            -1,
        ]
    )
    wanted = np.array(POWERS[mode], np.uint8)
    strict = wanted.copy()
    strict[[0, 1, 11]] = 255  # zero, what is below the least power, infinity
    strict[10] = 255 if mode == "up" else 254
    kind = TensorProto.FLOAT8E8M0
    for source in (np.float32, np.float64):
        nodes = [
            helper.make_node("Cast", ["x"], ["a"], to=kind, round_mode=mode),
            helper.make_node("Cast", ["x"], ["b"], to=kind, round_mode=mode, saturate=0),
        ]
        feeds = {"x": x.astype(source)}
        results = [w.view(ml_dtypes.float8_e8m0fnu) for w in (wanted, strict)]
        check(model(nodes, feeds, {"a": kind, "b": kind}), feeds, results)


def test_a_rounding_that_is_none() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E8M0, round_mode="odd")
    with pytest.raises(tw.UserError, match="the rounding is 'odd', not 'up', 'down' or 'nearest'"):
        tw.compile(model([node], {"x": np.zeros(3, np.float32)}, {"y": TensorProto.FLOAT8E8M0}))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_bits(dtype: DType) -> None:
    """The bits as those of each type of as many; bits above are gone."""
    assert dtype.code is not None
    x = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    others = [d for d in NARROW if d.width == dtype.width and d is not dtype]
    nodes = [helper.make_node("BitCast", ["x"], [f"y{n}"], to=number(d)) for n, d in enumerate(others)]
    proto = model(nodes, {"x": x}, {f"y{n}": number(d) for n, d in enumerate(others)}, opset=26)
    for y, other in zip(tw.compile(proto)(x), others, strict=True):
        assert y.dtype == other.numpy
        np.testing.assert_array_equal(y.view(np.uint8), x.view(np.uint8) & dtype.code.mask)


# Quantization


@pytest.mark.parametrize(
    ("dtype", "layout"), in_turn([d for d in NARROW if d.signed or d.is_int], ["tensor", "axis", "block"]), ids=str
)
def test_quantization(dtype: DType, layout: str) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((6, 8)) * 10).astype(np.float32)
    shape = {"tensor": (), "axis": (8,), "block": (6, 2)}[layout]
    scale = rng.uniform(0.5, 3, shape).astype(np.float32)
    zero = (rng.integers(0, 2, shape) if dtype.is_int else np.zeros(shape)).astype(dtype.numpy)
    options = {"block_size": 4} if layout == "block" else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1, **options),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1, **options),
        helper.make_node("QuantizeLinear", ["x", "s"], ["p"], axis=1, output_dtype=number(dtype), **options),
    ]
    feeds = {"x": x, "s": scale, "z": zero}
    outputs = {"q": number(dtype), "y": TensorProto.FLOAT, "p": number(dtype)}
    check(model(nodes, feeds, outputs, opset=23), feeds)
    held = [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z")]
    proto = model(nodes, {"x": x}, outputs, *held, opset=23)
    for found, want in zip(tw.compile(proto)(x), ReferenceEvaluator(proto).run(None, {"x": x}), strict=True):
        same(found, want)


def test_scales_that_are_powers_of_two() -> None:
    """The microscaling formats: numbers of four bits in blocks, with a power of two for each."""
    rng = np.random.default_rng(2)
    values, powers = codes(NARROW[-1], 4, 64), (127 + rng.integers(-3, 4, (4, 2))).astype(np.uint8)
    scale = powers.view(ml_dtypes.float8_e8m0fnu)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"], axis=1, block_size=32, output_dtype=TensorProto.FLOAT),
        helper.make_node(
            "QuantizeLinear", ["y", "s"], ["p"], axis=1, block_size=32, output_dtype=TensorProto.FLOAT4E2M1
        ),
    ]
    feeds = {"q": values, "s": scale}
    wanted = values.astype(np.float32) * np.repeat(scale.astype(np.float32), 32, axis=1)
    proto = model(nodes, feeds, {"y": TensorProto.FLOAT, "p": TensorProto.FLOAT4E2M1}, opset=25)
    check(proto, feeds, [wanted, values])


# What moves, and what computes


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_elements_are_moved(dtype: DType) -> None:
    x, y = codes(dtype, 4, 6), codes(dtype, 4, 6, seed=1)
    helped = [
        helper.make_tensor("shape", TensorProto.INT64, [2], [3, 8]),
        helper.make_tensor("index", TensorProto.INT64, [3], [2, 0, -1]),
        helper.make_tensor("pads", TensorProto.INT64, [4], [1, 0, 0, 2]),
        helper.make_tensor("places", TensorProto.INT64, [2, 1], [3, 1]),
        numpy_helper.from_array(codes(dtype, 1)[0:1].reshape(()), "fill"),
    ]
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["a"]),
        helper.make_node("Transpose", ["x"], ["b"], perm=[1, 0]),
        helper.make_node("Gather", ["x", "index"], ["c"], axis=1),
        helper.make_node("Concat", ["x", "y"], ["d"], axis=0),
        helper.make_node("Pad", ["x", "pads", "fill"], ["e"]),
        helper.make_node("Where", ["m", "x", "y"], ["f"]),
        helper.make_node("Split", ["x"], ["g", "h"], axis=1, num_outputs=2),
        helper.make_node("Expand", ["u", "full"], ["i"]),
        helper.make_node("ScatterND", ["x", "places", "rows"], ["j"]),
    ]
    feeds = {"x": x, "y": y, "m": np.arange(24).reshape(4, 6) % 3 == 0, "u": x[:, :1], "rows": y[:2]}
    helped.append(helper.make_tensor("full", TensorProto.INT64, [2], [4, 5]))
    scattered = x.copy()
    scattered[[3, 1]] = y[:2]
    padded = np.full((5, 8), codes(dtype, 1)[0], dtype.numpy)
    padded[1:, :6] = x
    wanted = [
        x.reshape(3, 8), x.T, x[:, [2, 0, -1]], np.concatenate([x, y]), padded, np.where(feeds["m"], x, y),
        x[:, :3], x[:, 3:], np.broadcast_to(x[:, :1], (4, 5)), scattered,
    ]  # fmt: skip
    check(model(nodes, feeds, dict.fromkeys("abcdefghij", number(dtype)), *helped), feeds, wanted)


@pytest.mark.parametrize("dtype", [NARROW[0], NARROW[4], NARROW[9]], ids=str)
def test_branches_and_loops(dtype: DType) -> None:
    x, y = codes(dtype, 5), codes(dtype, 5, seed=1)
    kind = number(dtype)

    def body(name: str, *nodes: NodeProto) -> onnx.GraphProto:
        return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info("r", kind, None)])

    def infos(*names: str) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, kind, [5]) for name in names]

    number_of_step = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    before, after = (helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("c0", "c1"))
    moves = [("c0", "c1"), ("s0", "t1"), ("t0", "s1"), ("s0", "o")]
    step = helper.make_graph(
        [helper.make_node("Identity", [a], [b]) for a, b in moves],
        "step",
        [number_of_step, before, *infos("s0", "t0")],
        [after, *infos("s1", "t1", "o")],
    )
    nodes = [
        helper.make_node("If", ["p"], ["a"], then_branch=body("then", helper.make_node("Identity", ["x"], ["r"])),
                         else_branch=body("else", helper.make_node("Identity", ["y"], ["r"]))),
        helper.make_node("Loop", ["count", "", "x", "y"], ["s", "t", "all"], body=step),
    ]  # fmt: skip
    count = helper.make_tensor("count", TensorProto.INT64, [], [3])
    for p in (True, False):
        feeds = {"p": np.array(p), "x": x, "y": y}
        wanted = [x if p else y, y, x, np.stack([x, y, x])]
        check(model(nodes, feeds, dict.fromkeys(["a", "s", "t", "all"], kind), count), feeds, wanted)


@pytest.mark.parametrize(
    ("op", "count"),
    [
        ("Add", 2),
        ("MatMul", 2),
        ("Relu", 1),
        ("ReduceMax", 1),
        ("Less", 2),
        ("Softmax", 1),
        ("ArgMax", 1),
        ("CumSum", 1),
        ("Neg", 1),
    ],
)
@pytest.mark.parametrize("dtype", [NARROW[0], NARROW[4]], ids=str)
def test_what_computes_says_to_cast(dtype: DType, op: str, count: int) -> None:
    x = codes(dtype, 4, 4)
    names = [*["x", "x"][:count], *(["axis"] if op == "CumSum" else [])]
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [0])
    with pytest.raises(tw.UserError) as error:
        tw.compile(model([helper.make_node(op, names, ["y"], op)], {"x": x}, {"y": 0}, axis))
    assert str(dtype) in str(error.value) and "cast" in str(error.value)


# What was compiled


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_files_and_the_store(dtype: DType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    values, x = codes(dtype, 64, 9), codes(dtype, 5, 9, seed=1)
    nodes = [
        helper.make_node("Concat", ["x", "w"], ["y"], axis=0),
        helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT),
    ]
    proto = model(nodes, {"x": x}, {"y": number(dtype), "z": TensorProto.FLOAT}, numpy_helper.from_array(values, "w"))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    first = tw.compile(tmp_path / "m.onnx")
    again = tw.compile(tmp_path / "m.onnx")
    assert again.cached and not first.cached
    first.save(tmp_path / "m.tw")
    wanted = np.concatenate([x, values])
    for exe in (first, again, tw.load(tmp_path / "m.tw")):
        y, z = exe(x)
        same(y, wanted)
        same(z, wanted.astype(np.float32))


def test_arguments_of_other_types_are_refused() -> None:
    exe = tw.compile(tw.parse("graph main(x: i4[3]) -> y:\n  y: f32[3] = cast(x, dtype=f32)\n"))
    (y,) = exe([1, -8, 7])
    assert y.tolist() == [1, -8, 7]
    with pytest.raises(tw.UserError) as error:
        exe([1, -9, 7])
    assert str(error.value) == (
        "input x has numbers that i4 does not hold\n"
        "why:  -9 would become 7\n"
        "fix:  round them: np.asarray(…).astype('int4')"
    )
    with pytest.raises(tw.UserError) as error:
        exe(np.zeros(3, ml_dtypes.uint4))
    assert str(error.value) == (
        "input x has the wrong element type\n"
        "why:  an array of u4 came, and x: i4[3] was expected\n"
        "fix:  convert it: np.asarray(…, 'int4')"
    )
