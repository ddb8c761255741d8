"""The symbols of a program: variables that its statements and the shapes of its buffers use, and nothing defines."""

from __future__ import annotations

from tilewright.core.walk import preorder
from tilewright.expr.nodes import Expr, Var
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Alloc, Axis, Block, Buffer, For, Let, Load, Stmt, Store


def free_symbols(body: Stmt, params: tuple[Buffer, ...]) -> tuple[Var, ...]:
    """The variables that a body and its parameters' shapes use and nothing in the body defines, in order of use."""
    used: dict[Var, None] = {}
    defined: set[Var] = set()
    if not _may_have_symbols(body, params):
        return ()

    def use(e: Expr) -> None:
        used.update(dict.fromkeys(v for v in preorder(e) if isinstance(v, Var)))
        for load in preorder(e):
            if isinstance(load, Load):
                for extent in load.buffer.shape:
                    used.update(dict.fromkeys(v for v in preorder(extent) if isinstance(v, Var)))

    for buffer in params:
        for extent in buffer.shape:
            use(extent)
    for s in statements(body):
        if isinstance(s, For | Let):
            defined.add(s.var)
        if isinstance(s, Block):
            defined.update(a.var for a in s.axes)
        if isinstance(s, Alloc | Store):
            for extent in s.buffer.shape:
                use(extent)
        for child in s.children():
            if isinstance(child, Expr):
                use(child)
            elif isinstance(child, Axis):
                use(child.binding)
    return tuple(v for v in used if v not in defined)


def _may_have_symbols(body: Stmt, params: tuple[Buffer, ...]) -> bool:
    """Whether a body or its parameters use anything that the body does not define. What it loads from is a parameter or
    a buffer of its own."""
    inside = list(statements(body))
    defined = {s.var for s in inside if isinstance(s, For | Let)}
    defined |= {axis.var for s in inside if isinstance(s, Block) for axis in s.axes}
    buffers = {*params, *(s.buffer for s in inside if isinstance(s, Alloc | Store))}
    sizes = (variables_of(extent) for buffer in buffers for extent in buffer.shape)
    return not body.variables().union(*sizes) <= defined
