"""Damaged models: whatever the bytes are, nothing but UserError comes out, and no memory is asked for in vain."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx_models import call, external, folder, functions, little_memory, model, raw, read_all

from tilewright.frontends.onnx.file import from_bytes
from tilewright.report.errors import UserError

__all__ = ["folder", "little_memory"]

pytestmark = pytest.mark.usefixtures("folder")


def varied() -> ModelProto:
    """A small model with every kind of place that the reader looks at."""
    rng = np.random.default_rng(7)
    weights = [
        raw("w", [10, 30], rng.standard_normal((10, 30), "f4").tobytes()),
        raw("flags", [400], rng.integers(0, 2, 400, "u1").tobytes(), TensorProto.BOOL),
        helper.make_tensor("typed", TensorProto.FLOAT, [90], [0.5] * 90),
        helper.make_tensor("ints", TensorProto.INT64, [3], [1, -2, 3]),
        helper.make_tensor("half", TensorProto.FLOAT16, [2], [1.0, 2.0]),
    ]
    other = external([8], location="w.bin", offset="4", length="32").graph.initializer[0]
    other.name = "outside"
    constant = helper.make_node("Constant", [], ["c"], value=raw("c", [100], bytes(400)))
    inner = helper.make_graph([constant], "then", [], [], [raw("i", [70], bytes(280))])
    branch = helper.make_node("If", ["p"], ["y"], then_branch=inner, else_branch=inner)
    proto = model([*weights, other], [branch, call("A")])
    proto.functions.append(functions(A=[constant]).functions[0])
    proto.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]))
    return proto


def open_or_refuse(data: bytes, base: Path) -> bool:
    try:
        read_all(from_bytes(data, base))
    except UserError:
        return False
    return True


@pytest.mark.usefixtures("little_memory")
def test_a_model_cut_anywhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    data = varied().SerializeToString()
    assert open_or_refuse(data, tmp_path)
    survivors = [n for n in range(len(data)) if open_or_refuse(data[:n], tmp_path)]
    whole_without_its_last_field = varied()
    del whole_without_its_last_field.functions[:]
    assert survivors == [len(whole_without_its_last_field.SerializeToString())]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_never_raise_anything_else(seed: int, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    data = varied().SerializeToString()
    rng = random.Random(seed)
    refused = 0
    for _ in range(700):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        refused += not open_or_refuse(bytes(changed), tmp_path)
    assert 50 < refused < 700


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("seed", range(2))
def test_flipped_structure_never_raises_anything_else(seed: int, tmp_path: Path) -> None:
    """The same with the flips where they hurt: outside of the tensors' data."""
    (tmp_path / "w.bin").write_bytes(bytes(64))
    data = varied().SerializeToString()
    text = [i for i in range(len(data)) if any(data[max(0, i - 6) : i]) and any(data[i : i + 6])]
    rng = random.Random(seed)
    for _ in range(700):
        changed = bytearray(data)
        changed[rng.choice(text)] ^= 1 << rng.randrange(8)
        open_or_refuse(bytes(changed), tmp_path)
