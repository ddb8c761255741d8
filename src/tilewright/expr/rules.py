"""The simplifier's rules for index expressions: one law each, first in its docstring.

A rule gets a node whose children are simplified, and the facts; it answers an equal expression that is simpler (fewer
operations, or a division or comparison less), or None. All laws hold for all integers where their side condition holds;
laws with a divisor d hold for d != 0 (a size of zero leaves no index to compute). Rules never undo each other, so
applying them ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from tilewright.expr import dtypes
from tilewright.expr.linear import LARGEST, Polynomial, are_moderate, divide_terms, expression, plus, polynomial
from tilewright.expr.nodes import (
    And,
    Const,
    Eq,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Max,
    Min,
    Mod,
    Ne,
    Not,
    Or,
    Select,
    Var,
    const,
)


class Known(Protocol):
    """What a rule may ask."""

    def at_least_zero(self, p: Polynomial) -> bool: ...


Rule = Callable[..., Expr | None]

_ONE: Polynomial = {(): 1}
_UNKNOWN: Polynomial = {(Var("unknown", least=None),): 1}


def _within(e: Polynomial, d: Polynomial, facts: Known) -> bool:
    """0 <= e < d is proved."""
    return facts.at_least_zero(e) and facts.at_least_zero(plus(plus(d, e, -1), _ONE, -1))


def _difference(a: Expr, b: Expr) -> Polynomial:
    """a - b; something unknown where the numbers are so large that the program's own a or b may have wrapped around."""
    p, q = polynomial(a), polynomial(b)
    return plus(p, q, -1) if a is b or (are_moderate(p) and are_moderate(q)) else _UNKNOWN


def floordiv_of_multiple(e: FloorDiv, facts: Known) -> Expr | None:
    """(d*q + r) // d  =>  q + r // d, and q when 0 <= r < d"""
    dividend, divisor = polynomial(e.a), polynomial(e.b)
    if not (are_moderate(dividend) and are_moderate(divisor)):
        return None
    q, r = divide_terms(dividend, divisor)
    if not r or _within(r, divisor, facts):
        return expression(q)
    if q:
        return expression(q) + FloorDiv(expression(r), e.b)
    return None


def floordiv_of_floordiv(e: FloorDiv, facts: Known) -> Expr | None:
    """(x // c) // d  =>  x // (c*d)        c, d positive constants"""
    match e:
        case FloorDiv(FloorDiv(x, Const(c)), Const(d)) if c > 0 and d > 0 and c * d <= LARGEST:
            return FloorDiv(x, const(c * d))
    return None


def mod_of_multiple(e: Mod, facts: Known) -> Expr | None:
    """(d*q + r) % d  =>  r % d, and r when 0 <= r < d"""
    dividend, divisor = polynomial(e.a), polynomial(e.b)
    if not (are_moderate(dividend) and are_moderate(divisor)):
        return None
    q, r = divide_terms(dividend, divisor)
    if not r or _within(r, divisor, facts):
        return expression(r)
    return Mod(expression(r), e.b) if q else None


def floordiv_of_digit(e: FloorDiv, facts: Known) -> Expr | None:
    """(g*q + r) // (g*n)  =>  q // n        0 <= r < g, constants g > 1 and n > 1"""
    found = _digit(e.a, e.b, facts)
    return None if found is None else FloorDiv(expression(found[1]), const(int(found[3])))


def mod_of_digit(e: Mod, facts: Known) -> Expr | None:
    """(g*q + r) % (g*n)  =>  q % n * g + r        0 <= r < g, constants g > 1 and n > 1"""
    found = _digit(e.a, e.b, facts)
    if found is None:
        return None
    g, q, r, n = found
    return Mod(expression(q), const(n)) * g + expression(r)


def _digit(a: Expr, b: Expr, facts: Known) -> tuple[int, Polynomial, Polynomial, int] | None:
    """g, q, r and n of a = g*q + r and b = g*n with 0 <= r < g; None where there are none."""
    dividend = polynomial(a)
    if not isinstance(b, Const) or b.value < 4 or len(dividend) < 2 or not are_moderate(dividend):
        return None
    for g in sorted({abs(c) for c in dividend.values() if 1 < abs(c) < b.value and b.value % c == 0}):
        q, r = divide_terms(dividend, {(): g})
        if q and r and _within(r, {(): g}, facts):
            return g, q, r, int(b.value) // g
    return None


def mod_by_one(e: Mod, facts: Known) -> Expr | None:
    """x % 1  =>  0"""
    return const(0) if isinstance(e.b, Const) and e.b.value == 1 else None


def min_decided(e: Min, facts: Known) -> Expr | None:
    """min(a, b)  =>  a when a <= b is proved, b when b <= a is"""
    d = _difference(e.b, e.a)
    return e.a if facts.at_least_zero(d) else e.b if facts.at_least_zero(plus({}, d, -1)) else None


def max_decided(e: Max, facts: Known) -> Expr | None:
    """max(a, b)  =>  a when a >= b is proved, b when b >= a is"""
    d = _difference(e.a, e.b)
    return e.a if facts.at_least_zero(d) else e.b if facts.at_least_zero(plus({}, d, -1)) else None


def equal_decided(e: Eq, facts: Known) -> Expr | None:
    """a == b  =>  true when a - b is 0, false when it is proved positive or negative"""
    d = _difference(e.a, e.b)
    if not d:
        return _truth(True)
    return _truth(False) if _never_zero(d, facts) else None


