"""Expressions beyond Python's operators: casts, minima, choices, comparisons, with constants folded.

    minimum(n - i, 4)        select(less(i, n), x, 0.0)        cast(x, dtypes.f32)        conjunction(conditions)

Numbers take the type of the other side; constants decide at once. Everything further is simplify.py's.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr import dtypes, meaning
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import And, Cast, Const, Eq, Expr, Le, Lt, Max, Min, Number, Select, as_expr, binary, const


def cast(a: Expr | Number, dtype: DType) -> Expr:
    """`a` as `dtype`; nothing is built when it has it already, and constants are converted at once."""
    if not isinstance(a, Expr):
        return const(a, dtype)
    if a.dtype is dtype:
        return a
    return const(meaning.convert_number(a.value, a.dtype, dtype), dtype) if isinstance(a, Const) else Cast(a, dtype)


def minimum(a: Expr | Number, b: Expr | Number) -> Expr:
    return binary(Min, a, b)


def maximum(a: Expr | Number, b: Expr | Number) -> Expr:
    return binary(Max, a, b)


def select(cond: Expr, a: Expr | Number, b: Expr | Number) -> Expr:
    """`a` where `cond` holds, else `b`; a constant condition decides at once."""
    dtype = a.dtype if isinstance(a, Expr) else b.dtype if isinstance(b, Expr) else dtypes.index
    a, b = as_expr(a, dtype), as_expr(b, dtype)
    if isinstance(cond, Const):
        return a if cond.value else b
    return a if a is b else Select(cond, a, b)


def equal(a: Expr | Number, b: Expr | Number) -> Expr:
    return binary(Eq, a, b)


def less(a: Expr | Number, b: Expr | Number) -> Expr:
    return binary(Lt, a, b)


def less_equal(a: Expr | Number, b: Expr | Number) -> Expr:
    return binary(Le, a, b)


def conjunction(parts: list[Expr]) -> Expr | None:
    """All of the conditions, or None when there are none."""
    result: Expr | None = None
    for part in parts:
        result = part if result is None else And(result, part)
    return result


def conjuncts(cond: Expr | None) -> list[Expr]:
    """The conditions that must all hold, in their order; none of None."""
    found: list[Expr] = []
    stack = [] if cond is None else [cond]
    while stack:
        part = stack.pop()
        if isinstance(part, And):
            stack += [part.b, part.a]
        else:
            found.append(part)
    return found


def one_of(place: Expr, terms: Sequence[Expr]) -> Expr:
    """The term of this number, counted from 0; the last one for any other number."""
    value = terms[-1]
    for n, term in reversed(list(enumerate(terms[:-1]))):
        value = select(equal(place, n), term, value)
    return value
