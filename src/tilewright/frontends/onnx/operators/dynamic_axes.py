"""Dynamic axes, as Squeeze, Unsqueeze and reductions have them: which dimensions they name."""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.nodes import Expr
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor


def count_of(b: Emit, axes: Tensor) -> int:
    """How many axes there are: a number, and no more than a tensor may have dimensions."""
    if axes.dtype.is_float:
        raise b.error(f"the axes must be integers, not {axes.dtype}")
    count = axes.static_shape()
    if count is None or len(count) != 1:
        raise Unsupported("the axes must be a list of constant length")
    b.require_few(count[0], f"there are {count[0]} axes")
    return count[0]


def named_dimensions(b: Emit, axes: Tensor, rank: int) -> list[Expr]:
    """For each dimension 1 where an axis names it, else 0. They are computed as data, and symbols in [0, 1]: conditions
    on each axis would make expressions of rank times as many."""
    places = b.reshape(b.checked(axes, rank, "axes"), (count_of(b, axes), 1))
    names = b.cast(b.map("eq", places, b.iota((1, rank), 1)), dtypes.i64)
    return b.sizes(b.map("min", b.reduce("sum", names, [0]), 1), "the axes", 0, 1)
