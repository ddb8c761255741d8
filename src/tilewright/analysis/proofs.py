"""Proofs that a number is never negative, beyond what the simplifier proves: over loops, floor divisions, minima.

    0 <= i <= n//8 - 1, 0 <= j <= 7     ->      n - 8*i - j - 1 >= 0

The loops' variables are replaced by the ends of their ranges that make the number least, the innermost first. What is
then left of divisions is replaced by their bounds, e - d + 1 <= d*(e // d) <= e, after the whole was multiplied by d.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import cast

from tilewright.analysis.intervals import Range, Ranges, facts_of, interval
from tilewright.core.walk import substitute
from tilewright.expr.linear import LARGEST, Monomial, Polynomial, affine_in, expression, plus, polynomial, times
from tilewright.expr.nodes import Const, Expr, FloorDiv, Max, Min, Var, const
from tilewright.expr.simplify import Facts, simplify
from tilewright.expr.variables import variables_of

MOST_CHOICES = 4
"""How many minima and maxima are replaced by one of their sides."""


def never_negative(p: Polynomial, ranges: Ranges, facts: Facts | None = None) -> bool:
    """Whether p >= 0 is proved while the variables are in their ranges, none of which is empty. `facts` are those of
    the ranges, where they are at hand."""
    least = _least_number(p, ranges)
    if least is not None:
        return 0 <= least <= LARGEST
    known = facts or facts_of(ranges)
    return known.at_least_zero(p) or _is_proved(tuple(p.items()), tuple(ranges.items()))


def _least_number(p: Polynomial, ranges: Ranges) -> int | None:
    """The least value of a sum of multiples of variables whose ranges have numbers as their ends; None of others."""
    least = 0
    for monomial, c in p.items():
        if not monomial:
            least += c
            continue
        span = ranges.get(monomial[0]) if len(monomial) == 1 and isinstance(monomial[0], Var) else None
        if span is None or not isinstance(span.begin, Const) or not isinstance(span.extent, Const):
            return None
        begin = int(span.begin.value)
        least += c * (begin if c > 0 else begin + int(span.extent.value) - 1)
    return least


@lru_cache(maxsize=1 << 12)
def _is_proved(terms: tuple[tuple[Monomial, int], ...], spans: tuple[tuple[Var, Range], ...]) -> bool:
    """The answer is remembered: from one step of a schedule to the next, most conditions and loops stay."""
    p, ranges = dict(terms), dict(spans)
    if _at_worst(p, list(ranges), ranges, facts_of(ranges)):
        return True
    if all(_is_fixed(atom, ranges) for monomial in p for atom in monomial):
        return False
    bounds = interval(expression(p), ranges)
    return bounds is not None and Facts().at_least_zero(_without_divisions(polynomial(bounds.low)))


def _is_fixed(atom: Expr, ranges: Ranges) -> bool:
    """Whether an atom is a variable whose range has numbers as its ends, or none: then the worst case is the bound."""
    if not isinstance(atom, Var) or atom not in ranges:
        return isinstance(atom, Var)
    return isinstance(ranges[atom].begin, Const) and isinstance(ranges[atom].extent, Const)


def _at_worst(p: Polynomial, order: list[Var], ranges: Ranges, facts: Facts) -> bool:
    """Whether p >= 0 is proved by taking the variables, the last one first, to the end that makes p least: the ends may
    be over variables before it, and a minimum there may be what they have in common with the rest."""
    for side in _sides(p, MOST_CHOICES):
        divided = any(len(m) == 1 and _divisor(m[0]) for m in side)
        used = frozenset[Expr]().union(*side) if not divided else variables_of(expression(side))
        n = next((n for n in reversed(range(len(order))) if order[n] in used), None)
        if (n is None or divided) and facts.at_least_zero(_without_divisions(side)):
            return True
        if n is None:
            continue
        least = _least(side, order[n], ranges[order[n]], facts)
        if least is not None and _at_worst(least, order[:n], ranges, facts):
            return True
    return False


def _least(p: Polynomial, var: Var, span: Range, facts: Facts) -> Polynomial | None:
    """The polynomial with a variable at the end that makes it least; None where that is not known."""
    divided = any(atom is not var and var in variables_of(atom) for monomial in p for atom in monomial)
    parts = None if divided else affine_in(p, var)
    if parts is None:
        slopes = {_slope(monomial, c, var) for monomial, c in p.items()} - {0}
        if len(slopes) != 1 or None in slopes:
            return None
        return polynomial(simplify(substitute(expression(p), {var: span.begin if slopes == {1} else span.last})))
    factor, rest = parts
    if facts.at_least_zero(factor):
        return plus(rest, times(factor, polynomial(span.begin)))
    return plus(rest, times(factor, polynomial(span.last))) if facts.at_least_zero(plus({}, factor, -1)) else None


def _slope(monomial: Monomial, c: int, var: Var) -> int | None:
    """Whether c times a monomial grows with a variable (1), falls (-1), or does not have it (0): a multiple of it, or a
    division of a sum with a multiple of it by a number. None where that is not known."""
    if not any(var in variables_of(atom) for atom in monomial):
        return 0
    only = monomial[0] if len(monomial) == 1 else None
    inner = polynomial(only.a) if isinstance(only, FloorDiv) and _divisor(only) > 0 else {monomial: 1}
    parts = affine_in(inner, var)
    if parts is None or set(parts[0]) != {()}:
        return None
    return 1 if c * parts[0][()] > 0 else -1


def _sides(p: Polynomial, choices: int) -> Iterator[Polynomial]:
    """Polynomials that are at most p: minima that are taken off replaced by either side, and maxima that are added."""
    for monomial, c in p.items():
        match monomial:
            case (Min(a, b) | Max(a, b) as atom,) if isinstance(atom, Min) == (c < 0) and choices:
                rest = {m: k for m, k in p.items() if m != monomial}
                yield from _sides(plus(rest, polynomial(a), c), choices - 1)
                yield from _sides(plus(rest, polynomial(b), c), choices - 1)
                return
    yield p


def _without_divisions(p: Polynomial) -> Polynomial:
    """A multiple of p, or less than it, in which no division is a term. One that another one is of is replaced after
    it, and may have gone by then: so a size that was rounded up covers what it was rounded from. Of x // 4 and x // 8,
    the second one is (x // 4) // 2."""
    divisions = [m for m in p if len(m) == 1 and _divisor(m[0]) > 0]
    if not divisions:
        return p
    ends = {cast(FloorDiv, m[0]).a: m[0].serial for m in sorted(divisions, key=lambda m: m[0].serial)}
    last = max(divisions, key=lambda m: (ends[cast(FloorDiv, m[0]).a], _divisor(m[0])))
    division, d, c = cast(FloorDiv, last[0]), _divisor(last[0]), p[last]
    parts = [cast(FloorDiv, m[0]) for m in divisions if d % _divisor(m[0]) == 0 and m != last]
    inner = max((part for part in parts if part.a is division.a), key=_divisor, default=None)
    if inner is not None:
        division, d = FloorDiv(inner, const(d // _divisor(inner))), d // _divisor(inner)
    scale = d // math.gcd(c, d)
    if scale > 1 << 20 or max(map(abs, p.values())) > LARGEST >> 20:
        return p
    rest = times({m: k for m, k in p.items() if m != last}, {(): scale})
    least = polynomial(division.a) if c < 0 else plus(polynomial(division.a), {(): d - 1}, -1)
    return _without_divisions(plus(rest, least, c * scale // d))


def _divisor(atom: Expr) -> int:
    """What a division divides by; 0 of others."""
    return int(atom.b.value) if isinstance(atom, FloorDiv) and isinstance(atom.b, Const) else 0
