"""The least and the greatest value of an index over ranges of its variables, as expressions over the others.

8*i + j   for i fixed and j in 0..8       ->      8*i .. 8*i + 7, every value taken
2*j       for j in 0..n                   ->      0 .. 2*n - 2, not every value taken
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tilewright.expr.linear import Polynomial, affine_in, are_moderate, expression, plus, polynomial, times
from tilewright.expr.nodes import Const, Expr, FloorDiv, Max, Min, Mod, Var, binary, const
from tilewright.expr.simplify import Facts, simplify
from tilewright.expr.variables import variables_of

DEEPEST = 24
"""How many divisions, minima and so on may stand inside one another; beyond, no bound is known."""


@dataclass(frozen=True, slots=True)
class Range:
    """The integers begin, begin + 1, … begin + extent - 1."""

    begin: Expr
    extent: Expr

    @property
    def last(self) -> Expr:
        return _last(self.begin, self.extent)

    @property
    def end(self) -> Expr:
        """The number after the last one, simplified."""
        return simplify(self.begin + self.extent)

    def __str__(self) -> str:
        return f"{self.begin}..{self.end}"


@lru_cache(maxsize=1 << 12)
def _last(begin: Expr, extent: Expr) -> Expr:
    return begin + extent - 1


Ranges = Mapping[Var, Range]


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds that hold for all values of the ranging variables; `dense` says that each integer between is taken. The
    bounds are taken, too, where it is."""

    low: Expr
    high: Expr
    dense: bool


def facts_of(ranges: Ranges) -> Facts:
    """What is known where the variables are in their ranges."""
    return Facts({v: (r.begin, r.last) for v, r in ranges.items()})


def interval(e: Expr, ranges: Ranges) -> Interval | None:
    """The bounds of `e` over the ranges, none of which is empty; a range's ends may be over variables before it in the
    mapping. None when no bound is known."""
    return _interval(e, tuple(_reached(e, ranges).items()))


@lru_cache(maxsize=1 << 13)
def _interval(e: Expr, ranges: tuple[tuple[Var, Range], ...]) -> Interval | None:
    """The bounds are remembered: from one step of a schedule to the next, most indices and loops stay."""
    known = dict(ranges)
    return _Bounds(known, facts_of(known)).of(e)


def _reached(e: Expr, ranges: Ranges) -> Ranges:
    """The ranges of the variables in an expression, and in the ends of such ranges, in the order they are given in."""
    found: set[Var] = set()
    waiting = [v for v in variables_of(e) if v in ranges]
    while waiting:
        var = waiting.pop()
        if var not in found:
            found.add(var)
            span = ranges[var]
            waiting += [v for end in (span.begin, span.extent) for v in variables_of(end) if v in ranges]
    return {v: r for v, r in ranges.items() if v in found}


@dataclass(slots=True)
class _Bounds:
    """The bounds found so far: parts of an index are shared, and asked for again and again."""

    ranges: Ranges
    facts: Facts
    known: dict[Expr, Interval | None] = field(default_factory=dict)
    nested: int = 0

    def of(self, e: Expr) -> Interval | None:
        """The bounds of an expression; None also where atoms stand in atoms too deeply."""
        if e not in self.known:
            if self.nested == DEEPEST:
                return None
            self.nested += 1
            self.known[e] = _find(e, self)
            self.nested -= 1
        return self.known[e]


def _find(e: Expr, bounds: _Bounds) -> Interval | None:
    ranges, facts = bounds.ranges, bounds.facts
    p = polynomial(e)
    found = _of_numbers(p, ranges)
    if found is not None:
        return found
    low = high = p
    dense = _is_dense(p, ranges, facts)
    for atom in {a for m in p for a in m if not isinstance(a, Var) and _moves(a, ranges)}:
        inner = _atom(atom, bounds)
        if inner is None:
            return None
        dense = dense or (inner.dense and e is atom)
        step_low, step_high = _replace(low, atom, inner, -1, facts), _replace(high, atom, inner, 1, facts)
        if step_low is None or step_high is None:
            return None
        low, high = step_low, step_high
    for var in reversed(list(ranges)):
        span = Interval(ranges[var].begin, ranges[var].last, True)
        step_low, step_high = _replace(low, var, span, -1, facts), _replace(high, var, span, 1, facts)
        if step_low is None or step_high is None:
            return None
        low, high = step_low, step_high
    ends = expression(low), expression(high)
    return None if any(_moves(end, ranges) for end in ends) else Interval(*ends, dense)


