"""Private buffers of the iterations of a `vectorize` loop become one buffer with an element for every lane.

    vectorize j in 0..8:                         vectorize j in 0..8:
      alloc t: f32[1] in register                  alloc t: f32[8] in register
      t[0] = exp(x[j])                    =>       t[j] = exp(x[j])
      y[j] = t[0] / (t[0] + 1.0)                   y[j] = t[j] / (t[j] + 1.0)

Afterwards the lanes can share the buffer, so that the loop runs in lanes.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.expr.linear import expression, polynomial
from tilewright.expr.nodes import Const, Expr, const
from tilewright.loops.edit import map_loads, statements, transform_statements
from tilewright.loops.nodes import Alloc, Buffer, For, Load, Stmt, Store
from tilewright.types.scopes import Scope


def is_private(buffer: Buffer) -> bool:
    """Whether a buffer allocated in a loop is small and the iteration's own."""
    return buffer.scope in (Scope.REGISTER, Scope.STACK) and all(isinstance(d, Const) for d in buffer.shape)


def with_private_lanes(loop: For, registers: int) -> Stmt:
    """The body of a loop of constant extent, in which flat private buffers have a place for each iteration. Those of
    more elements than half the vector registers are left as they are: all lanes of one would not stay in registers."""
    assert isinstance(loop.begin, Const)
    assert isinstance(loop.end, Const)
    count, lane = int(loop.end.value) - int(loop.begin.value), loop.var - loop.begin
    wide: dict[Buffer, Buffer] = {}
    for s in statements(loop.body):
        if isinstance(s, Alloc) and is_private(s.buffer) and len(s.buffer.shape) == 1:
            (size,) = s.buffer.shape
            if isinstance(size, Const) and 2 * size.value <= registers:
                wide[s.buffer] = s.buffer.replace(shape=(const(int(size.value) * count),))
    if not wide:
        return loop.body

    def place(index: Expr) -> tuple[Expr, ...]:
        return (expression(polynomial(index * count + lane)),)

    def of_load(e: Load) -> Expr:
        return Load(wide[e.buffer], place(e.indices[0])) if e.buffer in wide else e

    def of_statement(node: Node) -> Node:
        if isinstance(node, Alloc) and node.buffer in wide:
            return node.replace(buffer=wide[node.buffer])
        if isinstance(node, Store) and node.buffer in wide:
            return Store(wide[node.buffer], place(node.indices[0]), node.value)
        return node

    return transform_statements(map_loads(loop.body, of_load), of_statement)
