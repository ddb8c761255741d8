"""Whether index arithmetic stays inside 64 bits: the condition under which an expression means what it says.

    fits(n*m)   =>   abs(f64(n)*f64(m)) <= 2^62

Sizes come from unchecked data, so a product of them may wrap around and look small. The condition
computes the same sums and products in f64, where they cannot wrap; a result below 2^62 there is exact in i64. The
other operators (divisions, minima, selections) are taken by their value, and their operands are asked in turn.
"""

from __future__ import annotations

from tilewright.core.walk import postorder
from tilewright.expr import dtypes
from tilewright.expr.build import cast, select
from tilewright.expr.nodes import Add, And, Call, Const, Div, Expr, FloorDiv, Le, Mul, Ne, Select, Sub, Var, call, const

MOST = 2.0**62
"""Sums and products up to here are exact: the rounding of a few f64 operations does not reach 2^63."""

_TRUE = const(True, dtypes.bool_)


def fits(e: Expr) -> Expr:
    """The condition that no sum or product in `e` wraps around; the constant true where none can."""
    inside: dict[Expr, Expr] = {}
    for node in postorder(e):
        if isinstance(node, Expr):
            inside[node] = _operands_fit(node, inside)
    return _whole(e, inside)


def _operands_fit(node: Expr, inside: dict[Expr, Expr]) -> Expr:
    """The condition for everything below `node`; sums and products right below one of their kind belong to it."""
    operands = [c for c in node.children() if isinstance(c, Expr)]
    if _is_ring(node):
        return _all([inside[c] for c in operands])
    if isinstance(node, Select):
        c, a, b = (_whole(part, inside) for part in operands)
        return _all([c, a if a is b else select(node.cond, a, b)])
    return _all([*(_whole(c, inside) for c in operands), _quotient_fits(node)])


def _quotient_fits(node: Expr) -> Expr:
    """The one quotient of 64-bit numbers that is none: the least number by -1."""
    if not isinstance(node, FloorDiv | Div) or node.dtype is not dtypes.index or _is_ring(node.a):
        return _TRUE
    never = isinstance(node.b, Const) and node.b.value != -1
    positive = isinstance(node.a, Var) and node.a.least is not None and node.a.least >= 0
    if never or positive or (isinstance(node.a, Const) and node.a.value != dtypes.index.min):
        return _TRUE
    return Ne(node.a, const(dtypes.index.min))


def _whole(e: Expr, inside: dict[Expr, Expr]) -> Expr:
    if not _is_ring(e):
        return inside[e]
    return _all([inside[e], Le(call("abs", _in_double(e)), const(MOST, dtypes.f64))])


def _all(conditions: list[Expr]) -> Expr:
    whole: Expr = _TRUE
    for cond in conditions:
        if cond is not _TRUE:
            whole = cond if whole is _TRUE else And(whole, cond)
    return whole


def _is_ring(e: Expr) -> bool:
    """Whether `e` is a sum, a product or a negation of indices."""
    return e.dtype is dtypes.index and (isinstance(e, Add | Sub | Mul) or (isinstance(e, Call) and e.fn.name == "neg"))


def _in_double(root: Expr) -> Expr:
    """The sum or product computed in f64. Where factors vary, terms are added up by size, so that no two large ones
    cancel."""
    nodes = _ring_nodes(root)
    linear = all(isinstance(n.a, Const) or isinstance(n.b, Const) for n in nodes if isinstance(n, Mul))
    made: dict[Expr, Expr] = {}
    for node in nodes:
        for operand in node.children():
            if isinstance(operand, Expr) and operand not in made:
                made[operand] = _atom(operand, linear)
        a, *rest = (made[c] for c in node.children() if isinstance(c, Expr))
        if isinstance(node, Mul):
            made[node] = a * rest[0]
        elif isinstance(node, Call):
            made[node] = -a if linear else a
        else:
            made[node] = a - rest[0] if isinstance(node, Sub) and linear else a + rest[0]
    return made[root]


def _ring_nodes(root: Expr) -> list[Expr]:
    """The sums and products that hang together under `root`, operands before what uses them."""
    found: dict[Expr, None] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [c for c in node.children() if isinstance(c, Expr) and _is_ring(c) and c not in found]
        if waiting:
            stack.extend(waiting)
            continue
        found.setdefault(stack.pop())
    return list(found)


def _atom(e: Expr, signed: bool) -> Expr:
    wide = cast(e, dtypes.f64)
    return wide if signed or (isinstance(e, Var) and e.least is not None and e.least >= 0) else call("abs", wide)
