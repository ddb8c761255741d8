"""Sparse tensors of files (COO: the elements that are not zero, and where they are), as dense arrays.

    values [NNZ]    indices [NNZ]          places in row-major order
                    indices [NNZ, rank]    a coordinate each

The promise: indices are inside the shape, ascend, and so name no element twice; the shape's size is bounded before an
array of it exists.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tilewright.frontends.onnx.limits import MAX_RANK
from tilewright.frontends.onnx.tensors import bad_tensor
from tilewright.report.errors import UserError

if TYPE_CHECKING:
    from onnx import SparseTensorProto


def dense_bytes(sparse: SparseTensorProto, itemsize: int, where: str) -> int:
    """The bytes of the dense tensor; UserError for shapes that no array can have."""
    if len(sparse.dims) > MAX_RANK:
        raise bad_tensor("has a wrong shape", where, f"it has {len(sparse.dims)} dimensions, more than {MAX_RANK}")
    if any(dim < 0 for dim in sparse.dims):
        raise bad_tensor("has a wrong shape", where, f"its shape is {list(sparse.dims)}: a dimension is negative")
    return math.prod(map(int, sparse.dims)) * itemsize


def check_room(size: int, limit: int, where: str) -> None:
    """UserError where the sparse tensors of a model, made dense, come to so many bytes that they are too large."""
    if size > limit:
        raise UserError(
            "sparse tensors are too large",
            where=where,
            why=f"made dense they are {size} bytes up to this one, past dense_bytes = {limit}",
            fix="if you trust the file, open it with a higher limit: open_model(path, Limits(dense_bytes=…))",
        )


def dense(shape: tuple[int, ...], values: np.ndarray, indices: np.ndarray, where: str) -> np.ndarray:
    """The dense array, read-only. UserError for values and indices that are none of a sparse tensor of this shape."""
    if values.ndim != 1:
        raise bad_tensor("has wrong values", where, f"they have {values.ndim} dimensions, not 1")
    if indices.dtype != np.int64:
        raise bad_tensor("has wrong indices", where, f"they are {indices.dtype}, not int64")
    if indices.shape not in ((len(values),), (len(values), len(shape))):
        why = f"they are of shape {list(indices.shape)}, for {len(values)} values in {len(shape)} dimensions"
        raise bad_tensor("has wrong indices", where, why)
    made = np.zeros(math.prod(shape), values.dtype)
    made[_places(shape, indices, where)] = values
    made.flags.writeable = False
    return made.reshape(shape)


def _places(shape: tuple[int, ...], indices: np.ndarray, where: str) -> np.ndarray:
    """The places in row-major order, which are inside and ascend. UserError, with the first index that does not."""
    ends = shape if indices.ndim == 2 else (math.prod(shape),)
    rows = indices.reshape(len(indices), len(ends))
    outside = np.flatnonzero(((rows < 0) | (rows >= np.array(ends, np.int64))).any(1))
    if len(outside):
        n = int(outside[0])
        raise bad_tensor("has wrong indices", where, f"index {n} is {rows[n].tolist()}, outside of {list(shape)}")
    steps = [math.prod(ends[n + 1 :]) for n in range(len(ends))]
    places = np.asarray(rows @ np.array(steps, np.int64), np.int64)
    late = np.flatnonzero(places[1:] <= places[:-1])
    if len(late):
        n = int(late[0]) + 1
        how = "is there twice" if places[n] == places[n - 1] else "comes after a greater one"
        raise bad_tensor("has wrong indices", where, f"index {n}, {rows[n].tolist()}, {how}: they must ascend")
    return places