def unequal_decided(e: Ne, facts: Known) -> Expr | None:
    """a != b  =>  false when a - b is 0, true when it is proved positive or negative"""
    d = _difference(e.a, e.b)
    if not d:
        return _truth(False)
    return _truth(True) if _never_zero(d, facts) else None


def _never_zero(d: Polynomial, facts: Known) -> bool:
    return facts.at_least_zero(plus(d, _ONE, -1)) or facts.at_least_zero(plus(plus({}, d, -1), _ONE, -1))


def less_decided(e: Lt, facts: Known) -> Expr | None:
    """a < b  =>  true or false when the sign of b - a is proved"""
    d = _difference(e.b, e.a)
    if facts.at_least_zero(plus(d, _ONE, -1)):
        return _truth(True)
    return _truth(False) if facts.at_least_zero(plus({}, d, -1)) else None


def less_of_multiple(e: Lt, facts: Known) -> Expr | None:
    """d*q + c < b  =>  q < ceil((b - c) / d)        b, c, d constants, d > 1"""
    if not isinstance(e.b, Const):
        return None
    sum_ = polynomial(e.a)
    own = sum_.get((), 0)
    d = math.gcd(*(factor for term, factor in sum_.items() if term))
    if d < 2 or not are_moderate(sum_):
        return None
    return Lt(
        expression({term: factor // d for term, factor in sum_.items() if term}), const(-((own - e.b.value) // d))
    )


def less_equal_decided(e: Le, facts: Known) -> Expr | None:
    """a <= b  =>  true or false when the sign of b - a is proved"""
    d = _difference(e.b, e.a)
    if facts.at_least_zero(d):
        return _truth(True)
    return _truth(False) if facts.at_least_zero(plus(plus({}, d, -1), _ONE, -1)) else None


def compared_minimum(e: Lt | Le, facts: Known) -> Expr | None:
    """min(a, b) < c  =>  a < c when b < c is refuted;  c < min(a, b)  =>  c < a when c < b is proved;  `<=` alike"""
    return _compared(e, Min, facts)


def compared_maximum(e: Lt | Le, facts: Known) -> Expr | None:
    """max(a, b) < c  =>  a < c when b < c is proved;  c < max(a, b)  =>  c < a when c < b is refuted;  `<=` alike"""
    return _compared(e, Max, facts)


def _compared(e: Lt | Le, kind: type[Min | Max], facts: Known) -> Expr | None:
    """A comparison of a minimum or maximum by one of its operands, where the other one does not matter."""
    decide: Rule = less_decided if isinstance(e, Lt) else less_equal_decided
    for on_left, bound in ((True, e.a), (False, e.b)):
        if isinstance(bound, kind):
            every = on_left is (kind is Max)  # whether both operands have to compare so, or one of them
            for kept, other in ((bound.a, bound.b), (bound.b, bound.a)):
                decided = decide(type(e)(other, e.b) if on_left else type(e)(e.a, other), facts)
                if isinstance(decided, Const) and bool(decided.value) is every:
                    return type(e)(kept, e.b) if on_left else type(e)(e.a, kept)
    return None


def and_with_constant(e: And, facts: Known) -> Expr | None:
    """true and x  =>  x;  false and x  =>  false;  x and x  =>  x"""
    if e.a is e.b:
        return e.a
    for c, x in ((e.a, e.b), (e.b, e.a)):
        if isinstance(c, Const):
            return x if c.value else c
    return None


def or_with_constant(e: Or, facts: Known) -> Expr | None:
    """false or x  =>  x;  true or x  =>  true;  x or x  =>  x"""
    if e.a is e.b:
        return e.a
    for c, x in ((e.a, e.b), (e.b, e.a)):
        if isinstance(c, Const):
            return c if c.value else x
    return None


def not_of_constant(e: Not, facts: Known) -> Expr | None:
    """not true  =>  false;  not false  =>  true;  not not x  =>  x"""
    match e.a:
        case Const(value, _):
            return _truth(not value)
        case Not(x):
            return x
    return None


def select_decided(e: Select, facts: Known) -> Expr | None:
    """select(true, a, b)  =>  a;  select(false, a, b)  =>  b;  select(c, a, a)  =>  a"""
    if e.a is e.b:
        return e.a
    if isinstance(e.cond, Const):
        return e.a if e.cond.value else e.b
    return None


def _truth(value: bool) -> Const:
    return Const(value, dtypes.bool_)


RULES: dict[type[Expr], tuple[Rule, ...]] = {
    FloorDiv: (floordiv_of_multiple, floordiv_of_floordiv, floordiv_of_digit),
    Mod: (mod_by_one, mod_of_multiple, mod_of_digit),
    Min: (min_decided,),
    Max: (max_decided,),
    Eq: (equal_decided,),
    Ne: (unequal_decided,),
    Lt: (less_decided, less_of_multiple, compared_minimum, compared_maximum),
    Le: (less_equal_decided, compared_minimum, compared_maximum),
    And: (and_with_constant,),
    Or: (or_with_constant,),
    Not: (not_of_constant,),
    Select: (select_decided,),
}
"""The rules by the node they apply to, in the order they are tried."""


def rules_for(e: Expr) -> tuple[Rule, ...]:
    """The rules for a node: those about integers only where its operands are index-typed."""
    operand = e.children()[0] if e.children() else e
    if isinstance(e, And | Or | Not | Select) or (isinstance(operand, Expr) and operand.dtype is dtypes.index):
        return RULES.get(type(e), ())
    return ()
