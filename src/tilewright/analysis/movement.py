"""The strides of a nest's accesses along its loops: the basis for choosing a vector axis."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.analysis.accesses import Access, accesses, stride
from tilewright.analysis.iterations import is_spatial, summed_in
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Const, Var
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import loops_inside
from tilewright.loops.nodes import For, LoopKind, Stmt


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


def are_one_piece(outer: For, inner: For, size: int) -> bool:
    """Whether two loops count points, or terms of the same sums, and an iteration of the outer one moves as far as all
    `size` of the loops up to the inner one."""
    if not outer.kind is inner.kind is LoopKind.SERIAL or inner.begin != Const(0, inner.var.dtype):
        return False
    sums = summed_in(inner)
    if sums and all({outer.var, inner.var} <= summed_loops(s.block) for s in sums):
        return is_one_piece([a for a in moving_accesses(inner) if not a.is_store], outer.var, inner.var, size)
    return is_spatial(outer) and is_spatial(inner) and is_one_piece(accesses(outer), outer.var, inner.var, size)


def vector_cost(group: list[Access], var: Var, lanes: int) -> float:
    """What one vector of iterations over `var` costs in loads and stores: 1 for a contiguous or repeated access, one
    for each lane of a strided access."""
    return sum(_cost(access, step(access, var), lanes) for access in group)


def _cost(access: Access, stride: int | None, lanes: int) -> float:
    if stride in (0, 1):
        return 1.0
    return min(STRIDED_PAIR, lanes) if stride == 2 and not access.is_store else float(lanes)


def has(size: int | None, least: int) -> bool:
    """Whether a loop has so many iterations, as far as it is known."""
    return size is None or size >= least


def reduces_contiguously(body: Stmt, lanes: int = 0) -> bool:
    """Whether every accumulation inside runs over contiguous data, at least so much of it, in its innermost loop."""
    found = [s for s in loops_inside(body) if any(made.block.reduce for made in summed_in(s))]
    return bool(found) and all(has(s.size, lanes) and _is_contiguous(s) for s in found)


def _is_contiguous(loop: For) -> bool:
    """Whether every load inside moves by one element or stays, and at least one moves."""
    steps = [step(a, loop.var) for a in moving_accesses(loop) if not a.is_store]
    return all(s in (0, 1) for s in steps) and 1 in steps
