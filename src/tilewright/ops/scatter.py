"""Scatters: a copy of a tensor with some elements replaced, or combined, at places given by indices.

    scatter_elements(x: f32[n, 4], idx: i64[k, 4], updates: f32[k, 4], axis=0, reduction="add")

Updates apply in their row-major order, so the last one of an element stays, and sums of
floats have one order. The indices were checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from tilewright.expr.build import maximum, minimum
from tilewright.expr.nodes import Expr
from tilewright.expr.work import Work
from tilewright.graph.op import Arrays, Attributes, Op, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer, Store
from tilewright.ops.blocks import add_block, loops
from tilewright.ops.checks import check_axis, check_count, check_kind, check_rank, check_same_dtype, number
from tilewright.ops.gather import check_covered, check_tuples, element_index
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]


class Reduction(Enum):
    """What an update does to the element at its place: replaces it, or is combined with it."""

    NONE = "none"
    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"


_COMBINE: dict[Reduction, Callable[[Expr, Expr], Expr]] = {
    Reduction.NONE: lambda old, new: new,
    Reduction.ADD: lambda old, new: old + new,
    Reduction.MUL: lambda old, new: old * new,
    Reduction.MAX: maximum,
    Reduction.MIN: minimum,
}

_UFUNC: dict[Reduction, np.ufunc] = {
    Reduction.ADD: np.add,
    Reduction.MUL: np.multiply,
    Reduction.MAX: np.maximum,
    Reduction.MIN: np.minimum,
}


class ScatterElementsAttributes(Attributes):
    """`axis`: the dimension that the indices count along; `reduction`: what an update does."""

    axis: int
    reduction: Reduction = Reduction.NONE


class ScatterElements(Op):
    """x, then out[idx[i, j], j] = updates[i, j] for axis 0. Inputs: x, checked i64 indices of x's rank and no larger
    than x along the other dimensions, and updates of the shape of the indices."""

    name = "scatter_elements"
    rereads = True
    copies = True
    cost = Work(steps=1)
    attributes = ScatterElementsAttributes

    def infer(self, context: TypeContext, inputs: Types, attrs: ScatterElementsAttributes) -> Types:
        check_count(context, inputs, 3)
        x, indices, updates = inputs
        _check_updates(context, x, updates, attrs.reduction)
        check_axis(context, x, attrs.axis)
        check_covered(context, x, indices, attrs.axis)
        check_rank(context, updates, x.rank, f"the tensor {x}")
        for d in range(x.rank):
            what = f"the sizes of dimension {d} of the indices and the updates"
            context.require_equal(indices.shape[d], updates.shape[d], what)
        return (x,)

    def meaning(self, inputs: Arrays, attrs: ScatterElementsAttributes) -> Arrays:
        x, indices, updates = inputs
        return (_updated(x, element_index(indices, attrs.axis), updates, attrs.reduction),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x, indices, updates), (out,) = inputs, outputs
        axis, combine = attrs.axis, _COMBINE[attrs.reduction]
        build.compute("scatter_copy", out, lambda *at: load(x, *at))

        def update(step: Expr, *rest: Expr) -> Store:
            at = (*rest[:axis], step, *rest[axis:])
            place = (*rest[:axis], load(indices, *at), *rest[axis:])
            return Store(out, place, combine(load(out, *place), load(updates, *at)))

        others = [extent for d, extent in enumerate(updates.shape) if d != axis]
        _add_updates(build, "scatter_elements", (updates.shape[axis],), others, update, attrs.reduction)


class ScatterNdAttributes(Attributes):
    """`reduction`: what an update does to the element at its place."""

    reduction: Reduction = Reduction.NONE


class ScatterNd(Op):
    """x, then out[idx[i, 0], idx[i, 1], …] = updates[i, …]. Inputs: x, i64 indices of which every component was
    checked, whose last dimension holds an index for each leading dimension of x, and updates."""

    name = "scatter_nd"
    rereads = True
    copies = True
    cost = Work(steps=1)
    attributes = ScatterNdAttributes

    def infer(self, context: TypeContext, inputs: Types, attrs: ScatterNdAttributes) -> Types:
        check_count(context, inputs, 3)
        x, indices, updates = inputs
        _check_updates(context, x, updates, attrs.reduction)
        depth = check_tuples(context, x, indices, 0)
        expected = TensorType(x.dtype, indices.shape[:-1] + x.shape[depth:])
        check_rank(context, updates, expected.rank, f"one update for each index, {expected},")
        for d in range(expected.rank):
            what = f"the sizes of dimension {d} of the updates and of what the indices pick"
            context.require_equal(updates.shape[d], expected.shape[d], what)
        return (x,)

    def meaning(self, inputs: Arrays, attrs: ScatterNdAttributes) -> Arrays:
        x, indices, updates = inputs
        depth, rows = indices.shape[-1], math.prod(indices.shape[:-1])
        places = (np.zeros(rows, np.int64), *[indices[..., c].reshape(rows) for c in range(depth)])
        steps = updates.reshape(rows, *x.shape[depth:])
        return (_updated(x[None], places, steps, attrs.reduction)[0],)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x, indices, updates), (out,) = inputs, outputs
        depth, rows = number(indices.shape[-1]), len(indices.shape) - 1
        assert depth is not None
        combine = _COMBINE[attrs.reduction]
        build.compute("scatter_copy", out, lambda *at: load(x, *at))

        def update(*at: Expr) -> Store:
            place = (*[load(indices, *at[:rows], c) for c in range(depth)], *at[rows:])
            return Store(out, place, combine(load(out, *place), load(updates, *at)))

        _add_updates(build, "scatter_nd", indices.shape[:-1], out.shape[depth:], update, attrs.reduction)


def _add_updates(
    build: Builder,
    name: str,
    ordered: Sequence[Expr],
    spatial: Sequence[Expr],
    update: Callable[..., Store],
    reduction: Reduction,
) -> None:
    """The block of update(o, …, i, …) over `ordered` extents, whose points may meet at one place, and `spatial` ones.
    Updates that combine accumulate along reduce axes; those that replace are kept in order by loops inside the block.
    """
    if reduction is not Reduction.NONE:
        add_block(build, name, spatial, update, ordered=ordered)
        return
    add_block(build, name, spatial, lambda *at: loops("k", ordered, lambda *step: update(*step, *at)))


def _check_updates(context: TypeContext, x: TensorType, updates: TensorType, reduction: Reduction) -> None:
    check_same_dtype(context, (x, updates))
    if reduction is not Reduction.NONE:
        check_kind(context, x, "biuf")


def _updated(
    x: np.ndarray[Any, Any], index: tuple[Any, ...], updates: np.ndarray[Any, Any], reduction: Reduction
) -> np.ndarray[Any, Any]:
    """A copy of x with the updates applied in order: NumPy walks row-major arrays in that order."""
    out = np.array(x)
    index, updates = tuple(np.ascontiguousarray(part) for part in index), np.ascontiguousarray(updates)
    if reduction is Reduction.NONE:
        out[index] = updates
    else:
        with np.errstate(all="ignore"):
            _UFUNC[reduction].at(out, index, updates)
    return out


for _op in (ScatterElements(), ScatterNd()):
    register(_op)
