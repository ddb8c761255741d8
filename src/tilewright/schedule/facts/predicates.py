"""Conditions on loops: up to which iteration they hold, and what is left of them where they are decided."""

from __future__ import annotations

from functools import lru_cache

from tilewright.analysis.accesses import mentions
from tilewright.analysis.intervals import Range, Ranges
from tilewright.analysis.regions import ranges_of
from tilewright.core.node import Node
from tilewright.core.walk import preorder, substitute, transform
from tilewright.expr import dtypes
from tilewright.expr.build import minimum
from tilewright.expr.linear import Polynomial, affine_in, expression, plus, polynomial
from tilewright.expr.nodes import And, Const, Expr, FloorDiv, Le, Lt, Max, Min, Select, Var, const
from tilewright.expr.simplify import simplify
from tilewright.expr.variables import bits_of
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import loops_inside, map_expressions, statements
from tilewright.loops.nodes import Block, For, If, Let, Load, Seq, Stmt, seq
from tilewright.schedule.facts.known import Known

_CHOOSING = bits_of(Select, Min)


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
    """The first iteration of a loop in which some condition inside it (a `where`, that of an `if` or a `select`), one
    that only later iterations can fail, may not hold. Where that is the loop's first, the first in which one cannot
    hold. None where there is no such condition."""
    inner = ranges_of(loops_inside(loop.body))
    hidden: set[Expr] = {s.var for s in statements(loop.body) if isinstance(s, For | Let)}
    conds: list[Expr] = []
    for s in statements(loop.body):
        found = [s.cond] if isinstance(s, If) else _conditions(s) if isinstance(s, Block) else []
        conds += [part for cond in found for part in conjuncts(cond)]
    for most in (False, True):
        for cond in conds:
            place = _limit(cond, loop.var, inner, most)
            if place is None or loop.begin in (place, simplify(minimum(place, loop.end))):
                continue
            if not any(isinstance(e, Load) or e in hidden for e in preorder(place)):
                return simplify(loop.begin + 0) if isinstance(place, Const) and place.value < 0 else place
    return None


def _conditions(block: Block) -> list[Expr]:
    """The conditions in a block, over loop variables alone."""
    found = [block.where, *(e.cond for e in _decisions(block) if isinstance(e, Select))]
    return [r for c in found if (r := resolved(block, c)) is not None]


def _decisions(block: Block) -> list[Expr]:
    """The selections and minima in what a block computes."""
    parts = (block.body,) if block.init is None else (block.body, block.init)
    if not any(part.kinds() & _CHOOSING for part in parts):
        return []
    return [e for e in preorder(parts) if isinstance(e, Select | Min)]


def resolved(block: Block, cond: Expr | None) -> Expr | None:
    """A block's condition over loop variables alone."""
    values: dict[Expr, Node] = {a.var: a.binding for a in block.axes}
    return None if cond is None else substitute(cond, values)


def _limit(cond: Expr, var: Var, inner: Ranges, most: bool) -> Expr | None:
    """For factor*var + rest < bound: the first var at which the greatest rest no longer lets it hold; with `most`, the
    least rest, so that it holds for none."""
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
    end = _extreme(expression(rest), inner, most)
    if end is None or mentions(end, {var}):
        return None
    spare = end - 1 if isinstance(cond, Lt) else end
    return simplify(FloorDiv(spare, const(step)) + 1)


def _extreme(e: Expr, inner: Ranges, most: bool) -> Expr | None:
    """The least value of a linear expression over the inner loops' ranges; with `most` the greatest."""
    for var in reversed(list(inner)):
        if not mentions(e, {var}):
            continue
        parts = affine_in(polynomial(e), var)
        if parts is None or any(m for m in parts[0]):
            return None
        factor = parts[0].get((), 0)
        e = simplify(expression(parts[1]) + (inner[var].begin if (factor < 0) == most else inner[var].last) * factor)
    return e


