"""Finding what a primitive works on: loops by their variable, blocks by their name, nests by their buffer."""

from __future__ import annotations

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks, statements
from tilewright.loops.nodes import Block, Buffer, For, Function, Seq, Stmt, Store
from tilewright.report.errors import UserError


def find_loop(function: Function, loop: Var | For) -> For:
    """The loop over this variable; a loop is known by its variable, which later steps keep."""
    var = loop.var if isinstance(loop, For) else loop
    for s in statements(function.body):
        if isinstance(s, For) and s.var is var:
            return s
    names = ", ".join(s.var.name for s in statements(function.body) if isinstance(s, For)) or "none"
    raise UserError(f"no loop {var.name} in {function.name}", why=f"its loops are {names}")


def find_block(function: Function, name: str) -> Block:
    """The block of this name."""
    found = [b for b in blocks(function.body) if b.name == name]
    if len(found) != 1:
        names = ", ".join(b.name for b in blocks(function.body)) or "none"
        raise UserError(
            f"{'no' if not found else 'more than one'} block {name} in {function.name}", why=f"its blocks are {names}"
        )
    return found[0]


def nests(function: Function) -> tuple[Stmt, ...]:
    """The top-level statements of a function."""
    return function.body.body if isinstance(function.body, Seq) else (function.body,)


def stored_buffers(stmt: Stmt) -> set[Buffer]:
    """The buffers that a statement stores to."""
    return {s.buffer for s in statements(stmt) if isinstance(s, Store)}


def perfect_nest(stmt: Stmt) -> tuple[list[For], Stmt]:
    """(the loops that are nested with nothing between them, what the innermost of them holds)."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return loops, stmt