def _of_numbers(p: Polynomial, ranges: Ranges) -> Interval | None:
    """The bounds of a sum of variables in ranges of numbers, and of what has none in it: what most indices are. None of
    anything else."""
    rest: Polynomial = {}
    steps: list[tuple[int, int]] = []
    least = most = 0
    for monomial, c in p.items():
        var = monomial[0] if len(monomial) == 1 else None
        if isinstance(var, Var) and var in ranges:
            begin, extent = ranges[var].begin, ranges[var].extent
            if not isinstance(begin, Const) or not isinstance(extent, Const) or extent.value < 1:
                return None
            first, last = c * int(begin.value), c * int(begin.value + extent.value - 1)
            least, most = least + min(first, last), most + max(first, last)
            steps.append((abs(c), int(extent.value) - 1))
        elif any(_moves(atom, ranges) for atom in monomial):
            return None
        else:
            rest[monomial] = c
    if not are_moderate(p) or not are_moderate({(): least}) or not are_moderate({(): most}):
        return None
    reach, dense = 0, True
    for step, count in sorted(steps):
        dense = dense and step <= reach + 1
        reach += step * count
    return Interval(expression(plus(rest, {(): least})), expression(plus(rest, {(): most})), dense)


def _moves(e: Expr, ranges: Ranges) -> bool:
    return any(v in ranges for v in variables_of(e))


def _replace(p: Polynomial, atom: Expr, ends: Interval, direction: int, facts: Facts) -> Polynomial | None:
    """The polynomial with `atom` at the end that makes it greatest (1) or least (-1); None when that is not known."""
    if not any(atom in monomial for monomial in p):
        return p
    parts = affine_in(p, atom)
    if parts is None:
        return None
    coefficient, rest = parts
    if facts.at_least_zero(coefficient):
        end = ends.high if direction > 0 else ends.low
    elif facts.at_least_zero(plus({}, coefficient, -1)):
        end = ends.low if direction > 0 else ends.high
    else:
        return None
    return plus(rest, times(coefficient, polynomial(end)))


def _atom(atom: Expr, bounds: _Bounds) -> Interval | None:
    """The bounds of a division, a remainder, a minimum or a maximum of what has bounds."""
    ranges, facts = bounds.ranges, bounds.facts
    match atom:
        case FloorDiv(a, Const(d)) if d > 0:
            inner = bounds.of(a)
            if inner is None:
                return None
            return Interval(_over(inner.low, int(d)), _over(inner.high, int(d)), inner.dense)
        case Mod(a, Const(d)) if d > 0:
            inner = bounds.of(a)
            if inner is not None and _over(inner.low, int(d)) is _over(inner.high, int(d)):
                shift = _over(inner.low, int(d)) * const(int(d))
                return Interval(simplify(inner.low - shift), simplify(inner.high - shift), inner.dense)
            return Interval(const(0), const(int(d) - 1), False)
        case Mod(_, d) if not _moves(d, ranges) and facts.at_least_zero(plus(polynomial(d), {(): 1}, -1)):
            return Interval(const(0), d - 1, False)
        case Min(a, b) | Max(a, b):
            first, second = bounds.of(a), bounds.of(b)
            if first is None or second is None:
                return None
            kind = type(atom)
            low, high = binary(kind, first.low, second.low), binary(kind, first.high, second.high)
            return Interval(simplify(low), simplify(high), False)
    return None


def _over(e: Expr, d: int) -> Expr:
    return simplify(FloorDiv(e, const(d))) if not isinstance(e, Const) else const(int(e.value) // d)


def _is_dense(p: Polynomial, ranges: Ranges, facts: Facts) -> bool:
    """Whether an index takes every value between its ends: sorted by size, each step of a variable is at most one more
    than what the variables before it span together. Their ranges must not depend on one another."""
    steps: list[tuple[int, Var]] = []
    for monomial, c in p.items():
        moving = [a for a in monomial if _moves(a, ranges)]
        if not moving:
            continue
        atom = moving[0]
        if len(monomial) != 1 or not isinstance(atom, Var):
            return False
        steps.append((abs(c), atom))
    if any(_moves(end, ranges) for _, v in steps for end in (ranges[v].begin, ranges[v].extent)):
        return False
    span: Polynomial = {}
    for step, var in sorted(steps, key=lambda s: s[0]):
        if not facts.at_least_zero(plus(plus(span, {(): 1}), {(): step}, -1)):
            return False
        span = plus(span, polynomial(ranges[var].extent - 1), step)
    return True
