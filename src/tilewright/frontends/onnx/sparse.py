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
    places = indices if indices.ndim == 1 else _places(shape, indices, where)
    if len(places) and not (places[0] >= 0 and places[-1] < len(made) and np.all(places[1:] > places[:-1])):
        raise bad_tensor("has wrong indices", where, f"they do not ascend between 0 and {len(made) - 1}")
    made[places] = values
    made.flags.writeable = False
    return made.reshape(shape)


def _places(shape: tuple[int, ...], indices: np.ndarray, where: str) -> np.ndarray:
    """The places, in row-major order, of coordinates, which are checked."""
    if not indices.size:
        return np.zeros(len(indices), np.int64)
    if not (np.all(indices >= 0) and np.all(indices < np.array(shape))):
        raise bad_tensor("has wrong indices", where, f"they are not all inside of its shape {list(shape)}")
    steps = [math.prod(shape[n + 1 :]) for n in range(len(shape))]
    return np.asarray(indices @ np.array(steps, np.int64), np.int64)
