"""Dynamic permutations of dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.build import equal, select
from tilewright.expr.nodes import Expr, const
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor


def permuted(b: Emit, x: Tensor, places: Sequence[Expr]) -> Tensor:
    """The transpose that puts dimension d at `places[d]`, which is a permutation of 0 … rank-1 at run time.

    It gathers from the flattened tensor: element (i0, i1, …) of the result is at the sum of i_p times the stride of
    the dimension that place p takes.
    """
    strides = [product(x.shape[d + 1 :]) for d in range(x.rank)]
    shape = [_at_place(places, x.shape, p) for p in range(x.rank)]
    index: Tensor | None = None
    for p in range(x.rank):
        part = b.align(b.iota((shape[p],), 0) * b.of_size(_at_place(places, strides, p)), p, x.rank)
        index = part if index is None else index + part
    if index is None:
        return x
    return b.take(b.reshape(x, (product(x.shape),)), index, 0)


def _at_place(places: Sequence[Expr], values: Sequence[Expr], place: int) -> Expr:
    """The value that belongs to the dimension put at `place`."""
    chosen: Expr = const(0)
    for position, value in zip(places, values, strict=True):
        chosen = select(equal(position, place), value, chosen)
    return chosen