def settle(stmt: Stmt, ranges: Ranges | None = None) -> Stmt:
    """The statement without the conditions that are decided by the loops around them, and without blocks that run
    nowhere."""
    return _settled(stmt, Known(ranges))


def _settled(stmt: Stmt, known: Known) -> Stmt:
    match stmt:
        case Seq(body):
            kept = [_settled(s, known) for s in body]
            return stmt if all(a is b for a, b in zip(kept, body, strict=True)) else seq(*kept)
        case For():
            held = _settled(stmt.body, known.where({stmt.var: _span(stmt.begin, _end(stmt))}))
            if held is stmt.body or (isinstance(held, Seq) and not held.body):
                return stmt if held is stmt.body else held
            return stmt.replace(body=held)
        case Block():
            if any(_fails(p, known) and _keeps_all(stmt, p) for p in _told(stmt)):
                return Seq(())
            told = conjuncts(stmt.where)
            parts = [p for p in told if not _holds(resolved(stmt, p), known)]
            made = _decided(stmt, known)
            return made if len(parts) == len(told) else made.replace(where=conjunction(parts))
        case If(cond, then, otherwise):
            decided = known.simplified(cond)
            if isinstance(decided, Const):
                chosen = then if decided.value else otherwise
                return _settled(chosen, known) if chosen is not None else Seq(())
            rest = _settled(otherwise, known) if otherwise is not None else None
            return If(cond, _settled(then, known), rest)
    return stmt


def _end(loop: For) -> Expr:
    """The end of a loop that runs: of one at max(x, begin) it is x."""
    match loop.end:
        case Max(a, b) if a is loop.begin:
            return b
        case Max(a, b) if b is loop.begin:
            return a
    return loop.end


def _told(block: Block) -> list[Expr]:
    """The parts of a block's condition, over loop variables alone."""
    return conjuncts(resolved(block, block.where))


def _keeps_all(block: Block, cond: Expr) -> bool:
    """Whether a condition keeps the init from running, too: one on what is summed over does not."""
    return block.init is None or not mentions(cond, summed_loops(block))


def _holds(cond: Expr | None, known: Known) -> bool:
    decided = known.simplified(cond) if cond is not None else None
    if isinstance(decided, Const):
        return bool(decided.value)
    spare = bound(decided)
    return spare is not None and known.never_negative(spare)


def _fails(cond: Expr | None, known: Known) -> bool:
    """Whether a condition holds nowhere."""
    spare = bound(cond)
    return spare is not None and known.never_negative(plus({(): -1}, spare, -1))


@lru_cache(maxsize=1 << 10)
def _span(begin: Expr, end: Expr) -> Range:
    return Range(begin, simplify(end - begin))


def bound(cond: Expr | None) -> Polynomial | None:
    """The polynomial that is at least zero where a bound of an index, a < b or a <= b, holds; None of other
    conditions: between two floats there are others."""
    if not isinstance(cond, Lt | Le) or cond.a.dtype is not dtypes.index:
        return None
    gap = plus(polynomial(cond.b), polynomial(cond.a), -1)
    return plus(gap, {(): 1}, -1) if isinstance(cond, Lt) else gap


def _decided(block: Block, known: Known) -> Block:
    """The block with the selections of its values taken, and its minima, that are decided by the loops around it."""
    if not any(e.dtype.is_int or isinstance(e, Select) for e in _decisions(block)):
        return block
    memo: dict[Node, Node] = {}

    def change(node: Node) -> Node:
        match node:
            case Select(cond, a, _) if _holds(resolved(block, cond), known):
                return a
            case Min(a, b) if node.dtype is dtypes.index:
                spare = polynomial(resolved(block, b - a) or const(-1))
                return a if known.never_negative(spare) else node
        return node

    def stays(node: Node) -> bool:
        return isinstance(node, Expr) and not node.kinds & _CHOOSING

    made = map_expressions(block, lambda e: e if stays(e) else transform(e, change, memo, stays))
    assert isinstance(made, Block)
    return made
