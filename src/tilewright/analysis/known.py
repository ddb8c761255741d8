"""What is proved while loops run: signs of numbers over their variables, and which ranges lie in which. And conditions:
what they say of boxes, up to which iteration they hold.

i in 0..n//8, j in 0..8     ->      n - 8*i - j - 1 >= 0;  8*i..8*i + 8 lies in 0..n
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property

from tilewright.analysis.accesses import mentions
from tilewright.analysis.intervals import Interval, Range, Ranges, facts_of, interval
from tilewright.analysis.proofs import never_negative
from tilewright.analysis.regions import ranges_of, span
from tilewright.analysis.sizes import LARGE
from tilewright.core.walk import preorder, substitute
from tilewright.expr import dtypes
from tilewright.expr.build import conjuncts, maximum, minimum
from tilewright.expr.linear import Monomial, Polynomial, affine_in, expression, involves, linear_in, plus, polynomial
from tilewright.expr.nodes import Const, Expr, FloorDiv, Le, Lt, Max, Min, Select, Var, const
from tilewright.expr.simplify import Facts, simplify
from tilewright.expr.variables import bits_of
from tilewright.loops.edit import loops_inside, statements
from tilewright.loops.nodes import Block, For, If, Let, Load

CHOOSING = bits_of(Select, Min)


class Known:
    """What is proved while variables are in their ranges, none of which is empty; answers are kept."""

    def __init__(self, ranges: Ranges | None = None) -> None:
        self.ranges = ranges or {}
        self._signs: dict[frozenset[tuple[Monomial, int]], bool] = {}
        self._further: dict[tuple[tuple[Var, Range], ...], Known] = {}

    @cached_property
    def facts(self) -> Facts:
        return facts_of(self.ranges)

    def never_negative(self, p: Polynomial) -> bool:
        """Whether p >= 0 is proved."""
        if all(not m for m in p):
            return p.get((), 0) >= 0
        key = frozenset(p.items())
        if key not in self._signs:
            self._signs[key] = never_negative(p, self.ranges, self.facts)
        return self._signs[key]

    def at_least(self, a: Expr, b: Expr) -> bool:
        """Whether a >= b is proved: of a minimum, and of a maximum as b, for both sides."""
        if self.never_negative(plus(polynomial(a), polynomial(b), -1)):
            return True
        if isinstance(a, Min):
            return self.at_least(a.a, b) and self.at_least(a.b, b)
        return isinstance(b, Max) and self.at_least(a, b.a) and self.at_least(a, b.b)

    def follows(self, p: Polynomial | None, facts: Iterable[Polynomial | None]) -> bool:
        """Whether p >= 0 is proved from one fact >= 0 of some, being no less; None stands for what is not known."""
        return p is not None and any(self.never_negative(plus(p, fact, -1)) for fact in facts if fact is not None)

    def within(self, inner: Range, outer: Range) -> bool:
        """Whether it is proved that one range lies in the other."""
        return self.at_least(inner.begin, outer.begin) and self.at_least(outer.end, inner.end)

    def simplified(self, e: Expr) -> Expr:
        """The expression in its simplest form."""
        return simplify(e, self.facts)

    def holds(self, cond: Expr) -> bool:
        """Whether a condition is known to hold."""
        decided = self.simplified(cond)
        spare = bound(decided)
        return bool(decided.value) if isinstance(decided, Const) else spare is not None and self.never_negative(spare)

    def fails(self, cond: Expr) -> bool:
        """Whether a condition is known to hold nowhere."""
        spare = bound(cond)
        return spare is not None and self.never_negative(plus({(): -1}, spare, -1))

    def where(self, ranges: Mapping[Var, Range]) -> Known:
        """What is known where further variables are in ranges, too."""
        key = tuple(ranges.items())
        if key not in self._further:
            self._further[key] = Known({**self.ranges, **ranges})
        return self._further[key]


NOTHING = Known()
"""What is known of symbols alone."""


def running(begin: Expr, end: Expr) -> Range:
    """The range of a loop that runs at all: it begins before it ends."""
    if isinstance(end, Max) and begin in (end.a, end.b):
        end = end.b if end.a is begin else end.a
    if isinstance(begin, Min):
        past = [e for e in (begin.a, begin.b) if NOTHING.at_least(e, end)]
        begin = begin if not past else begin.b if past[0] is begin.a else begin.a
    return span(begin, end)


def resolved(block: Block, e: Expr) -> Expr:
    """An expression of a block over loop variables alone."""
    return substitute(e, block.bindings)


def bound(cond: Expr | None) -> Polynomial | None:
    """The polynomial that is at least zero where a bound of an index, a < b or a <= b, holds; None of other
    conditions: between two floats there are others."""
    if not isinstance(cond, Lt | Le) or cond.a.dtype is not dtypes.index:
        return None
    gap = plus(polynomial(cond.b), polynomial(cond.a), -1)
    return plus(gap, {(): 1}, -1) if isinstance(cond, Lt) else gap


def compared(gap: Polynomial, strict: bool | None = None) -> Expr:
    """gap >= 0 as a comparison, with what is subtracted on the left: less <= more, or `strict`, less < more + 1. By
    default it is the shorter one."""
    if strict is None:
        strict = gap.get((), 0) == -1 or not any(c > 0 for m, c in gap.items() if m)
    p = plus(gap, {(): int(strict)})
    number = p.pop((), 0)
    less = expression({m: -c for m, c in p.items() if c < 0}) - min(number, 0)
    more = expression({m: c for m, c in p.items() if c > 0}) + max(number, 0)
    return (Lt if strict else Le)(simplify(less), simplify(more))


def exchanged(gap: Polynomial, names: Iterable[tuple[Expr, Expr]], moving: set[Var]) -> Polynomial | None:
    """The polynomial with multiples of values replaced by those of their names, where that takes a moving variable out
    of it; None where one stays."""
    for value, name in names:
        p = polynomial(value)
        for var in value.variables & moving:
            mine, theirs = p.get((var,), 0), gap.get((var,), 0)
            if mine and theirs and theirs % mine == 0:
                gap = plus(plus(gap, p, -theirs // mine), polynomial(name), theirs // mine)
                break
    return None if involves(gap, moving) else gap


def limits(where: Expr | None, axis: Var, step: int = 1) -> tuple[int, int]:
    """The first value of an axis from which on a condition holds, and the first beyond for which it may not. The axis
    counts by `step`, and what is between is counted by another one."""
    first, end = 0, LARGE
    for cond in conjuncts(where):
        p = bound(cond)
        found = affine_in(p, axis) if p is not None else None
        if found is None or set(found[0]) != {()}:
            continue
        number = found[1].get((), 0)
        if found[0][()] == step:
            first = max(first, -(number // step))
        elif found[0][()] == -step:
            end = min(end, (number + 1) // step)
    return first, end


def tighten(
    box: Ranges, conditions: Mapping[Expr, Polynomial | None], known: Known, around: frozenset[Var] = frozenset()
) -> tuple[dict[Var, Range], list[Expr]]:
    """(the box, what is left of the conditions): those that only say where the box begins or ends, with a place in it,
    have become the box's, and those that hold throughout it are left out. Conditions come with the polynomial that is
    at least zero where they hold, if there is one. Those that would make the size of the box depend on variables
    `around` stay."""
    made = dict(box)
    kept = {c: gap for c, gap in conditions.items() if gap is None or not _absorbed(gap, made, known, around)}
    inside = known.where(made) if kept else known
    return made, [c for c, gap in kept.items() if gap is None or not inside.never_negative(gap)]


def _absorbed(gap: Polynomial, box: dict[Var, Range], known: Known, around: frozenset[Var]) -> bool:
    """Whether gap >= 0 says v < cut or v >= cut of one variable of the box, whose range then is made to say so."""
    named = [v for v in box if involves(gap, (v,))]
    parts = linear_in(gap, named[0]) if len(named) == 1 else None
    if parts is None or parts[0] not in ({(): 1}, {(): -1}):
        return False
    here, ends = box[named[0]], parts[0] == {(): -1}
    cut = simplify(expression(plus(parts[1], {(): 1}) if ends else plus({}, parts[1], -1)))
    if not known.within(Range(cut, const(0)), here):
        return False
    made = span(here.begin, cut) if ends else span(cut, here.end)
    if mentions(made.extent, around) and not mentions(here.extent, around):
        return False
    box[named[0]] = made
    return True


class Turn(Enum):
    """Where a condition turns while a loop runs: iterations hold it for none, some or all of what they hold."""

    ALL_TO_SOME = "all to some"
    SOME_TO_NONE = "some to none"
    NONE_TO_SOME = "none to some"
    SOME_TO_ALL = "some to all"

    @property
    def rises(self) -> bool:
        """Whether the condition comes to hold."""
        return self in (Turn.NONE_TO_SOME, Turn.SOME_TO_ALL)

    @property
    def of_all(self) -> bool:
        """Whether it holds for all, on one side."""
        return self in (Turn.ALL_TO_SOME, Turn.SOME_TO_ALL)


def boundary(loop: For, known: Known, dead: bool = False) -> Expr | None:
    """The first iteration behind a turn of a condition inside a loop (a `where`, that of an `if` or a `select`), and
    not the loop's first: where one no longer holds for all; else, where one no longer holds for any; else, where one
    comes to hold for all. With `dead`, where one no longer holds for any; else, where one comes to hold for some.
    `known` is what the loops around say. None where there is no such place."""
    inner = ranges_of(loops_inside(loop.body))
    hidden: set[Expr] = {s.var for s in statements(loop.body) if isinstance(s, For | Let)}
    conditions = _conditions(loop)
    turns = [Turn.SOME_TO_NONE, Turn.NONE_TO_SOME] if dead else [Turn.ALL_TO_SOME, Turn.SOME_TO_NONE, Turn.SOME_TO_ALL]
    for turn in turns:
        for cond in conditions:
            place = _place(turn, cond, loop.var, inner)
            end = None if place is None else known.simplified(minimum(place, loop.end))
            if place is None or loop.begin in (place, end) or (dead and end is loop.end):
                continue
            if turn.rises and known.simplified(maximum(place, loop.begin)) is loop.begin:
                continue
            if not any(isinstance(e, Load) or e in hidden for e in preorder(place)):
                return simplify(loop.begin + 0) if isinstance(place, Const) and place.value < 0 else place
    return None


def _conditions(loop: For) -> list[Expr]:
    """What decides inside a loop whether something runs, and which value is taken, over loop variables."""
    found: list[Expr] = []
    for s in statements(loop.body):
        if isinstance(s, If):
            found += conjuncts(s.cond)
        elif isinstance(s, Block):
            chosen = [e.cond for e in decisions(s) if isinstance(e, Select)]
            found += [resolved(s, part) for cond in (s.where, *chosen) for part in conjuncts(cond)]
    return found


def decisions(block: Block) -> list[Expr]:
    """The selections and minima in what a block computes."""
    parts = [part for part in block.held() if part.kinds() & CHOOSING]
    return [e for e in preorder(parts) if isinstance(e, Select | Min)]


def _place(turn: Turn, cond: Expr, var: Var, inner: Ranges) -> Expr | None:
    """The first var behind a turn of a condition factor*var + rest >= 0, by the least and the greatest rest; None where
    the condition is another one, or does not turn so."""
    factor, rest = _slope(cond, var, inner)
    if rest is None or (factor <= 0 if turn.rises else factor >= 0):
        return None
    end = rest.low if turn.of_all else rest.high
    if mentions(end, {var}):
        return None
    if turn.rises:
        return simplify(FloorDiv(end * -1 + (factor - 1), const(factor)))
    return simplify(FloorDiv(end, const(-factor)) + 1)


def _slope(cond: Expr, var: Var, inner: Ranges) -> tuple[int, Interval | None]:
    """For a condition factor*var + rest >= 0, the factor and what the rest is between; (0, None) for another one."""
    gap = bound(cond)
    parts = None if gap is None else linear_in(gap, var)
    if parts is None or set(parts[0]) != {()}:
        return 0, None
    return parts[0][()], interval(expression(parts[1]), inner)
