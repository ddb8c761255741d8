"""Conditions on loops: up to which iteration they hold, and what is left of them where they are decided."""

from __future__ import annotations

from tilewright.analysis.accesses import mentions
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.linear import affine_in, expression, plus, polynomial
from tilewright.expr.nodes import And, Const, Expr, FloorDiv, Le, Lt, Var, const
from tilewright.expr.simplify import Facts, simplify
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Block, For, If, Seq, Stmt, seq

Ranges = dict[Var, tuple[Expr, Expr]]


def conjuncts(cond: Expr | None) -> list[Expr]:
    """The parts of a conjunction."""
    if cond is None:
        return []
    return [*conjuncts(cond.a), *conjuncts(cond.b)] if isinstance(cond, And) else [cond]


def conjunction(parts: list[Expr]) -> Expr | None:
    """All of the parts; None of no parts."""
    total: Expr | None = None
    for part in parts:
        total = part if total is None else And(total, part)
    return total


def boundary(loop: For) -> Expr | None:
    """The first iteration of a loop in which some condition inside it, one that only later iterations can fail, may not
    hold; None where there is no such condition."""
    inner: Ranges = {}
    for s in statements(loop.body):
        if isinstance(s, For):
            inner[s.var] = (s.begin, simplify(s.end - 1))
    for s in statements(loop.body):
        cond = s.where if isinstance(s, Block) else s.cond if isinstance(s, If) else None
        for part in conjuncts(resolved(s, cond) if isinstance(s, Block) else cond):
            place = _limit(part, loop.var, inner)
            if place is not None:
                return simplify(loop.begin + 0) if isinstance(place, Const) and place.value < 0 else place
    return None


def resolved(block: Block, cond: Expr | None) -> Expr | None:
    """A block's condition over loop variables alone."""
    values: dict[Expr, Node] = {a.var: a.binding for a in block.axes}
    return None if cond is None else substitute(cond, values)


def _limit(cond: Expr, var: Var, inner: Ranges) -> Expr | None:
    """For factor*var + rest < bound: the first var at which the greatest rest no longer lets it hold."""
    if not isinstance(cond, Lt | Le):
        return None
    gap = plus(polynomial(cond.b), polynomial(cond.a), -1)  # the condition is gap > 0, or gap >= 0
    parts = affine_in(gap, var)
    if parts is None:
        return None
    factor, rest = parts
    step = -factor.get((), 0)
    if any(m for m in factor) or step <= 0:
        return None
    least = _least(expression(rest), inner)
    if least is None or mentions(least, {var}):
        return None
    spare = least - 1 if isinstance(cond, Lt) else least
    return simplify(FloorDiv(spare, const(step)) + 1)


def _least(e: Expr, inner: Ranges) -> Expr | None:
    """The least value of a linear expression over the inner loops' ranges."""
    for var in reversed(list(inner)):
        if not mentions(e, {var}):
            continue
        parts = affine_in(polynomial(e), var)
        if parts is None or any(m for m in parts[0]):
            return None
        low, high = inner[var]
        factor = parts[0].get((), 0)
        e = simplify(expression(parts[1]) + (high if factor < 0 else low) * factor)
    return e


def settle(stmt: Stmt, ranges: Ranges | None = None) -> Stmt:
    """The statement without the conditions that are decided by the loops around them."""
    known = dict(ranges or {})
    match stmt:
        case Seq(body):
            kept = [settle(s, known) for s in body]
            return stmt if all(a is b for a, b in zip(kept, body, strict=True)) else seq(*kept)
        case For():
            inner = {**known, stmt.var: (stmt.begin, simplify(stmt.end - 1))}
            return stmt.replace(body=settle(stmt.body, inner))
        case Block() if stmt.where is not None:
            facts = Facts(known)
            parts = [p for p in conjuncts(stmt.where) if not _holds(resolved(stmt, p), facts)]
            return stmt.replace(where=conjunction(parts))
        case If(cond, then, otherwise):
            decided = simplify(cond, Facts(known))
            if isinstance(decided, Const):
                chosen = then if decided.value else otherwise
                return settle(chosen, known) if chosen is not None else Seq(())
            rest = settle(otherwise, known) if otherwise is not None else None
            return If(cond, settle(then, known), rest)
    return stmt


def _holds(cond: Expr | None, facts: Facts) -> bool:
    decided = simplify(cond, facts) if cond is not None else None
    return isinstance(decided, Const) and bool(decided.value)
