"""What a TensorProto says about itself: element type, shape, size, and the elements it holds in typed fields.

The promise: a shape is checked in exact integers before any array of it exists, and elements that do not fit their
declared type, or are too few or too many, are an error and never truncated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from tilewright.frontends.build.names import clip
from tilewright.frontends.onnx.limits import MAX_RANK, Limits
from tilewright.report.errors import UserError

if TYPE_CHECKING:
    from onnx import TensorProto

_FIX_CONVERT = (
    "convert the tensor to a supported type (bool, int2 … int64, uint2 … uint64, float4e2m1, float8e…, float16, "
    "bfloat16, float32, float64)"
)
_FIX_EXPORT = "export the model again; onnx.checker.check_model(path) lists what else is wrong with it"


@dataclass(frozen=True, slots=True, eq=False)
class Element:
    """An ONNX element type: its NumPy type, the typed field of its values, the type they have there, and how many
    elements files pack into a byte, the first into the lowest bits; 1 where an element is one byte or several."""

    name: str
    dtype: np.dtype
    field: str
    stored: np.dtype
    packed: int = 1

    def nbytes(self, count: int) -> int:
        """The bytes that this many elements are in a file."""
        return -(-count // self.packed) * self.dtype.itemsize

    @property
    def bits(self) -> np.dtype:
        """The type of what a typed field holds: numbers, or their bit patterns where the field's type has no such
        numbers."""
        patterns = self.field == "int32_data" and self.dtype.kind not in "biu"
        return np.dtype(f"u{self.dtype.itemsize}") if patterns else self.dtype


def _element(name: str, dtype: object, field: str, stored: str, packed: int = 1) -> Element:
    return Element(name, np.dtype(dtype), field, np.dtype(stored), packed)  # type: ignore[call-overload]


ELEMENTS = {
    1: _element("float32", "<f4", "float_data", "<f4"),
    2: _element("uint8", "u1", "int32_data", "<i4"),
    3: _element("int8", "i1", "int32_data", "<i4"),
    4: _element("uint16", "<u2", "int32_data", "<i4"),
    5: _element("int16", "<i2", "int32_data", "<i4"),
    6: _element("int32", "<i4", "int32_data", "<i4"),
    7: _element("int64", "<i8", "int64_data", "<i8"),
    9: _element("bool", "?", "int32_data", "<i4"),
    10: _element("float16", "<f2", "int32_data", "<i4"),
    11: _element("float64", "<f8", "double_data", "<f8"),
    12: _element("uint32", "<u4", "uint64_data", "<u8"),
    13: _element("uint64", "<u8", "uint64_data", "<u8"),
    16: _element("bfloat16", ml_dtypes.bfloat16, "int32_data", "<i4"),
    17: _element("float8e4m3fn", ml_dtypes.float8_e4m3fn, "int32_data", "<i4"),
    18: _element("float8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, "int32_data", "<i4"),
    19: _element("float8e5m2", ml_dtypes.float8_e5m2, "int32_data", "<i4"),
    20: _element("float8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, "int32_data", "<i4"),
    21: _element("uint4", ml_dtypes.uint4, "int32_data", "<i4", 2),
    22: _element("int4", ml_dtypes.int4, "int32_data", "<i4", 2),
    23: _element("float4e2m1", ml_dtypes.float4_e2m1fn, "int32_data", "<i4", 2),
    24: _element("float8e8m0", ml_dtypes.float8_e8m0fnu, "int32_data", "<i4"),
    25: _element("uint2", ml_dtypes.uint2, "int32_data", "<i4", 4),
    26: _element("int2", ml_dtypes.int2, "int32_data", "<i4", 4),
}
"""TensorProto.DataType → element type, for the types this compiler knows."""

_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def element_of(tensor: TensorProto, where: str) -> Element:
    """The tensor's element type; UserError if it has none that is supported."""
    found = ELEMENTS.get(tensor.data_type)
    if found is not None:
        return found
    from onnx import TensorProto

    names = {number: name.lower() for name, number in TensorProto.DataType.items()}
    why = f"its element type is {names.get(tensor.data_type, 'unknown')} (number {tensor.data_type})"
    raise UserError("the element type of a tensor is not supported", where=where, why=why, fix=_FIX_CONVERT)


def shape_of(tensor: TensorProto, element: Element, limits: Limits, where: str) -> tuple[tuple[int, ...], int]:
    """The tensor's shape and its size in bytes in a file; UserError for shapes that no array can have."""
    rank = len(tensor.dims)
    if rank > MAX_RANK:
        raise bad_tensor("has a wrong shape", where, f"it has {rank} dimensions; at most {MAX_RANK} are possible")
    shape = tuple(tensor.dims)
    nbytes = element.dtype.itemsize
    for dim in shape:
        if dim < 0:
            raise bad_tensor("has a wrong shape", where, f"its shape is {list(shape)}: a dimension is negative")
        nbytes *= dim or 1
    if nbytes > limits.tensor_bytes:
        raise UserError(
            "a tensor is too large",
            where=where,
            why=f"{list(shape)} {element.name} elements are {nbytes} bytes, past tensor_bytes = {limits.tensor_bytes}",
            fix="if you trust the file, open it with a higher limit: open_model(path, Limits(tensor_bytes=…))",
        )
    return shape, 0 if 0 in shape else element.nbytes(math.prod(shape))


