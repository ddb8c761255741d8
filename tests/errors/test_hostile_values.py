"""Values that a compiled model must not go on with, given at run time: a fault that names the ONNX node, never an
access out of bounds, never a large allocation. Each case is followed by a call that works."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

MIN, MAX = -(2**63), 2**63 - 1
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def model(op: str, feeds: dict[str, np.ndarray], **attributes: Any) -> tw.Executable:
    """One node called `it` with every input given at run time, their dimensions free."""
    inputs = [
        helper.make_tensor_value_info(name, TYPES[a.dtype], list(a.shape) if a.dtype == np.int64 else None)
        if a.dtype == np.int64
        else helper.make_tensor_value_info(name, TYPES[a.dtype], [f"{name}{d}" for d in range(a.ndim)])
        for name, a in feeds.items()
    ]
    node = helper.make_node(op, list(feeds), ["y"], name="it", **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return tw.compile(proto)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CASES: dict[str, tuple[str, dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]] = {
    "gather past the end": ("Gather", {}, {"x": X, "i": ints(3)}, {"x": X, "i": ints(2)}),
    "gather before the start": ("Gather", {}, {"x": X, "i": ints(-4)}, {"x": X, "i": ints(-3)}),
    "gather the least integer": ("Gather", {}, {"x": X, "i": ints(MIN)}, {"x": X, "i": ints(0)}),
    "gather one wrong among many": (
        "Gather",
        {},
        {"x": X, "i": np.where(np.arange(999) == 500, MAX, 1).astype(np.int64)},
        {"x": X, "i": np.ones(999, np.int64)},
    ),
    "gather elements": (
        "GatherElements",
        {"axis": 1},
        {"x": X, "i": np.full((3, 1), 4, np.int64)},
        {"x": X, "i": np.full((3, 1), -4, np.int64)},
    ),
    "gather nd": ("GatherND", {}, {"x": X, "i": np.array([[0, 4]])}, {"x": X, "i": np.array([[2, 3]])}),
    "scatter elements": (
        "ScatterElements",
        {},
        {"x": X, "i": np.full((1, 4), 3, np.int64), "u": X[:1]},
        {"x": X, "i": np.full((1, 4), 2, np.int64), "u": X[:1]},
    ),
    "scatter nd": (
        "ScatterND",
        {},
        {"x": X, "i": np.array([[MIN]]), "u": X[:1]},
        {"x": X, "i": np.array([[1]]), "u": X[:1]},
    ),
    "reshape to another size": ("Reshape", {}, {"x": X, "s": ints(5, 5)}, {"x": X, "s": ints(4, 3)}),
    "reshape to an absurd size": ("Reshape", {}, {"x": X, "s": ints(2**40, 2**40)}, {"x": X, "s": ints(2, -1)}),
    "a constant of 2^62 elements": ("ConstantOfShape", {}, {"s": ints(2**62)}, {"s": ints(3)}),
    "a constant of overflowing size": ("ConstantOfShape", {}, {"s": ints(2**32, 2**32)}, {"s": ints(2, 2)}),
    "a negative constant": ("ConstantOfShape", {}, {"s": ints(-1)}, {"s": ints(0)}),
    "expand to what does not fit": ("Expand", {}, {"x": X, "s": ints(5, 4)}, {"x": X, "s": ints(3, 4)}),
    "a negative number of tiles": ("Tile", {}, {"x": X, "r": ints(1, -1)}, {"x": X, "r": ints(2, 1)}),
    "more of the top than there is": ("TopK", {}, {"x": X, "k": ints(5)}, {"x": X, "k": ints(4)}),
    "slice with step 0": (
        "Slice",
        {},
        {"x": X, "b": ints(0), "e": ints(2), "a": ints(0), "t": ints(0)},
        {"x": X, "b": ints(MAX), "e": ints(MIN), "a": ints(0), "t": ints(-1)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_and_not_a_crash(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MEMORY_LIMIT", "256M")
    op, attributes, hostile, harmless = CASES[case]
    outputs = {"TopK": 2}.get(op, 1)
    if outputs != 1:
        exe = top_k()
    else:
        exe = model(op, hostile, **attributes)
    with pytest.raises(tw.RuntimeFault) as raised:
        exe.run(hostile)
    assert "it" in str(raised.value) or "memory" in str(raised.value)
    for array in exe.run(harmless).values():
        assert array.size < 10_000


def top_k() -> tw.Executable:
    """TopK has two results."""
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], name="it")
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"]),
        helper.make_tensor_value_info("k", TensorProto.INT64, [1]),
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in ("y", "i")]
    graph = helper.make_graph([node], "g", inputs, results)
    return tw.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
