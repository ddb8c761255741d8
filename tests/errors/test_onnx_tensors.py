"""Tensors that contradict themselves: each is refused with one whole message."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper
from onnx_models import FIX_EXPORT, about_tensor, folder, message, model, raw, read_all, refusal

from tilewright.frontends.onnx.file import from_proto
from tilewright.frontends.onnx.limits import Limits
from tilewright.report.errors import UserError

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("tensor", "what", "why"),
    [
        (raw("w", [-1], b""), "a tensor has a wrong shape", "its shape is [-1]: a dimension is negative"),
        (
            raw("w", [1] * 33, bytes(4)),
            "a tensor has a wrong shape",
            "it has 33 dimensions; at most 32 are possible",
        ),
        (
            raw("w", [2, 3], bytes(20)),
            "a tensor has data of the wrong length",
            "[2, 3] elements of float32 are 24 bytes, but it has 20",
        ),
        (
            raw("w", [20, 30], bytes(2404)),
            "a tensor has data of the wrong length",
            "[20, 30] elements of float32 are 2400 bytes, but it has 2404",
        ),
        (
            raw("w", [0], bytes(4)),
            "a tensor has data of the wrong length",
            "[0] elements of float32 are 0 bytes, but it has 4",
        ),
        (
            TensorProto(name="w", dims=[2], data_type=1),
            "a tensor has data of the wrong length",
            "[2] elements of float32 are 8 bytes, but it has 0",
        ),
        (
            TensorProto(name="w", dims=[3], data_type=7, int64_data=[1, 2]),
            "a tensor has data of the wrong length",
            "[3] are 3 elements, but int64_data has 2",
        ),
        (
            TensorProto(name="w", dims=[1], data_type=1, float_data=[1.0], raw_data=bytes(4)),
            "a tensor has ambiguous data",
            "it holds elements in float_data and raw_data",
        ),
        (
            TensorProto(name="w", dims=[1], data_type=3, int32_data=[200]),
            "a tensor has wrong data",
            "int32_data has elements outside -128 … 127, the values of int8",
        ),
        (
            TensorProto(name="w", dims=[1], data_type=10, int32_data=[-1]),
            "a tensor has wrong data",
            "int32_data has elements outside 0 … 65535, the values of float16",
        ),
        (
            raw("w", [2], b"\x01\x02", TensorProto.BOOL),
            "a tensor has wrong data",
            "it is a bool tensor with bytes other than 0 and 1",
        ),
        (
            raw("w", [300], b"\x01" * 299 + b"\xff", TensorProto.BOOL),
            "a tensor has wrong data",
            "it is a bool tensor with bytes other than 0 and 1",
        ),
        (
            TensorProto(name="w", dims=[1], data_type=1, segment=TensorProto.Segment(begin=0, end=1)),
            "a tensor is stored in segments",
            "ONNX defines the field but no way to join the segments",
        ),
    ],
)
def test_tensor_that_contradicts_itself(tensor: TensorProto, what: str, why: str) -> None:
    assert refusal(model([tensor])) == about_tensor(what, why)


def test_elements_in_a_field_of_another_type() -> None:
    opened = from_proto(model())
    tensor = TensorProto(name="w", dims=[1], data_type=1, int64_data=[1])
    with pytest.raises(UserError) as caught:
        opened.tensor(tensor)
    assert str(caught.value) == message(
        "a tensor has data of another type",
        "tensor 'w' in the model in memory",
        "elements of float32 belong in float_data or raw_data, but it has int64_data",
        FIX_EXPORT,
    )


@pytest.mark.parametrize("dims", [[1 << 62, 1 << 62], [1 << 32, 1 << 32], [0, 1 << 62, 8], [1 << 39]])
def test_sizes_are_computed_without_overflow(dims: list[int]) -> None:
    nbytes = 4
    for dim in dims:
        nbytes *= dim or 1
    assert refusal(model([raw("w", dims, b"")])) == about_tensor(
        "a tensor is too large",
        f"{dims} float32 elements are {nbytes} bytes, past tensor_bytes = {1 << 40}",
        "if you trust the file, open it with a higher limit: open_model(path, Limits(tensor_bytes=…))",
    )


def test_limit_of_tensor_size_is_configurable() -> None:
    proto = model([raw("w", [1000], bytes(4000))])
    assert refusal(proto, Limits(tensor_bytes=3999)).startswith("a tensor is too large")
    assert read_all(from_proto(proto, limits=Limits(tensor_bytes=4000))) == 1000


@pytest.mark.parametrize(
    ("data_type", "name"),
    [
        (TensorProto.STRING, "string"),
        (TensorProto.COMPLEX64, "complex64"),
        (TensorProto.COMPLEX128, "complex128"),
        (TensorProto.FLOAT6E2M3, "float6e2m3"),
        (TensorProto.UNDEFINED, "undefined"),
        (999, "unknown"),
    ],
)
def test_unsupported_element_type_is_refused_when_used(data_type: int, name: str) -> None:
    opened = from_proto(model([TensorProto(name="w", dims=[1], data_type=data_type, string_data=[b"a"])]))
    (tensor,) = opened.tensors()
    with pytest.raises(UserError) as caught:
        opened.tensor(tensor)
    assert str(caught.value) == message(
        "the element type of a tensor is not supported",
        "tensor 'w' in the model in memory",
        f"its element type is {name} (number {data_type})",
        "convert the tensor to a supported type "
        "(bool, int2 … int64, uint2 … uint64, float4e2m1, float8e…, float16, bfloat16, float32, float64)",
    )


def test_tensors_in_attributes_subgraphs_and_functions_are_checked() -> None:
    bad = raw("w", [2, 3], bytes(20))
    constant = helper.make_node("Constant", [], ["c"], value=bad)
    inner = helper.make_graph([constant], "then", [], [])
    branch = helper.make_node("If", ["p"], ["y"], then_branch=inner, else_branch=helper.make_graph([], "else", [], []))
    opset = [helper.make_opsetid("", 20)]
    function = helper.make_function("f", "Body", [], ["c"], [constant], opset)
    in_function = model()
    in_function.functions.append(function)
    sparse = helper.make_sparse_tensor(bad, raw("i", [6], bytes(48), TensorProto.INT64), [9])
    in_sparse = model()
    in_sparse.graph.sparse_initializer.append(sparse)
    expected = about_tensor(
        "a tensor has data of the wrong length", "[2, 3] elements of float32 are 24 bytes, but it has 20"
    )
    for proto in (model(nodes=[constant]), model(nodes=[branch]), in_function, in_sparse):
        assert refusal(proto) == expected