def data_in_proto(tensor: TensorProto, element: Element, shape: tuple[int, ...], nbytes: int, where: str) -> np.ndarray:
    """The elements of a tensor that carries them itself, as a read-only array."""
    used = typed_fields(tensor)
    raw = tensor.raw_data
    if len(used) + bool(raw) > 1:
        both = " and ".join([*used, *(["raw_data"] if raw else [])])
        raise bad_tensor("has ambiguous data", where, f"it holds elements in {both}")
    if used and used[0] != element.field:
        why = f"elements of {element.name} belong in {element.field} or raw_data, but it has {used[0]}"
        raise bad_tensor("has data of another type", where, why)
    if used:
        return _typed(tensor, element, shape, nbytes, where)
    check_length(len(raw), element, shape, nbytes, where)
    return view(raw, 0, element, shape, where)


def typed_fields(tensor: TensorProto) -> list[str]:
    """The names of the typed fields that hold elements."""
    return [field for field in _FIELDS if len(getattr(tensor, field))]


def view(buffer: object, offset: int, element: Element, shape: tuple[int, ...], where: str) -> np.ndarray:
    """A read-only array over bytes of a buffer, which need not be aligned to the element's size; of elements that are
    packed, an array of its own with a byte each."""
    if 0 in shape:
        array = np.empty(shape, element.dtype)
        array.flags.writeable = False
        return array
    count = math.prod(shape)
    if element.packed > 1:
        packed = np.frombuffer(buffer, np.uint8, element.nbytes(count), offset)  # type: ignore[call-overload]
        return _unpacked(packed, element, shape)
    if element.name == "bool" and int(np.frombuffer(buffer, np.uint8, count, offset).max()) > 1:  # type: ignore[call-overload]
        raise bad_tensor("has wrong data", where, "it is a bool tensor with bytes other than 0 and 1")
    flat: np.ndarray = np.frombuffer(buffer, element.dtype, count, offset)  # type: ignore[call-overload]
    return flat.reshape(shape)


def _unpacked(packed: np.ndarray, element: Element, shape: tuple[int, ...]) -> np.ndarray:
    """The elements of packed bytes, read-only; what the last byte has beyond them is ignored."""
    width = 8 // element.packed
    codes = np.empty((packed.size, element.packed), np.uint8)
    for place in range(element.packed):
        codes[:, place] = packed >> (place * width) & ((1 << width) - 1)
    array = codes.reshape(-1)[: math.prod(shape)].view(element.dtype).reshape(shape)
    array.flags.writeable = False
    return array


def check_length(have: int, element: Element, shape: tuple[int, ...], nbytes: int, where: str) -> None:
    """Does a tensor's data have the length that its type and shape ask for?"""
    if have != nbytes:
        why = f"{list(shape)} elements of {element.name} are {nbytes} bytes, but it has {have}"
        raise bad_tensor("has data of the wrong length", where, why)


def check_count(tensor: TensorProto, element: Element, shape: tuple[int, ...], nbytes: int, where: str) -> None:
    """Does a tensor's typed field have the number of elements, or of packed bytes, that its shape asks for?"""
    count, have = nbytes // element.dtype.itemsize, len(getattr(tensor, element.field))
    if have != count:
        what = "elements" if element.packed == 1 else f"bytes with {element.packed} elements each"
        why = f"{list(shape)} are {count} {what}, but {element.field} has {have}"
        raise bad_tensor("has data of the wrong length", where, why)


def bad_tensor(problem: str, where: str, why: str, fix: str | None = None) -> UserError:
    """The error for a tensor that contradicts itself, or its file."""
    return UserError(f"a tensor {problem}", where=where, why=why, fix=fix or _FIX_EXPORT)


def tensor_name(tensor: TensorProto, source: str) -> str:
    """How errors call a tensor: its name and its model."""
    return f"tensor {clip(tensor.name)} in {source}" if tensor.name else f"a tensor without a name in {source}"


def _typed(tensor: TensorProto, element: Element, shape: tuple[int, ...], nbytes: int, where: str) -> np.ndarray:
    """Elements from a typed field: one field element each, or for each byte of packed ones."""
    check_count(tensor, element, shape, nbytes, where)
    count, bits = nbytes // element.dtype.itemsize, element.bits
    stored = np.fromiter(getattr(tensor, element.field), element.stored, count)
    low, high = (0, 1) if bits.kind == "b" else (0, 0) if bits.kind == "f" else (np.iinfo(bits).min, np.iinfo(bits).max)
    if bits.kind != "f" and count and not (low <= int(stored.min()) and int(stored.max()) <= high):
        why = f"{element.field} has elements outside {low} … {high}, the values of {element.name}"
        raise bad_tensor("has wrong data", where, why)
    if element.packed > 1:
        return _unpacked(stored.astype(bits), element, shape)
    array = stored.astype(bits, copy=False).view(element.dtype).reshape(shape)
    array.flags.writeable = False
    return array
