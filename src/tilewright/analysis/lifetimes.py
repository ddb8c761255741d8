"""From where to where each buffer is in use, in a list of statements that run in order.

    0  alloc t                         t: 1 .. 3
    1  t[…] = …
    2  view u = t                      (a use of u is a use of t)
    3  y[…] = u[…]

Two buffers whose lifetimes do not overlap may share memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.walk import preorder
from tilewright.expr.nodes import Expr
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Block, Buffer, CallFunction, Load, Publish, Stmt, Store, View


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The places of the first and the last statement that use a buffer."""

    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether some statement is in both."""
        return self.first <= other.last and other.first <= self.last


def uses(root: Stmt) -> set[Buffer]:
    """The buffers that a statement reads, writes, passes or publishes; allocating one or naming a view is no use."""
    found: set[Buffer] = set()
    for stmt in statements(root):
        match stmt:
            case Store(buffer, _, _) | Publish(buffer, _, _):
                found.add(buffer)
            case CallFunction(_, _, arguments):
                found.update(arguments)
        exprs = [c for c in stmt.children() if isinstance(c, Expr)]
        if isinstance(stmt, Block):
            exprs += [a.binding for a in stmt.axes]
        found.update(n.buffer for n in preorder(exprs) if isinstance(n, Load))
    return found


def lifetimes(body: Sequence[Stmt]) -> dict[Buffer, Lifetime]:
    """The lifetime of each buffer that is used. What uses a view uses its source: they are one memory, and get one
    lifetime. A published buffer lives to the end."""
    roots: dict[Buffer, Buffer] = {}
    for stmt in body:
        for inner in statements(stmt):
            if isinstance(inner, View):
                roots[inner.buffer] = roots.get(inner.source, inner.source)
    spans: dict[Buffer, Lifetime] = {}
    for n, stmt in enumerate(body):
        published = {s.buffer for s in statements(stmt) if isinstance(s, Publish)}
        for buffer in uses(stmt):
            root = roots.get(buffer, buffer)
            last = len(body) - 1 if buffer in published else n
            known = spans.get(root)
            spans[root] = Lifetime(n, last) if known is None else Lifetime(known.first, max(known.last, last))
    spans.update({view: spans[root] for view, root in roots.items() if root in spans})
    return spans
