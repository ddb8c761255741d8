"""What plans and steps ask of a loop: how far it runs, whether its iterations are points of their own."""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.linear import affine_in, expression, polynomial
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import statements
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    AxisKind,
    Block,
    Buffer,
    For,
    If,
    Stmt,
    Store,
    While,
)


def is_spatial(loop: For) -> bool:
    """Whether the iterations of a loop are independent: it is bound to spatial axes only, in every block inside; what
    they store lies apart, unless it lives inside an iteration; and nothing can end them early."""
    own = {s.buffer for s in statements(loop.body) if isinstance(s, Alloc)}
    for s in statements(loop.body):
        if isinstance(s, Assert | While):
            return False
        if isinstance(s, Block):
            if any(a.kind is AxisKind.REDUCE and loop.var in variables_of(a.binding) for a in s.axes):
                return False
            if not all(_moves_apart(s, store, loop) for store in statements(s) if _stores_outside(store, own)):
                return False
    return True


def _stores_outside(stmt: Stmt, own: set[Buffer]) -> bool:
    return isinstance(stmt, Store) and stmt.buffer not in own


def _moves_apart(block: Block, store: Stmt, loop: For) -> bool:
    """Whether a store goes to another element in each iteration of a loop: some dimension of it is linear in the loop's
    variable, and no dimension is anything else but linear."""
    assert isinstance(store, Store)
    bindings: dict[Expr, Node] = {a.var: a.binding for a in block.axes}
    factors = [coefficient_of(substitute(i, bindings), loop.var) for i in store.indices]
    return all(f is not None for f in factors) and any(not (isinstance(f, Const) and f.value == 0) for f in factors)


def extent_of(loop: For) -> Expr:
    return simplify(loop.end - loop.begin)


def bounds_of(loop: For) -> frozenset[Var]:
    """The variables in the bounds of a loop."""
    return variables_of(loop.begin) | variables_of(loop.end)


def coefficient_of(index: Expr, var: Var) -> Expr | None:
    """The factor of `var` in an index that is linear in it; None when it is not."""
    if var not in variables_of(index):
        return const(0)
    parts = affine_in(polynomial(index), var)
    if parts is None:
        return None
    factor, rest = (expression(p) for p in parts)
    return None if var in variables_of(factor) | variables_of(rest) else factor


def has_branches(stmt: Stmt) -> bool:
    return any(isinstance(s, If | While | Assert) for s in statements(stmt))
