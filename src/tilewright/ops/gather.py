"""Gathers: elements picked by tensors of indices.

    rows = checked_indices(i: i64[k], limit=n, what="Gather 'embed'")
    take(x: f32[n, 4], rows, axis=0)  ->  f32[k, 4]

Indices come from outside, so `checked_indices` comes before every use of them: it ends the call with a fault that
names the first index that is out of range, and wraps negative ones. The gathers themselves take indices that were
checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.build import less, select
from tilewright.expr.nodes import And, Const, Expr, Le, Var, const
from tilewright.expr.work import Work
from tilewright.graph.op import Arrays, Attributes, Op, Pattern, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Assert, Buffer, Let, Stmt, Store
from tilewright.ops.blocks import add_block, then
from tilewright.ops.checks import check_axis, check_count, check_index_type, check_rank, counted, number
from tilewright.report.errors import RuntimeFault
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]


class CheckedIndicesAttributes(Attributes):
    """`limit`: indices are in [-limit, limit), or, where those below zero do not count from the end (`from_end`), in
    [0, limit); `what` says whose indices they are."""

    limit: Expr
    what: str
    from_end: bool = True

    @property
    def message(self) -> str:
        """The fault's text; {0} is the index and {1} the limit. Braces in `what` would be taken for places of values,
        and an @ between spaces for the mark before a place in the model."""
        what = self.what.replace("{", "(").replace("}", ")").replace(" @ ", "@")
        return (
            f"{what}: index {{0}} is outside [-{{1}}, {{1}})"
            if self.from_end
            else f"{what}: {{0}} is outside [0, {{1}})"
        )

    @property
    def least(self) -> Expr:
        """The least index."""
        return const(0) - self.limit if self.from_end else const(0)


class CheckedIndices(Op):
    """The indices with `limit` added to the negative ones; a fault when one is outside [-limit, limit)."""

    name = "checked_indices"
    attributes = CheckedIndicesAttributes

    def infer(self, context: TypeContext, inputs: Types, attrs: CheckedIndicesAttributes) -> Types:
        check_count(context, inputs, 1)
        check_index_type(context, inputs[0], "the indices")
        return inputs

    def meaning(self, inputs: Arrays, attrs: CheckedIndicesAttributes) -> Arrays:
        (indices,) = inputs
        limit = number(attrs.limit)
        assert limit is not None
        wrong = indices[(indices < (-limit if attrs.from_end else 0)) | (indices >= limit)]
        if wrong.size:
            raise RuntimeFault(attrs.message.format(wrong[0], limit))
        return (np.where(indices < 0, indices + limit, indices),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (indices,), (out,) = inputs, outputs

        def check(*at: Expr) -> Stmt:
            index = Var("index", dtypes.index, None)
            inside = And(Le(attrs.least, index), less(index, attrs.limit))
            return then(
                Let(index, load(indices, *at)),
                Assert(inside, attrs.message, (index, attrs.limit)),
                Store(out, at, select(less(index, 0), index + attrs.limit, index)),
            )

        add_block(build, "checked_indices", out.shape, check)


class AxisAttributes(Attributes):
    """`axis`: the dimension that the indices count along."""

    axis: int


class Take(Op):
    """x with the axis replaced by the dimensions of the indices: out[i, j, k] = x[i, idx[j], k] for axis 1. Inputs: x,
    and checked i64 indices."""

    name = "take"
    reads_part = True
    cost = Work(plain=4)
    attributes = AxisAttributes
    pattern = Pattern.MAP

    def infer(self, context: TypeContext, inputs: Types, attrs: AxisAttributes) -> Types:
        check_count(context, inputs, 2)
        x, indices = inputs
        check_axis(context, x, attrs.axis)
        check_index_type(context, indices, "the indices")
        shape = x.shape[: attrs.axis] + indices.shape + x.shape[attrs.axis + 1 :]
        return (TensorType(x.dtype, shape),)

    def reordered(self, attrs: AxisAttributes, order: tuple[int, ...]) -> Attributes:
        return AxisAttributes(order.index(attrs.axis))

    def meaning(self, inputs: Arrays, attrs: AxisAttributes) -> Arrays:
        return (np.asarray(np.take(inputs[0], inputs[1], axis=attrs.axis)),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x, indices), (out,) = inputs, outputs
        first, after = attrs.axis, attrs.axis + len(indices.shape)
        build.compute("take", out, lambda *at: load(x, *at[:first], load(indices, *at[first:after]), *at[after:]))


class GatherElements(Op):
    """out[i, j] = x[idx[i, j], j] for axis 0: one index for each output element. Inputs: x, and checked i64 indices of
    x's rank, no larger than x along the other dimensions."""

    name = "gather_elements"
    reads_part = True
    cost = Work(gathers=1)
    attributes = AxisAttributes
    pattern = Pattern.MAP

    def infer(self, context: TypeContext, inputs: Types, attrs: AxisAttributes) -> Types:
        check_count(context, inputs, 2)
        x, indices = inputs
        check_axis(context, x, attrs.axis)
        check_covered(context, x, indices, attrs.axis)
        return (TensorType(x.dtype, indices.shape),)

    def meaning(self, inputs: Arrays, attrs: AxisAttributes) -> Arrays:
        return (inputs[0][element_index(inputs[1], attrs.axis)],)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x, indices), (out,) = inputs, outputs
        build.compute(
            "gather_elements",
            out,
            lambda *at: load(x, *at[: attrs.axis], load(indices, *at), *at[attrs.axis + 1 :]),
        )


