"""Accumulations over contiguous data: the innermost reduce loop runs in several lanes, added up at the end."""

from __future__ import annotations

from tilewright.expr.nodes import Const
from tilewright.loops.edit import replace, statements
from tilewright.loops.nodes import Block, For, Stmt
from tilewright.plan.accesses import Access, accesses
from tilewright.schedule.loops import extent_of
from tilewright.schedule.reduce import accumulation, reduce_in_lanes

CHAINS = 4
"""Vectors of partial results: enough to hide the latency of an addition."""


def schedule_rows(nest: Stmt, lanes: int) -> Stmt:
    """The nest with each innermost reduce loop over contiguous loads run in lanes; itself where there is none."""
    for loop in [s for s in statements(nest) if isinstance(s, For) and isinstance(s.body, Block)]:
        if accumulation(loop.body) is None or not is_contiguous(accesses(loop), loop):  # type: ignore[arg-type]
            continue
        made = reduce_in_lanes(loop, _width(loop, lanes))
        if made is not None:
            nest = replace(nest, loop, made)
    return nest


def is_contiguous(group: list[Access], loop: For) -> bool:
    """Whether every load moves by one element or stays, and at least one moves."""
    strides = [a.stride(loop.var) for a in group if not a.is_store]
    return all(s in (0, 1) for s in strides) and 1 in strides


def _width(loop: For, lanes: int) -> int:
    extent = extent_of(loop)
    if isinstance(extent, Const):
        for chains in (CHAINS, 2, 1):
            if extent.value >= lanes * chains:
                return lanes * chains
    return lanes if isinstance(extent, Const) else lanes * CHAINS
