"""Arena buffers of a parallel loop's iterations: each share of the loop gets its own.

    parallel i in 0..n grain 2:              =>      alloc t: f32[16, m]
      alloc t: f32[m]                                parallel part in 0..parts:
      for j in 0..m:                                   for i in n*part//parts..n*(part + 1)//parts:
        t[j] = …                                         for j in 0..m:
                                                           t[part, j] = …

with parts = max(min(n // 2, 16), 1). The arena is laid out before the loop runs, so that a buffer in it is there once
for all iterations; on the stack each has its own. A loop whose buffers cannot be separated becomes serial: one that
passes them to a call, makes views of them, or lets their shapes vary.
"""

from __future__ import annotations

from tilewright.analysis.sizes import FEW
from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr.build import maximum, minimum
from tilewright.expr.nodes import Const, Expr, FloorDiv, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import map_expressions, statements, transform_statements
from tilewright.loops.nodes import (
    Alloc,
    Buffer,
    CallFunction,
    For,
    Function,
    Load,
    LoopKind,
    Seq,
    Stmt,
    Store,
    View,
    seq,
)
from tilewright.types.scopes import Scope


def give_private_buffers(function: Function) -> Function:
    """The function whose parallel loops allocate nothing in the arena."""
    body = _outermost(function.body)
    return function if body is function.body else function.replace(body=body)


def _outermost(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL:
        return _with_private(stmt)
    children = stmt.children()
    made = tuple([_outermost(c) if isinstance(c, Stmt) else c for c in children])
    if isinstance(stmt, Seq):
        return seq(*[s for s in made if isinstance(s, Stmt)]) if made != children else stmt
    return stmt.rebuild(made)


def _with_private(loop: For) -> Stmt:
    own = [s.buffer for s in statements(loop.body) if isinstance(s, Alloc) and s.buffer.scope is Scope.ARENA]
    if not own:
        return loop
    if not _are_separable(loop, set(own)):
        return loop.serial()
    extent = loop.extent
    parts = simplify(maximum(minimum(FloorDiv(extent, const(loop.grain)), const(FEW)), const(1)))
    count = parts if isinstance(parts, Const) else const(FEW)
    part = Var("part")
    private = {b: b.replace(shape=(count, *b.shape)) for b in own}
    begin, end = (simplify(loop.begin + FloorDiv(extent * p, parts)) for p in (part, part + 1))
    inner = For(loop.var, begin, end, LoopKind.SERIAL, _sliced(loop.body, private, part))
    return seq(*(Alloc(b) for b in private.values()), For(part, const(0), parts, LoopKind.PARALLEL, inner))


def _are_separable(loop: For, own: set[Buffer]) -> bool:
    """Whether the buffers have shapes that are known before the loop, and are only loaded from and stored to."""
    inside = {s.var for s in statements(loop) if isinstance(s, For)}
    if any(variables_of(extent) & inside for b in own for extent in b.shape):
        return False
    for s in statements(loop.body):
        if isinstance(s, CallFunction) and own & set(s.arguments):
            return False
        if isinstance(s, View) and s.source in own:
            return False
    return True


def _sliced(body: Stmt, private: dict[Buffer, Buffer], part: Var) -> Stmt:
    """The body with the buffers replaced by their slices for a part, and not allocated."""
    memo: dict[Node, Node] = {}

    def of_expression(node: Node) -> Node:
        if isinstance(node, Load) and node.buffer in private:
            return Load(private[node.buffer], (part, *node.indices))
        return node

    def of_value(e: Expr) -> Expr:
        return transform(e, of_expression, memo)

    def of_statement(node: Node) -> Node:
        if isinstance(node, Alloc) and node.buffer in private:
            return Seq(())
        if isinstance(node, Store) and node.buffer in private:
            return Store(private[node.buffer], (part, *node.indices), node.value)
        return node

    return transform_statements(map_expressions(body, of_value), of_statement)
