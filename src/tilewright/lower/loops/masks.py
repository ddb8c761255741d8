"""Conditions in lanes: what a condition on the variable of a vectorized loop becomes.

    j + jo*8 < n   for j = 0 … 7     =>     ramp(0, 1, 8) < broadcast(i32(min(max(n - jo*8, 0), 8)), 8)

The number of a lane is small, so it is compared in the type that is as wide as what is stored: one vector instruction,
where eight indices would take several.
"""

from __future__ import annotations

from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.build import cast, conjuncts, maximum, minimum
from tilewright.expr.dtypes import DType
from tilewright.expr.evaluate import evaluate
from tilewright.expr.linear import Polynomial, affine_in, are_moderate, expression, plus, polynomial, times
from tilewright.expr.nodes import Broadcast, Cast, Const, Expr, FloorDiv, Le, Lt, Max, Min, Ramp, Var, const
from tilewright.loops.nodes import Load

_BY_WIDTH = {dtype.bits: dtype for dtype in (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64)}


def lane_type(bits: int, count: int) -> DType:
    """The integer type in which lanes are counted next to elements of this width."""
    dtype = _BY_WIDTH[bits]
    return dtype if count <= dtype.max else dtypes.i64


def compare_lanes(e: Expr, var: Var, begin: int, count: int, dtype: DType) -> Expr | None:
    """The comparison for var = begin, begin + 1, …, as one of the numbers of lanes; a single truth value where all
    lanes agree for certain. None when it is no comparison of indices that differ by a constant from lane to lane."""
    if not isinstance(e, Lt | Le) or not _is_bounded(e):
        return None
    parts = affine_in(plus(polynomial(e.b), polynomial(e.a), -1), var)
    if parts is None or set(parts[0]) != {()} or any(var is n for m in parts[1] for a in m for n in preorder(a)):
        return None
    step = parts[0][()]
    rest = plus(parts[1], {(): step * begin + isinstance(e, Le)})
    if not are_moderate(rest):
        return None
    return _below(rest, -step, count, dtype) if step < 0 else _from(rest, step, count, dtype)


def _below(rest: Polynomial, step: int, count: int, dtype: DType) -> Expr:
    """rest - step*lane > 0: the first lanes, ceil(rest / step) of them."""
    number = _quotient(plus(rest, {(): step - 1}), step)
    if isinstance(number, Const) and not 0 < number.value < count:
        return Const(number.value > 0, dtypes.bool_)
    return Lt(_lanes(count, dtype), _clamped(number, count, dtype))


def _from(rest: Polynomial, step: int, count: int, dtype: DType) -> Expr:
    """rest + step*lane > 0: the lanes from floor(-rest / step) + 1 on."""
    first = _quotient(plus(times(rest, {(): -1}), {(): step}), step)
    if isinstance(first, Const) and not 0 < first.value < count:
        return Const(first.value <= 0, dtypes.bool_)
    return Le(_clamped(first, count, dtype), _lanes(count, dtype))


def _quotient(p: Polynomial, step: int) -> Expr:
    return expression(p) // step if step > 1 else expression(p)


def _lanes(count: int, dtype: DType) -> Expr:
    return Ramp(const(0, dtype), const(1, dtype), count)


def _clamped(number: Expr, count: int, dtype: DType) -> Expr:
    return Broadcast(cast(minimum(maximum(number, 0), count), dtype), count)


def _is_bounded(e: Lt | Le) -> bool:
    """Whether it compares indices, which are far from overflow, and no data, which may wrap around."""
    wild = any(isinstance(n, Load) or (isinstance(n, Var) and n.least is None) for n in preorder(e))
    return e.a.dtype is dtypes.index and not wild


def all_lanes(mask: Expr) -> list[Polynomial] | None:
    """What must be at least zero for a mask to hold in all of its lanes. None where it does more than compare the
    numbers of the lanes with one that is the same for all."""
    found = []
    for part in conjuncts(mask):
        match part:
            case Lt(Ramp(Const(0), Const(1), lanes), Broadcast(bound, _)):
                need = _at_least(bound, lanes)
            case Le(Broadcast(bound, _), Ramp(Const(0), Const(1), _)):
                need = _at_most_zero(bound)
            case _:
                need = None
        if need is None:
            return None
        found.append(need)
    return found


def _at_least(bound: Expr, lanes: int) -> Polynomial | None:
    """number >= lanes"""
    number, most = _unclamped(bound)
    match number:
        case None:
            return None
        case FloorDiv(e, Const(step)) if step > 0:
            return plus(polynomial(e), {(): -lanes * int(step)}) if most >= lanes else None
    return plus(polynomial(number), {(): -lanes}) if most >= lanes else None


def _at_most_zero(bound: Expr) -> Polynomial | None:
    """number <= 0"""
    match _unclamped(bound)[0]:
        case None:
            return None
        case FloorDiv(e, Const(step)) if step > 0:
            return plus({(): int(step) - 1}, polynomial(e), -1)
        case number:
            return times(polynomial(number), {(): -1})


def _unclamped(bound: Expr) -> tuple[Expr | None, int]:
    """What was clamped to the numbers of lanes, an index; and the most lanes."""
    match bound:
        case Cast(Min(Max(number, Const(0)), Const(most)), _) | Min(Max(number, Const(0)), Const(most)):
            wild = any(isinstance(n, Load) or (isinstance(n, Var) and n.least is None) for n in preorder(number))
            return (None, 0) if wild or number.dtype is not dtypes.index else (number, int(most))
    return None, 0


def lanes_that_hold(mask: Expr) -> list[bool] | None:
    """In which lanes a condition holds, when it consists of constants alone; else None."""
    if any(isinstance(n, Load | Var) for n in preorder(mask)):
        return None
    lanes = evaluate(mask, {})
    return [bool(v) for v in (lanes.reshape(-1) if mask.lanes > 1 else [lanes])]


def decided(mask: Expr) -> bool | None:
    """Whether a condition holds in all lanes, or in none, when it consists of constants alone; else None."""
    values = set(lanes_that_hold(mask) or ())
    return values.pop() if len(values) == 1 else None


def is_pure(mask: Expr) -> bool:
    """Whether a condition reads no memory: it is the same before and after any store."""
    return not any(isinstance(n, Load) for n in preorder(mask))
