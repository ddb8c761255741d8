"""Takes what is read once for all lanes out of a mask, where that is certainly inside its buffer.

    if MASK:                                         let s = a[k]
      t[0:8] += broadcast(a[k], 8) * x[…]      =>    if MASK:
                                                       t[0:8] += broadcast(s, 8) * x[…]

Under the mask it may be read only if some lane holds: that would be a branch around each of the steps of a sum.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import preorder, transform
from tilewright.expr import dtypes
from tilewright.expr.linear import plus, polynomial
from tilewright.expr.nodes import Expr, Var
from tilewright.expr.simplify import Facts
from tilewright.loops.edit import loads, map_expressions, statements, transform_statements
from tilewright.loops.nodes import For, If, Let, Load, Stmt, Store, View, seq


def loads_outside(body: Stmt) -> Stmt:
    """The body with such loads in front of their masks. A mask around a loop is tested once, and stays as it is."""
    found = list(statements(body))
    if not any(isinstance(s, If) and s.cond.lanes > 1 for s in found) or any(isinstance(s, View) for s in found):
        return body
    facts = Facts({s.var: (s.begin, s.end - 1) for s in found if isinstance(s, For)})

    def change(node: Node) -> Node:
        if isinstance(node, If) and node.cond.lanes > 1:
            return _outside(node, facts)
        return node

    return transform_statements(body, change)


def _outside(mask: If, facts: Facts) -> Stmt:
    inner = list(statements(mask))
    if any(isinstance(s, For | Let) for s in inner):
        return mask
    stored = {s.buffer for s in inner if isinstance(s, Store)}
    named: dict[Node, Node] = {}
    lets: list[Stmt] = []
    for load in dict.fromkeys(loads(mask)):
        if load.lanes == 1 and load.buffer not in stored and _is_plain(load) and _is_inside(load, facts):
            var = Var(load.buffer.name, load.dtype, None if load.dtype is dtypes.index else 0)
            named[load] = var
            lets.append(Let(var, load))
    return seq(*lets, map_expressions(mask, lambda e: transform(e, lambda n: n, named))) if lets else mask


def _is_plain(load: Load) -> bool:
    """Whether the index reads no memory itself."""
    return not any(isinstance(n, Load) for i in load.indices for n in preorder(i))


def _is_inside(load: Load, facts: Facts) -> bool:
    """Whether the element is proved to be one of the buffer's, whatever the loops around it do."""
    return all(_is_below(i, d, facts) for i, d in zip(load.indices, load.buffer.shape, strict=True))


def _is_below(index: Expr, extent: Expr, facts: Facts) -> bool:
    p = polynomial(index)
    return facts.at_least_zero(p) and facts.at_least_zero(plus(plus(polynomial(extent), p, -1), {(): -1}))
