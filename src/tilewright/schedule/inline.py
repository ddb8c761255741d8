"""inline: a buffer that one block computes point by point disappears into the places that read it.

block e(vi = i): e[vi] = exp(x[vi])
block y(vi = i): y[vi] = e[vi] * 2.0          =>      block y(vi = i): y[vi] = exp(x[vi]) * 2.0
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import preorder, substitute, transform
from tilewright.expr.nodes import Call, Div, Expr
from tilewright.loops.edit import blocks, loads, map_expressions, statements
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Load, Seq, Stmt, Store, seq
from tilewright.schedule.find import nests, stored_buffers
from tilewright.types.scopes import Scope


def point_definition(function: Function, buffer: Buffer) -> tuple[Stmt, Block, Store] | None:
    """(nest, block, store) when a local buffer is written by one block only, at its axes in order, without init; so
    its value at any index is one expression."""
    writers = [n for n in nests(function) if buffer in stored_buffers(n)]
    if buffer.scope is Scope.ARGUMENT or len(writers) != 1 or not isinstance(writers[0], For | Block):
        return None
    inside = blocks(writers[0])
    if len(inside) != 1:
        return None
    (block,) = inside
    store = block.body
    if not isinstance(store, Store) or block.init is not None or block.where is not None or block.reduce:
        return None
    if store.buffer is not buffer or tuple(a.var for a in block.axes) != store.indices:
        return None
    if any(isinstance(s, Alloc) for s in statements(writers[0])):
        return None
    return writers[0], block, store


def inline(function: Function, buffer: Buffer) -> Function:
    """The function without `buffer`: loads of it become the expression that defines it."""
    found = point_definition(function, buffer)
    assert found is not None, f"{buffer.name} is not defined point by point"
    nest, block, store = found
    axes = [a.var for a in block.axes]

    def change(node: Node) -> Node:
        if isinstance(node, Load) and node.buffer is buffer:
            values: dict[Expr, Node] = dict(zip(axes, node.indices, strict=True))
            return substitute(store.value, values)
        return node

    memo: dict[Node, Node] = {}
    kept = [s for s in nests(function) if s is not nest and not (isinstance(s, Alloc) and s.buffer is buffer)]
    body = map_expressions(seq(*kept) if kept else Seq(()), lambda e: transform(e, change, memo))
    return function.replace(body=body)


def inline_all(function: Function) -> Function:
    """The function with local buffers that are defined point by point inlined: all but those that several nests read
    and that cost more to compute than to load."""
    for buffer in [s.buffer for s in nests(function) if isinstance(s, Alloc)]:
        found = point_definition(function, buffer)
        if found is not None and not (is_expensive(found[2].value) and _readers(function, buffer) > 1):
            function = inline(function, buffer)
    return function


def is_expensive(value: Expr) -> bool:
    """Whether an expression calls a function or divides."""
    return any(isinstance(e, Div) or (isinstance(e, Call) and e.fn.name not in ("neg", "abs")) for e in preorder(value))


def _readers(function: Function, buffer: Buffer) -> int:
    """How many nests read a buffer."""
    return sum(1 for nest in nests(function) if any(load.buffer is buffer for load in loads(nest)))
