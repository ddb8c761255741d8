"""Loops around loops that never run: an array without elements may have other dimensions of any size.

for i in 0..3:                 runs only where n > 0 and m > 0, and not 3·n times for nothing
  for j in 0..n:
    for k in 0..m: …
"""

from __future__ import annotations

from tilewright.expr.build import less
from tilewright.expr.nodes import And, Const, Expr, Or, Var
from tilewright.expr.simplify import simplify
from tilewright.loops.nodes import For, Let, Seq, Stmt

FEW = 1 << 20
"""Iterations that take negligible time, whether they do something or not."""


def acts(loop: For) -> Expr | None:
    """What must hold on symbols for a loop to do anything, where bounds say too little: some let it run for long, and
    all that stands in it are loops. None where there is nothing to ask."""
    if not _runs_long(loop):
        return None
    inside = _needs(loop.body, frozenset((loop.var,)))
    return None if inside is None else simplify(And(less(loop.begin, loop.end), inside))


def _runs_long(stmt: Stmt) -> bool:
    """Whether a loop, or one in it, may have more than a few iterations."""
    if isinstance(stmt, Seq):
        return any(_runs_long(part) for part in stmt.body)
    if not isinstance(stmt, For):
        return False
    match stmt.begin, stmt.end:
        case Const(begin), Const(end):
            return end - begin > FEW or _runs_long(stmt.body)
    return True


def _needs(stmt: Stmt, inner: frozenset[Var]) -> Expr | None:
    """What must hold for the statement to do anything, over variables that are not `inner`; None where nothing must."""
    if isinstance(stmt, Seq):
        found: Expr | None = None
        for part in stmt.body:
            if isinstance(part, Let):
                inner |= {part.var}
                continue
            one = _needs(part, inner)
            if one is None:
                return None
            found = one if found is None else Or(found, one)
        return found
    if not isinstance(stmt, For):
        return None
    inside = _needs(stmt.body, inner | {stmt.var})
    if inner & (stmt.begin.variables | stmt.end.variables):
        return inside
    runs = less(stmt.begin, stmt.end)
    if isinstance(runs, Const) and runs.value:
        return inside
    return runs if inside is None else And(runs, inside)
