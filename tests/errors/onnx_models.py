"""ONNX models to make wrong, and the whole text of the errors that they are refused with."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from tilewright.frontends.onnx.file import ModelFile, open_model
from tilewright.frontends.onnx.limits import Limits
from tilewright.report.errors import UserError

FIX_DAMAGED = "check that the path names an ONNX model and that the file was copied or downloaded completely"
FIX_EXPORT = "export the model again; onnx.checker.check_model(path) lists what else is wrong with it"
FIX_SAVE = "save the model again with onnx.save(model, path, save_as_external_data=True, location='weights.bin')"
FIX_INLINE = "copy the data file itself beside the model, or save the model with its data inside"
FIX_EXISTS = "check that it exists and that you may read it"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def little_memory() -> Iterator[None]:
    """At most 256 MiB more than now: an allocation driven by a number in a file fails, and not with a UserError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def model(initializers: list[TensorProto] | None = None, nodes: list[NodeProto] | None = None) -> ModelProto:
    graph = helper.make_graph(nodes or [], "g", [], [], initializers or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def raw(name: str, dims: list[int], data: bytes, data_type: int = TensorProto.FLOAT) -> TensorProto:
    return TensorProto(name=name, dims=dims, data_type=data_type, raw_data=data)


def external(dims: list[int] | None = None, **entries: str) -> ModelProto:
    tensor = TensorProto(name="w", dims=[4] if dims is None else dims, data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return model([tensor])


def message(what: str, where: str | None, why: str, fix: str) -> str:
    return "\n".join([what, *([] if where is None else [f"at:   {where}"]), f"why:  {why}", f"fix:  {fix}"])


def refusal(proto: ModelProto | bytes, limits: Limits | None = None) -> str:
    data = proto if isinstance(proto, bytes) else proto.SerializeToString()
    Path("m.onnx").write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_all(open_model("m.onnx", limits))
    return str(caught.value)


def read_all(opened: ModelFile) -> int:
    return sum(opened.tensor(tensor).size for tensor in opened.tensors())


def damaged(why: str) -> str:
    return message("cannot read the file as an ONNX model", "'m.onnx'", why, FIX_DAMAGED)


def about_tensor(what: str, why: str, fix: str = FIX_EXPORT) -> str:
    return message(what, "tensor 'w' in 'm.onnx'", why, fix)


def call(name: str, overload: str = "") -> NodeProto:
    return NodeProto(op_type=name, domain="f", overload=overload)


def functions(**bodies: list[NodeProto]) -> ModelProto:
    proto = model()
    for name, nodes in bodies.items():
        proto.functions.append(helper.make_function("f", name, [], [], nodes, [helper.make_opsetid("", 20)]))
    return proto
