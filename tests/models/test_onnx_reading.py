"""ONNX models read without copying their weights: the values that the `onnx` package reads, fast and small."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tilewright.frontends.onnx.file import Location, ModelFile, from_bytes, from_proto, open_model
from tilewright.frontends.onnx.structure import check_opset, scopes, tensors
from tilewright.frontends.onnx.wire import varint

DTYPES = {
    TensorProto.BOOL: np.bool_,
    TensorProto.INT8: np.int8,
    TensorProto.INT16: np.int16,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
    TensorProto.UINT8: np.uint8,
    TensorProto.UINT16: np.uint16,
    TensorProto.UINT32: np.uint32,
    TensorProto.UINT64: np.uint64,
    TensorProto.FLOAT16: np.float16,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
}
EXTREMES = {"b": [0, 1], "i": [-1, 0, 1], "u": [0, 1], "f": [0.0, -0.0, 1.5, np.inf, -np.inf, np.nan]}


def values(dtype: type, count: int) -> np.ndarray:
    """Elements of a type with its extremes among them."""
    kind = np.dtype(dtype).kind
    picked = list(EXTREMES["f" if kind in "fV" else kind])
    if kind in "iu":
        picked += [np.iinfo(dtype).min, np.iinfo(dtype).max]
    return np.array([picked[i % len(picked)] for i in range(count)], dtype=dtype)


def typed(name: str, data_type: int, array: np.ndarray) -> TensorProto:
    """A tensor with its elements in the typed field, the 16-bit floats as their bit patterns."""
    tensor = TensorProto(name=name, data_type=data_type, dims=array.shape)
    flat = array.reshape(-1)
    bits = (
        flat.view({2: np.uint16, 1: np.uint8}[flat.itemsize])
        if flat.dtype.kind in "bVf" and flat.itemsize < 4
        else flat
    )
    field = {"float32": "float_data", "float64": "double_data", "int64": "int64_data"}.get(array.dtype.name)
    if field is None:
        field = "uint64_data" if array.dtype.name in ("uint32", "uint64") else "int32_data"
    getattr(tensor, field).extend(bits.tolist())
    return tensor


def model(*initializers: TensorProto) -> ModelProto:
    graph = helper.make_graph([], "g", [], [], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def only(opened: ModelFile) -> TensorProto:
    (tensor,) = opened.tensors()
    return tensor


@pytest.mark.parametrize("count", [0, 1, 6, 300])
@pytest.mark.parametrize("data_type", DTYPES)
def test_every_element_type(data_type: int, count: int, tmp_path: Path) -> None:
    expected = values(DTYPES[data_type], count).reshape(count, 1)
    in_raw = TensorProto(name="w", data_type=data_type, dims=expected.shape, raw_data=expected.tobytes())
    for tensor in (in_raw, typed("w", data_type, expected)):
        for opened in (from_proto(model(tensor)), save_and_open(model(tensor), tmp_path)):
            got = opened.tensor(only(opened))
            assert same_bits(got, expected)
            assert not got.flags.writeable


def save_and_open(proto: ModelProto, folder: Path) -> ModelFile:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return open_model(path)


def test_scalars_have_rank_zero() -> None:
    opened = from_proto(model(helper.make_tensor("w", TensorProto.FLOAT, [], [2.5])))
    assert same_bits(opened.tensor(only(opened)), np.array(2.5, np.float32))


def test_large_data_stays_in_the_file(tmp_path: Path) -> None:
    data = np.arange(1000, dtype=np.float32)
    opened = save_and_open(model(numpy_helper.from_array(data, "w")), tmp_path)
    tensor = only(opened)
    assert (tensor.name, list(tensor.dims), tensor.data_type) == ("w", [1000], TensorProto.FLOAT)
    assert opened.proto.ByteSize() < 200
    place = opened.locate(tensor)
    content = (tmp_path / "m.onnx").read_bytes()
    assert place == Location(str(tmp_path / "m.onnx"), content.index(data.tobytes()), 4000)
    assert np.shares_memory(opened.tensor(tensor), opened.tensor(tensor))


def test_small_data_and_models_in_memory_have_no_location(tmp_path: Path) -> None:
    small = save_and_open(model(numpy_helper.from_array(np.arange(64, dtype=np.float32), "w")), tmp_path)
    assert small.locate(only(small)) is None
    memory = from_proto(model(numpy_helper.from_array(np.arange(65, dtype=np.float32), "w")))
    assert memory.locate(only(memory)) is None
    assert memory.tensor(only(memory))[64] == 64


def test_views_at_any_alignment(tmp_path: Path) -> None:
    data = np.arange(200, dtype=np.float64)
    offsets = set()
    for padding in range(8):
        proto = model(numpy_helper.from_array(data, "w" * (padding + 1)))
        opened = save_and_open(proto, tmp_path)
        place = opened.locate(only(opened))
        assert place is not None
        offsets.add(place.offset % 8)
        got = opened.tensor(only(opened))
        assert same_bits(got, data)
        assert got.sum() == data.sum()
    assert len(offsets) == 8


def test_the_message_is_the_same_but_for_large_data() -> None:
    weights = numpy_helper.from_array(np.arange(600, dtype=np.float32).reshape(20, 30), "w")
    constant = helper.make_node("Constant", [], ["c"], value=weights, doc_string="d" * 400)
    listed = helper.make_node("Custom", [], ["c"], domain="d", many=[weights, weights])
    branch = helper.make_graph([constant, listed], "branch", [], [], [weights])
    proto = model(weights, helper.make_tensor("typed", TensorProto.DOUBLE, [50], range(50)))
    proto.graph.node.append(helper.make_node("If", ["p"], ["y"], then_branch=branch, else_branch=branch))
    opset = [helper.make_opsetid("", 20)]
    proto.functions.append(helper.make_function("f", "F", [], ["c"], [constant, proto.graph.node[0]], opset))
    indices = numpy_helper.from_array(np.arange(600), "i")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(weights, indices, [999]))
    proto.graph.sparse_initializer[0].values.name = "sparse"
    proto.training_info.add().initialization.CopyFrom(branch)
    opened = from_proto(proto)
    pairs = list(zip(tensors(scopes(proto)), opened.tensors(), strict=True))
    assert len(pairs) == 25
    for original, emptied in pairs:
        assert same_bits(opened.tensor(emptied), numpy_helper.to_array(original))
        assert emptied.ByteSize() < 200
        for tensor in (original, emptied):
            for field in ("raw_data", "double_data", "external_data", "data_location"):
                tensor.ClearField(field)
    assert opened.proto == proto


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_mix_of_tensors(data: st.DataObject) -> None:
    made = []
    for position in range(data.draw(st.integers(0, 6))):
        data_type = data.draw(st.sampled_from(sorted(DTYPES)))
        shape = data.draw(st.lists(st.sampled_from([0, 1, 2, 7, 31]), max_size=3))
        array = values(DTYPES[data_type], int(np.prod(shape))).reshape(shape)
        name = "n" * data.draw(st.integers(0, 200)) + str(position)
        in_raw = TensorProto(name=name, data_type=data_type, dims=shape, raw_data=array.tobytes())
        made.append(data.draw(st.sampled_from([in_raw, typed(name, data_type, array)])))
    proto = model(*made)
    opened = from_bytes(proto.SerializeToString())
    for original, emptied in zip(proto.graph.initializer, opened.tensors(), strict=True):
        assert (emptied.name, emptied.dims, emptied.data_type) == (original.name, original.dims, original.data_type)
        got = opened.tensor(emptied)
        if original.raw_data or not got.size:
            assert got.tobytes() == original.raw_data
        else:
            assert same_bits(got, values(DTYPES[original.data_type], got.size).reshape(got.shape))


def test_external_data_is_mapped_from_its_own_file(tmp_path: Path) -> None:
    arrays = [np.arange(n, dtype=np.float32) for n in (3, 500)]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(b"??" + b"".join(a.tobytes() for a in arrays))
    made = []
    for name, offset, length in (("a", 2, "12"), ("b", 14, None)):
        tensor = TensorProto(name=name, dims=[3 if name == "a" else 500], data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="./data/w.bin")
        tensor.external_data.add(key="offset", value=str(offset))
        if length is not None:
            tensor.external_data.add(key="length", value=length)
        made.append(tensor)
    opened = save_and_open(model(*made), tmp_path)
    for tensor, array in zip(opened.tensors(), arrays, strict=True):
        assert same_bits(opened.tensor(tensor), array)
    path = str(tmp_path / "data" / "w.bin")
    assert [opened.locate(t) for t in opened.tensors()] == [Location(path, 2, 12), Location(path, 14, 2000)]
    assert same_bits(next(map(from_proto(model(*made), tmp_path).tensor, made)), arrays[0])


def test_models_that_onnx_saves_with_external_data(tmp_path: Path) -> None:
    array = np.arange(5000, dtype=np.float32).reshape(50, 100)
    path = tmp_path / "m.onnx"
    onnx.save(model(numpy_helper.from_array(array, "w")), path, save_as_external_data=True, location="weights.bin")
    opened = open_model(path)
    assert same_bits(opened.tensor(only(opened)), array)


def test_arrays_outlive_the_model(tmp_path: Path) -> None:
    opened = save_and_open(model(numpy_helper.from_array(np.full(1000, 7.0), "w")), tmp_path)
    array = opened.tensor(only(opened))
    del opened
    os.unlink(tmp_path / "m.onnx")
    assert (array == 7.0).all()


def test_digest_covers_the_model_and_its_data_files(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    array = np.arange(5000, dtype=np.float32)
    onnx.save(model(numpy_helper.from_array(array, "w")), path, save_as_external_data=True, location="weights.bin")
    (tmp_path / "unused.bin").write_bytes(b"1")
    contents = [path.read_bytes(), (tmp_path / "weights.bin").read_bytes()]
    expected = hashlib.sha256(b"".join(len(c).to_bytes(8, "little") + c for c in contents)).hexdigest()
    assert open_model(path).digest() == expected
    changed = bytearray(contents[1])
    changed[-1] ^= 1
    (tmp_path / "weights.bin").write_bytes(changed)
    assert open_model(path).digest() != expected
    (tmp_path / "weights.bin").write_bytes(contents[1])
    assert open_model(path).digest() == expected
    assert from_bytes(contents[0], tmp_path).digest() == expected


def test_operator_sets_of_a_model() -> None:
    proto = model()
    proto.opset_import.extend([helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("custom", 7)])
    assert check_opset(proto) == {"": 20, "ai.onnx.ml": 3, "custom": 7}


def test_the_models_in_the_onnx_package() -> None:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    paths = sorted(path for path in folder.glob("*/*/model.onnx") if path.stat().st_size < 1 << 20)[::20]
    paths += sorted(folder.glob("light/*.onnx"))
    read = 0
    for path in paths:
        for original, emptied, opened in each_tensor(path):
            assert same_bits(opened.tensor(emptied), numpy_helper.to_array(original))
            read += 1
    assert len(paths) >= 9 and read > 0


def each_tensor(path: Path) -> list[tuple[TensorProto, TensorProto, ModelFile]]:
    opened = open_model(path)
    pairs = zip(tensors(scopes(onnx.load(path))), opened.tensors(), strict=True)
    return [(original, emptied, opened) for original, emptied in pairs if original.data_type in DTYPES]


@pytest.mark.usefixtures("own_garbage")
def test_a_hundred_thousand_empty_initializers_open_fast() -> None:
    proto = model(*(TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[0]) for i in range(100_000)))
    data = proto.SerializeToString()
    start = time.process_time()
    opened = from_bytes(data)
    assert time.process_time() - start < 2
    assert sum(1 for _ in opened.tensors()) == 100_000


MEASURE = """
import sys, time
from tilewright.frontends.onnx.file import open_model, from_bytes
from onnx import ModelProto
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
from_bytes(bytes.fromhex("3a0042040a001014"))
before, start = resident(), time.process_time()
opened = open_model(sys.argv[1])
arrays = [opened.tensor(t) for t in opened.tensors()]
print(time.process_time() - start, resident() - before, sum(a.nbytes for a in arrays), arrays[-1][-1])
"""


def test_opening_a_large_model_costs_neither_time_nor_memory(tmp_path: Path) -> None:
    """A file of 400 MB, most of it a hole: it opens in milliseconds and stays on the disk."""
    count, each = 50, 8 << 20
    proto = model(*(TensorProto(name=f"w{i}", data_type=1, dims=[each // 4], raw_data=b"") for i in range(count)))
    path = tmp_path / "large.onnx"
    write_with_holes(proto, each, path)
    out = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    seconds, grown, nbytes, last = float(out[0]), int(out[1]), int(out[2]), float(out[3])
    assert nbytes == count * each
    assert last == 1.0
    assert seconds < 0.5
    assert grown < 32 << 20


def write_with_holes(proto: ModelProto, each: int, path: Path) -> None:
    """Write the model with `each` bytes in every initializer: a hole of zeros, and 1.0 at the end."""
    heads = []
    for tensor in proto.graph.initializer:
        tensor.ClearField("raw_data")
        head = tensor.SerializeToString() + b"\x4a" + varint(each)
        heads.append(b"\x2a" + varint(len(head) + each) + head)
    with path.open("wb") as file:
        file.write(b"\x08\x0a\x42\x04\x0a\x00\x10\x14\x3a" + varint(sum(len(h) + each for h in heads)))
        for head in heads:
            file.write(head)
            file.seek(each - 4, os.SEEK_CUR)
            file.write(np.float32(1).tobytes())
