"""The strides of a nest's accesses along its loops: the basis for choosing a vector axis."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.analysis.accesses import Access, accesses, stride
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Const, Var
from tilewright.loops.nodes import Stmt


def moving_accesses(stmt: Stmt) -> list[Access]:
    """Every load and store in a statement, but for the loads of what the same statement stores: an accumulator."""
    found = accesses(stmt)
    stored = {(a.statement, a.buffer, a.indices) for a in found if a.is_store}
    return [a for a in found if a.is_store or (a.statement, a.buffer, a.indices) not in stored]


def step(access: Access, var: Var) -> int | None:
    """Elements that an access moves for a step of `var`; None when it is no constant or the access moves unevenly."""
    moved = stride(access, var)
    return int(moved.value) if isinstance(moved, Const) else None


def is_one_piece(found: Collection[Access], outer: Var, inner: Var, size: int) -> bool:
    """Whether a step of the outer loop moves each access as far as all `size` steps of the inner one."""
    moved = [(stride(a, outer), stride(a, inner)) for a in found]
    return all(a is not None and b is not None and polynomial(a) == polynomial(b * size) for a, b in moved)


STRIDED_PAIR = 3.0
"""A load of every second element: two vectors and a shuffle."""


def vector_cost(group: list[Access], var: Var, lanes: int) -> float:
    """What one vector of iterations over `var` costs in loads and stores: 1 for a contiguous or repeated access, one
    for each lane of a strided access."""
    return sum(_cost(access, step(access, var), lanes) for access in group)


def _cost(access: Access, stride: int | None, lanes: int) -> float:
    if stride in (0, 1):
        return 1.0
    return min(STRIDED_PAIR, lanes) if stride == 2 and not access.is_store else float(lanes)
