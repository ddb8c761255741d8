"""Tiny models for the tests of the command line, and a way to run a command in this process."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.cli.entry import application
from tilewright.target import native


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command ended with."""

    code: int
    out: str
    err: str


def invoke(*words: str | Path) -> Outcome:
    """What `tilewright WORDS…` ends with, run in this process."""
    texts = [str(word) for word in words]
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            application(texts)(args=texts, prog_name="tilewright")
        except SystemExit as end:
            code = int(end.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def save_affine(folder: Path) -> Path:
    """y = x * scale + 1 over x: f32[n, 3], scale: f32[3]."""
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    nodes = [helper.make_node("Mul", ["x", "scale"], ["t"]), helper.make_node("Add", ["t", "one"], ["y"])]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])]
    ports.append(helper.make_tensor_value_info("scale", TensorProto.FLOAT, [3]))
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])]
    return _save(folder / "affine.onnx", helper.make_graph(nodes, "affine", ports, result, [one]))


def save_rows(folder: Path, count: int = 2) -> Path:
    """rows = table[indices] for a table of so many rows: an index past it is a fault at run time."""
    table = helper.make_tensor("table", TensorProto.FLOAT, [count, 2], [n + 1.0 for n in range(2 * count)])
    nodes = [helper.make_node("Gather", ["table", "indices"], ["rows"], "pick")]
    ports = [helper.make_tensor_value_info("indices", TensorProto.INT64, ["k"])]
    result = [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["k", 2])]
    return _save(folder / "rows.onnx", helper.make_graph(nodes, "rows", ports, result, [table]))


def save_product(folder: Path, width: int) -> Path:
    """y = x @ w over x: f32[1, width], for random weights of order 1 / sqrt(width)."""
    weights = np.random.default_rng(0).standard_normal((width, width)) / np.sqrt(width)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width]) for name in ("x", "y")]
    constants = [numpy_helper.from_array(weights.astype(np.float32), "w")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return _save(folder / "product.onnx", helper.make_graph(nodes, "product", ports[:1], ports[1:], constants))


def save_slow_memory(folder: Path) -> Path:
    """A file for TILEWRIGHT_MACHINE: a machine whose time goes into reading weights, whatever it computes with."""
    place = folder / "slow-memory.json"
    rates = [300.0, 150.0, *[2.0] * (len(native().caches) - 2)]
    place.write_text(json.dumps({"peaks": {"cache_gbs": rates, "memory_gbs": 2.0}}), encoding="utf-8")
    return place


def _save(path: Path, graph: onnx.GraphProto) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path
