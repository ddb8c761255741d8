"""Files that are no models: errors that say what they are, and how to get to a model."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.store.kinds import recognise

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def _zip(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"content")
    return file.getvalue()


def _npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(3))
    return file.getvalue()


def _safetensors() -> bytes:
    head = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(8)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab\nsize 12345\n"
EXPORT = "export the model from its framework: torch.onnx.export(model, inputs, 'model.onnx')"
MODEL = "give the .onnx file, or what tilewright.compile saved"
LIBRARY = f"{MODEL}; a library of a model is loaded by tilewright.runtime.library.load(path)"
PAGE = "download the file itself; a page came, such as one of an error or of a login"
KINDS: dict[str, tuple[bytes, str, str]] = {
    "text": ("prêt\n".encode() * 900, "text that begins 'prêt'", MODEL),
    "json": (b'{"nodes": 1}', "JSON that begins '{\"nodes\": 1}'", MODEL),
    "short json": (b'{"n":1}', "JSON that begins '{\"n\":1}'", MODEL),
    "empty json": (b"[]\n", "JSON that begins '[]'", MODEL),
    "xml": (b'<?xml version="1.0"?><net/>', "XML that begins '<?xml version=\"1.0\"?><net/>'", MODEL),
    "html": (b"\n<!DOCTYPE html>\n<html>404</html>", "an HTML page", PAGE),
    "lfs": (POINTER, "a pointer of Git LFS, which stands for the file", "fetch the file itself: git lfs pull"),
    "zip": (_zip("m.onnx"), "a ZIP archive that begins with 'm.onnx'", "unpack it, and give the model that was in it"),
    "torch": (_zip("archive/data.pkl", "archive/version"), "a PyTorch file (.pt)", EXPORT),
    "pickle": (pickle.dumps({"a": 1}), "a pickle, as PyTorch and scikit-learn write them", EXPORT),
    "safetensors": (_safetensors(), "a safetensors file, weights without the model that uses them", EXPORT),
    "npz": (
        _npz(),
        "an archive of NumPy arrays (.npz)",
        "give the model; arrays are inputs, such as --input @x.npz",
    ),
    "gzip": (gzip.compress(b"x"), "a file that gzip compressed", "unpack it with gunzip, and give what was in it"),
    "elf": (b"\x7fELF\2\1\1" + bytes(64), "an ELF file, the machine code of a program or library", LIBRARY),
    "wasm": (b"\0asm\1" + bytes(64), "a module of WebAssembly", MODEL),
    "hdf5": (
        b"\x89HDF\r\n\x1a\n" + bytes(64),
        "an HDF5 file, as Keras writes them",
        "convert the model to ONNX, with tf2onnx",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_is_called_that(kind: str, tmp_path: Path) -> None:
    data, name, fix = KINDS[kind]
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(tw.UserError) as compiling:
        tw.compile(path)
    read = f"cannot read the file as an ONNX model\nat:   {str(path)!r}\nwhy:  it is {name}\nfix:  {fix}"
    assert str(compiling.value) == read
    with pytest.raises(tw.UserError) as loading:
        tw.load(path)
    assert str(loading.value) == f"cannot load {path}\nwhy:  it is {name}\nfix:  {fix}"


def test_models_and_compiled_files_in_the_place_of_each_other(tmp_path: Path) -> None:
    compiled = tmp_path / "model.onnx"
    tw.compile(tw.parse("graph main(x: f32[3]) -> y:\n  y: f32[3] = neg(x)")).save(compiled)
    with pytest.raises(tw.UserError, match="why:  it is a file that Tilewright compiled\nfix:  load it"):
        tw.compile(compiled)
    with pytest.raises(tw.UserError, match="why:  it is an ONNX model\nfix:  compile it"):
        tw.load(DIGITS)


@pytest.mark.skipif(sys.platform != "linux", reason="Python itself is an ELF file there")
def test_what_is_not_known_is_not_guessed() -> None:
    assert recognise(Path(sys.executable).read_bytes()) is not None
    assert recognise(b"") is None
    assert recognise(bytes(range(128, 255))) is None


def test_weights_that_are_a_pointer_are_called_that(tmp_path: Path) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[64], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="weights.bin")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight])
    (tmp_path / "model.onnx").write_bytes(helper.make_model(graph, ir_version=10).SerializeToString())
    (tmp_path / "weights.bin").write_bytes(POINTER)
    with pytest.raises(tw.UserError, match=r"which has 78: it is a pointer of Git LFS.*\n.*git lfs pull"):
        tw.compile(tmp_path / "model.onnx")
