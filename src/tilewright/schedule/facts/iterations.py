"""What plans and steps ask of a loop: how far it runs, whether its iterations are points of their own."""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.linear import expression, linear_in, polynomial
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import summed_loops, variables_of
from tilewright.loops.edit import allocations, blocks, statements
from tilewright.loops.nodes import Assert, Block, For, If, Stmt, Store, While


def is_spatial(loop: For) -> bool:
    """Whether the iterations of a loop are independent: it is bound to spatial axes only, in every block inside; what
    they store lies apart, unless it lives inside an iteration; and nothing can end them early."""
    own = set(allocations(loop.body))
    if any(isinstance(s, Assert | While) for s in statements(loop.body)):
        return False
    for block in blocks(loop.body):
        stores = [s for s in statements(block) if isinstance(s, Store) and s.buffer not in own]
        if loop.var in summed_loops(block) or not all(_moves_apart(block, s, loop.var) for s in stores):
            return False
    return True


def _moves_apart(block: Block, store: Store, var: Var) -> bool:
    """Whether a store goes to another element in each iteration of a loop: some dimension of it is linear in the loop's
    variable, and no dimension is anything else but linear."""
    bindings: dict[Expr, Node] = {a.var: a.binding for a in block.axes}
    factors = [coefficient_of(substitute(i, bindings), var) for i in store.indices]
    return None not in factors and any(f is not const(0) for f in factors)


def extent_of(loop: For) -> Expr:
    return simplify(loop.end - loop.begin)


def size_of(loop: For) -> int | None:
    """The iterations of a loop; None where they are dynamic."""
    extent = extent_of(loop)
    return int(extent.value) if isinstance(extent, Const) else None


def bounds_of(loop: For) -> frozenset[Var]:
    """The variables in the bounds of a loop."""
    return variables_of(loop.begin) | variables_of(loop.end)


def coefficient_of(index: Expr, var: Var) -> Expr | None:
    """The factor of `var` in an index that is linear in it; None when it is not."""
    parts = linear_in(polynomial(index), var)
    return None if parts is None else expression(parts[0])


def has_branches(stmt: Stmt) -> bool:
    return any(isinstance(s, If | While | Assert) for s in statements(stmt))