def check_covered(context: TypeContext, x: TensorType, indices: TensorType, axis: int) -> None:
    """The indices are i64, of x's rank, and x is at least as large along every dimension but the axis."""
    check_index_type(context, indices, "the indices")
    check_rank(context, indices, x.rank, f"the tensor {x}")
    for d, (extent, limit) in enumerate(zip(indices.shape, x.shape, strict=True)):
        if d != axis and extent is not limit:
            context.require(Le(extent, limit), f"the indices {indices} are larger than {x} in dimension {d}")


def element_index(indices: np.ndarray[Any, Any], axis: int) -> tuple[np.ndarray[Any, Any], ...]:
    """The NumPy index of the elements that `indices` picks along the axis, the other indices being its own."""
    index = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    index[axis] = indices
    return tuple(index)


class GatherNdAttributes(Attributes):
    """`batch_dims`: the number of leading dimensions that x and the indices share."""

    batch_dims: int = 0


class GatherNd(Op):
    """out[b, i, …] = x[b, idx[b, i, 0], idx[b, i, 1], …]: the last dimension of the indices holds one index for each of
    the next dimensions of x. Inputs: x, and i64 indices of which every component was checked."""

    name = "gather_nd"
    reads_part = True
    cost = Work(gathers=1)
    attributes = GatherNdAttributes
    pattern = Pattern.MAP

    def infer(self, context: TypeContext, inputs: Types, attrs: GatherNdAttributes) -> Types:
        check_count(context, inputs, 2)
        x, indices = inputs
        batch = attrs.batch_dims
        depth = check_tuples(context, x, indices, batch)
        for d in range(batch):
            context.require_equal(x.shape[d], indices.shape[d], f"the sizes of batch dimension {d}")
        return (TensorType(x.dtype, indices.shape[:-1] + x.shape[batch + depth :]),)

    def meaning(self, inputs: Arrays, attrs: GatherNdAttributes) -> Arrays:
        x, indices = inputs
        rows = indices.shape[:-1]
        grid = np.ogrid[tuple(slice(n) for n in rows)] if rows else ()
        index = [*grid[: attrs.batch_dims], *[indices[..., c] for c in range(indices.shape[-1])]]
        if not index:
            return (np.broadcast_to(x, rows + x.shape).copy(),)
        return (np.asarray(x[tuple(np.broadcast_to(part, rows) for part in index)]),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x, indices), (out,) = inputs, outputs
        depth, rows = number(indices.shape[-1]), len(indices.shape) - 1
        assert depth is not None

        def element(*at: Expr) -> Expr:
            picked = [load(indices, *at[:rows], c) for c in range(depth)]
            return load(x, *at[: attrs.batch_dims], *picked, *at[rows:])

        build.compute("gather_nd", out, element)


def check_tuples(context: TypeContext, x: TensorType, indices: TensorType, batch: int) -> int:
    """The constant length of the index tuples in the last dimension of i64 `indices`: no longer than x has dimensions
    after `batch` ones."""
    check_index_type(context, indices, "the indices")
    if indices.rank <= batch or not isinstance(indices.shape[-1], Const):
        why = f"{indices} has no last dimension of a constant size after {counted(batch, 'batch dimension')}"
        raise context.error(why, "the size of the last dimension is the number of indices to an element")
    depth = int(indices.shape[-1].value)
    if batch < 0 or batch + depth > x.rank:
        why = f"tuples of {depth} indices after {counted(batch, 'batch dimension')} are too long for {x}"
        raise context.error(why)
    return depth


for _op in (CheckedIndices(), Take(), GatherElements(), GatherNd()):
    register(_op)
