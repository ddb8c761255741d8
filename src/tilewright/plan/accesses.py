"""How the accesses of a nest move with its loops: what the choice of a vector axis is made from."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.node import Node
from tilewright.core.walk import preorder, substitute
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.loops.edit import blocks, statements
from tilewright.loops.nodes import Block, Buffer, Load, Stmt, Store
from tilewright.schedule.loops import stride_of


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store, its indices over loop variables."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_store: bool
    block: Block

    def stride(self, var: Var) -> int | None:
        """Elements moved for a step of `var`; None when it is no constant or the access moves unevenly."""
        step = stride_of(self.buffer, self.indices, var)
        return int(step.value) if isinstance(step, Const) else None


def accesses(stmt: Stmt) -> list[Access]:
    """Every load and store in the blocks of a statement. Loads of the accumulator itself are left out."""
    found: list[Access] = []
    for block in blocks(stmt):
        bindings: dict[Expr, Node] = {a.var: a.binding for a in block.axes}
        stores = [s for s in statements(block) if isinstance(s, Store)]
        own = {(s.buffer, s.indices) for s in stores}
        for store in stores:
            found.append(Access(store.buffer, _bound(store.indices, bindings), True, block))
            for node in preorder((store.value, *store.indices)):
                if isinstance(node, Load) and (node.buffer, node.indices) not in own:
                    found.append(Access(node.buffer, _bound(node.indices, bindings), False, block))
    return found


def _bound(indices: tuple[Expr, ...], bindings: dict[Expr, Node]) -> tuple[Expr, ...]:
    return tuple(substitute(i, bindings) for i in indices)


STRIDED_PAIR = 3.0
"""A load of every second element: two vectors and a shuffle."""


def vector_cost(group: list[Access], var: Var, lanes: int) -> float:
    """What one vector of iterations over `var` costs in loads and stores: 1 for a contiguous or repeated access, one
    for each lane where elements lie apart."""
    return sum(_cost(access, access.stride(var), lanes) for access in group)


def _cost(access: Access, stride: int | None, lanes: int) -> float:
    if stride in (0, 1):
        return 1.0
    return min(STRIDED_PAIR, lanes) if stride == 2 and not access.is_store else float(lanes)
