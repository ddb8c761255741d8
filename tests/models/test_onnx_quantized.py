"""Operators of ONNX Runtime that quantize when a call comes: the same results, from its own files and its own runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx_runtime import session_of

import tilewright as tw
from compiled_once import compiled
from drawn import drawn, in_turn
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate

Array = np.ndarray[Any, Any]
FLOAT = TensorProto.FLOAT
STORED = Path(__file__).parent / "quantized_lstms.npz"
"""Files that `onnxruntime.quantization.quantize_dynamic` (1.32) made of LSTMs, and what ONNX Runtime computes:
`NAME.onnx`, and `NAME.xB`, `.yB`, `.hB`, `.cB` for batches of B."""


def model(
    node: NodeProto, inputs: Mapping[str, tuple[int, Sequence[Any]]], outputs: Sequence[str], **constants: Array
) -> ModelProto:
    infos = [helper.make_tensor_value_info(name, *type) for name, type in inputs.items()]
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", infos, results, held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    return np.random.default_rng(seed + sum(shape)).normal(0, scale, shape).astype(np.float32)


def integers(*shape: int, dtype: Any = np.int8) -> Array:
    kind = np.iinfo(dtype)
    return np.random.default_rng(sum(shape)).integers(kind.min, kind.max, shape, dtype, endpoint=True)


STEP = 1 / 255
"""What a number between -1 and 1 is off by, at most, where its last bit decides how it is quantized."""


def close(found: Sequence[Array], expected: Sequence[Array], tolerance: float = 1e-5) -> None:
    for array, want in zip(found, expected, strict=True):
        assert array.dtype == want.dtype and array.shape == want.shape
        np.testing.assert_allclose(array, want, rtol=0, atol=tolerance * max(1.0, float(np.abs(want).max(initial=0))))


def check(
    proto: ModelProto, feeds: dict[str, Array], *, runtime: bool = True, tolerance: float = 1e-5
) -> tuple[Array, ...]:
    """Compiled code gives what the evaluator does, and what ONNX Runtime does where it is installed."""
    found = compiled(proto)(**feeds)
    close(found, list(evaluate(read(proto), feeds).values()), tolerance)
    if runtime:
        session = session_of(proto, threads=1)  # with more it quantizes parts of a batch by themselves
        close(found, session.run(None, feeds), tolerance)
    return found


def quantize(x: Array) -> tuple[Array, np.float32, int]:
    """u8 over the range of x and zero, by the formulas of DynamicQuantizeLinear."""
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = np.float32((np.float32(high) - np.float32(low)) / 255)
    zero = int(np.clip(np.rint(-np.float32(low) / scale), 0, 255))
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64), scale, zero


def lstm(hidden: int, columns: int, direction: str, **options: Any) -> ModelProto:
    count = 2 if direction == "bidirectional" else 1
    node = helper.make_node(
        "LSTM", ["x", "W", "R", "B"], ["y", "h", "c"], "lstm", hidden_size=hidden, direction=direction, **options
    )
    return model(
        node, {"x": (FLOAT, ["s", "b", columns])}, ("y", "h", "c"),
        W=normal(count, 4 * hidden, columns, scale=0.3), R=normal(count, 4 * hidden, hidden, scale=0.3),
        B=normal(count, 8 * hidden, scale=0.1),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["tensor", "row", "both", "both rows"])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_stored_lstms(name: str, batch: int) -> None:
    stored = np.load(STORED)
    proto = onnx.load_from_string(stored[f"{name}.onnx"].tobytes())
    assert [n.op_type for n in proto.graph.node] == ["DynamicQuantizeLSTM"]
    found = check(proto, {"x": stored[f"{name}.x{batch}"]}, runtime=False)
    close(found, [stored[f"{name}.{key}{batch}"] for key in "yhc"])


@pytest.mark.parametrize(("direction", "rows"), in_turn(["forward", "reverse", "bidirectional"], [True, False]))
def test_lstms_that_onnx_runtime_quantizes(direction: str, rows: bool, tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    onnx.save(lstm(16, 10, direction), tmp_path / "f.onnx")
    quantization.quantize_dynamic(tmp_path / "f.onnx", tmp_path / "q.onnx", per_channel=rows)
    proto = onnx.load(tmp_path / "q.onnx")
    assert proto.graph.node[0].op_type == "DynamicQuantizeLSTM"
    plain = tw.compile(tmp_path / "f.onnx")
    for steps, batch in ((1, 1), (9, 2), (30, 1)):
        x = normal(steps, batch, 10)
        found = check(proto, {"x": x}, tolerance=STEP)
        for array, exact in zip(found, plain(x), strict=True):
            assert 0 < np.abs(array - exact).max() < 0.05, "close to the plain layer, and not the same"


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("operator", ["MatMul", "LSTM"])
def test_weights_without_a_zero_point_stay_bytes(operator: str, columns: bool, tmp_path: Path) -> None:
    """Zero points of columns, or of one direction of a layer, are known to be 0: no operand is widened for them."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    plain = model(node, {"x": (FLOAT, ["n", 24])}, ("y",), w=normal(24, 8)) if operator == "MatMul" else None
    onnx.save(plain or lstm(16, 10, "forward"), tmp_path / "f.onnx")
    quantization.quantize_dynamic(
        tmp_path / "f.onnx", tmp_path / "q.onnx", per_channel=columns, weight_type=quantization.QuantType.QInt8
    )
    text = str(read(onnx.load(tmp_path / "q.onnx")))
    assert "i8[" in text
    assert "i16" not in text


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_products_of_any_number_of_rows_are_exact(dtype: Any, tmp_path: Path) -> None:
    w = np.random.default_rng(0).integers(-128, 128, (37, 48)).astype(np.int8)
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    element = TensorProto.UINT8 if dtype is np.uint8 else TensorProto.INT8
    made = [helper.make_tensor_value_info("x", element, ["n", 37])]
    given = [helper.make_tensor_value_info("y", TensorProto.INT32, ["n", 48])]
    graph = helper.make_graph([node], "g", made, given, [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    exe = tw.compile(tmp_path / "m.onnx")
    info = np.iinfo(dtype)
    for rows in (*range(20), 97):
        x = np.random.default_rng(rows).integers(info.min, info.max + 1, (rows, 37)).astype(dtype)
        np.testing.assert_array_equal(exe.run({"x": x})["y"], x.astype(np.int32) @ w.astype(np.int32))


LSTM_INPUTS = ["x", "W", "R", "B", "n", "h0", "c0", "P", "ws", "wz", "rs", "rz"]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_an_lstm_with_all_its_inputs(dtype: Any) -> None:
    """Zero points that are not zero, lengths of sequences, states to begin with, peepholes, a bound."""
    hidden, columns, batch = 4, 3, 2
    node = helper.make_node(
        "DynamicQuantizeLSTM", LSTM_INPUTS, ["y", "h", "c"], domain="com.microsoft", hidden_size=hidden,
        direction="bidirectional", clip=1.5, activations=["Sigmoid", "Tanh", "Tanh"] * 2,
    )  # fmt: skip
    zero = np.array([3, 5], dtype)
    proto = model(
        node, {"x": (FLOAT, ["s", batch, columns])}, ("y", "h", "c"),
        W=integers(2, columns, 4 * hidden, dtype=dtype), R=integers(2, hidden, 4 * hidden, dtype=dtype),
        B=normal(2, 8 * hidden, scale=0.1), n=np.array([4, 6], np.int32), h0=normal(2, batch, hidden, scale=0.5),
        c0=normal(2, batch, hidden), P=normal(2, 3 * hidden, scale=0.2), ws=np.array([0.004, 0.003], np.float32),
        wz=zero, rs=np.array([0.002, 0.005], np.float32), rz=zero,
    )  # fmt: skip
    y, _, _ = check(proto, {"x": normal(6, batch, columns)}, runtime=False)
    assert (y[4:, :, 0] == 0).all() and (y[4:, :, 1] != 0).any()
    check(proto, {"x": normal(6, batch, columns)}, tolerance=STEP)


def test_an_lstm_without_scales() -> None:
    node = helper.make_node("DynamicQuantizeLSTM", ["x", "W", "R"], ["y"], domain="com.microsoft", hidden_size=4)
    proto = model(node, {"x": (FLOAT, ["s", 1, 3])}, ("y",), W=integers(1, 3, 16), R=integers(1, 4, 16))
    with pytest.raises(tw.UserError, match="DynamicQuantizeLSTM needs the scales of its weights"):
        read(proto)


@pytest.mark.parametrize(("bias", "columns", "dtype"), drawn([False, True], [False, True], [np.int8, np.uint8]))
def test_products_that_quantize_their_left_side(dtype: Any, columns: bool, bias: bool) -> None:
    y, count = integers(12, 7, dtype=dtype), 7 if columns else 1
    scale = (0.01 + 0.001 * np.arange(count)).astype(np.float32)
    zero = np.arange(count).astype(dtype)
    constants = {"y": y, "s": scale, "z": zero} | ({"b": normal(7)} if bias else {})
    node = helper.make_node("DynamicQuantizeMatMul", ["x", *constants], ["r"], domain="com.microsoft")
    for shape in ((5, 12), (2, 3, 12)):
        x = normal(*shape)
        proto = model(
            node, {"x": (FLOAT, ["n"] * (len(shape) - 1) + [12] if len(shape) == 2 else shape)}, ("r",), **constants
        )
        (found,) = check(proto, {"x": x}, runtime=False)
        whole, x_scale, x_zero = quantize(x)
        expected = (whole - x_zero) @ (y.astype(np.int64) - zero) * (x_scale * scale).astype(np.float32)
        close([found], [(expected + (constants["b"] if bias else 0)).astype(np.float32)])
        check(proto, {"x": x})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_products_of_integers_as_floats(dtype: Any) -> None:
    x, y, bias = integers(6, 12, dtype=np.uint8), integers(12, 5, dtype=dtype), normal(5)
    scale, zero = (0.01 + 0.001 * np.arange(5)).astype(np.float32), np.arange(5).astype(dtype)
    names = ["x", "y", "xs", "s", "xz", "z", "b"]
    node = helper.make_node("MatMulIntegerToFloat", names, ["r"], domain="com.microsoft")
    constants = {"y": y, "xs": np.float32(0.05)[None], "s": scale, "xz": np.array([17], np.uint8), "z": zero, "b": bias}
    proto = model(node, {"x": (TensorProto.UINT8, [6, 12])}, ("r",), **constants)
    (found,) = check(proto, {"x": x}, runtime=False)
    exact = (x.astype(np.int64) - 17) @ (y.astype(np.int64) - zero)
    close([found], [(exact * (np.float32(0.05) * scale) + bias).astype(np.float32)])
    check(proto, {"x": x})
