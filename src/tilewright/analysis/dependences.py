"""Whether the iterations of a loop depend on one another.

    for i in 0..n:                  carried by i: store y[i] and load y[i - 1], distance 1
      y[i] = y[i - 1] + x[i]

Two accesses to one buffer, at least one of them a store, depend when an element may be touched by both in different
iterations. A dimension rules that out when, over all values of the loops inside, its two indices cannot meet. That is
decided for affine indices; whatever cannot be decided counts as a dependence, of no known distance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.intervals import Range, Ranges, facts_of, interval
from tilewright.analysis.regions import ranges_of, settled
from tilewright.analysis.vectors import distance_along, longest
from tilewright.expr.linear import Polynomial, affine_in, expression, involves, joined, plus, polynomial
from tilewright.expr.nodes import Const, Expr, Mod, as_expr, const
from tilewright.expr.simplify import Facts
from tilewright.loops.edit import allocations, loads_of, statements
from tilewright.loops.nodes import Buffer, For, Stmt, Store


@dataclass(frozen=True, slots=True)
class Dependence:
    """Two accesses that may meet in different iterations of `loop`. `distance` is how many iterations `second` comes
    after `first` when that is one number; None when it is not known, or more than one."""

    loop: For
    first: Access
    second: Access
    distance: int | None

    def __str__(self) -> str:
        apart = "" if self.distance is None else f", distance {self.distance}"
        return f"carried by {self.loop.var.name}: {self.first} and {self.second}{apart}"


def carried(loop: For, outer: Sequence[For] = ()) -> list[Dependence]:
    """The dependences that a loop carries, in program order; none means that its iterations may run in any order, or
    at the same time. `outer` are loops around it, outermost first: their ranges help to prove."""
    own = set(allocations(loop.body))
    known = ranges_of((*outer, loop))
    touched = [a for a in accesses(loop.body) if a.buffer not in own]
    stored = {a.buffer for a in touched if a.is_store}
    found = [settled(a, known) for a in touched if a.buffer in stored]
    result: list[Dependence] = []
    for n, first in enumerate(found):
        for second in found[n:]:
            if first.buffer is second.buffer and (first.is_store or second.is_store):
                met = _meet(loop, first, second, known)
                if met is not None:
                    result.append(met)
    return result


def meeting(loop: For, outer: Sequence[For], first: Access, second: Access) -> Dependence | None:
    """The dependence between two accesses as if they were to one buffer, None when no two iterations of the loop meet.
    The accesses are those of its body, to buffers of one shape; `outer` are the loops around it, outermost first."""
    return _meet(loop, first, second, ranges_of((*outer, loop)))


def stored_elsewhere(loop: For, outer: Sequence[For], block: Stmt, buffers: Set[Buffer]) -> Access | None:
    """An access of a block in a loop to one of these buffers where another iteration of the loop stores; None where
    there is none. `outer` are the loops around the loop, outermost first."""
    own, known, inside = set(statements(block)), ranges_of([*outer, loop]), accesses(loop.body)
    touching = [a for a in inside if a.buffer in buffers]
    stores = {(a.buffer, a.indices, a.loops): settled(a, known) for a in touching if a.is_store}.values()
    for access in [a for a in touching if a.statement in own]:
        mine = settled(access, known)
        if any(s.buffer is mine.buffer and _meet(loop, s, mine, known) is not None for s in stores):
            return access
    return None


def are_apart(first: Access, second: Access, outer: Ranges) -> bool:
    """Whether the regions of two accesses, over the loops that are theirs, are disjoint in some dimension; `outer` are
    the ranges of loops around both."""
    facts = facts_of(outer)
    for a, b in zip(first.indices, second.indices, strict=True):
        if a.lanes != 1 or b.lanes != 1:
            continue
        one, two = interval(a, ranges_of(first.loops)), interval(b, ranges_of(second.loops))
        if one is None or two is None:
            continue
        if _less(one.high, two.low, facts) or _less(two.high, one.low, facts):
            return True
    return False


def _meet(loop: For, first: Access, second: Access, known: Ranges) -> Dependence | None:
    """The dependence between two accesses, or None when one dimension rules it out."""
    distances: set[int] = set()
    pair = _Pair(loop, first, second, known)
    for a, b in (*zip(first.indices, second.indices, strict=True), *_digits(first, second)):
        verdict = pair.compare(a, b)
        if verdict is NEVER:
            return None
        if isinstance(verdict, int):
            distances.add(verdict)
    if 0 in distances or len(distances) > 1:
        return None
    meets, apart = distance_along(loop, first, second)
    if not meets:
        return None
    distance = distances.pop() if distances else apart
    extent = known[loop.var].extent
    if distance is not None and isinstance(extent, Const) and abs(distance) >= extent.value:
        return None
    if distance is not None and distance < 0:
        first, second, distance = second, first, -distance
    return Dependence(loop, first, second, distance)


def _digits(first: Access, second: Access) -> list[tuple[Expr, Expr]]:
    """Dimensions that are indexed by the digits of one number, x // 4 and x % 4 or x // 4, x // 2 % 2 and x % 2,
    compared as that number: an index is less than its extent, so all are equal where the number is."""
    found: list[tuple[Expr, Expr]] = []
    shape = first.buffer.shape
    for n in range(1, len(shape)):
        at, weight = n, as_expr(1)
        wholes = [a.indices[n] for a in (first, second)]
        while at and (shape[at] is const(1) or all(a.indices[at].kinds & Mod.bit for a in (first, second))):
            at, weight = at - 1, weight * shape[at]
            wholes = [w + a.indices[at] * weight for w, a in zip(wholes, (first, second), strict=True)]
            one, two = (expression(joined(polynomial(e))) for e in wholes)
            found.append((one, two))
    return found


class _Never:
    """The two indices never meet in different iterations."""


NEVER = _Never()


class _Pair:
    """Compares the indices of two accesses, dimension by dimension."""

    def __init__(self, loop: For, first: Access, second: Access, known: Ranges) -> None:
        self.loop = loop
        self.known = known
        self.first, self.second = first, second
        self.inner = {inner.var for access in (first, second) for inner in access.loops}
        self.mine = [{loop.var: known[loop.var], **ranges_of(access.loops)} for access in (first, second)]

    def compare(self, a: Expr, b: Expr) -> int | _Never | None:
        """The one distance at which the indices meet, NEVER, or None for anything else."""
        if self._may_change(a, b):
            return None
        same = a is b and self.first.loops == self.second.loops
        if self._never_runs if same else self._apart(a, b):
            return NEVER
        return self._by_steps(a, b)

    @property
    def _never_runs(self) -> bool:
        """Whether a loop around an access has no iterations: only then a range is disjoint from itself."""
        extents = [r.extent for ranges in (self.known, *self.mine) for r in ranges.values()]
        return any(isinstance(e, Const) and e.value <= 0 for e in extents)

    def _by_steps(self, a: Expr, b: Expr) -> int | _Never | None:
        """What `compare` says by how far the indices move in one iteration."""
        one, two = self._parts(a), self._parts(b)
        if one is None or two is None or one[0] != two[0] or not one[0]:
            return None
        step, constant = one[0], _constant(one[0])
        gap = _constant(plus(one[1], two[1], -1))
        if gap is not None and constant is not None and not self._inner_in(a, b):
            return NEVER if gap % constant else gap // constant
        reach = self._reach(one[1], two[1])
        if reach is not None and _within(step, reach, facts_of(self.known)):
            return NEVER
        return None if constant is None else self._never_by_divisor(one[1], two[1], constant)

    def _may_change(self, *indices: Expr) -> bool:
        """Whether what an index is may change from one iteration to the next."""
        read = {load.buffer for e in indices for load in loads_of(e)}
        return bool(read) and any(isinstance(s, Store) and s.buffer in read for s in statements(self.loop.body))

    def _parts(self, e: Expr) -> tuple[Polynomial, Polynomial] | None:
        """(coefficient of the loop variable, rest), when the index is affine in it."""
        if e.lanes != 1:
            return None
        parts = affine_in(polynomial(e), self.loop.var)
        if parts is None:
            return None
        step, rest = parts
        if involves(step, {self.loop.var, *self.inner}) or involves(rest, {self.loop.var}):
            return None
        return parts

    def _inner_in(self, *indices: Expr) -> bool:
        return any(mentions(i, self.inner) for i in indices)

    def _reach(self, one: Polynomial, two: Polynomial) -> tuple[Polynomial, Polynomial] | None:
        """The least and the greatest value of one - two over the loops inside, each access in iterations of its own."""
        ends = []
        for part, access in ((one, self.first), (two, self.second)):
            ranges = {v: Range(r.begin, longest(r.extent)) for v, r in ranges_of(access.loops).items()}
            if any(mentions(e, (self.loop.var,)) for r in ranges.values() for e in (r.begin, r.extent)):
                return None
            bounds = interval(expression(part), ranges)
            if bounds is None:
                return None
            ends.append((polynomial(bounds.low), polynomial(bounds.high)))
        (low1, high1), (low2, high2) = ends
        return plus(low1, high2, -1), plus(high1, low2, -1)

    def _never_by_divisor(self, one: Polynomial, two: Polynomial, step: int) -> _Never | None:
        """Never where the greatest common divisor of all steps does not divide the constant between the indices."""
        steps = [step]
        for part, access in ((one, self.first), (two, self.second)):
            inner = {loop.var for loop in access.loops}
            for monomial, c in part.items():
                if any(mentions(atom, inner) for atom in monomial):
                    steps.append(c)
        gap = plus(one, two, -1)
        fixed = [m for m in gap if m and not any(mentions(a, self.inner) for a in m)]
        divisor = math.gcd(*steps)
        return NEVER if not fixed and divisor > 1 and gap.get((), 0) % divisor else None

    def _apart(self, a: Expr, b: Expr) -> bool:
        """Whether the ranges of the two indices over all iterations are provably disjoint."""
        facts = facts_of(self.known)
        one, two = (interval(i, mine) if i.lanes == 1 else None for i, mine in zip((a, b), self.mine, strict=True))
        if one is None or two is None:
            return False
        return _less(one.high, two.low, facts) or _less(two.high, one.low, facts)


def _less(a: Expr, b: Expr, facts: Facts) -> bool:
    return facts.at_least_zero(plus(plus(polynomial(b), polynomial(a), -1), {(): -1}))


def _constant(p: Polynomial) -> int | None:
    return p.get((), 0) if all(not m for m in p) else None


def _within(step: Polynomial, reach: tuple[Polynomial, Polynomial], facts: Facts) -> bool:
    """Whether every difference that the inner loops make is smaller than one step of the loop."""
    low, high = reach
    for size in (step, plus({}, step, -1)):
        below = plus(plus(size, {(): -1}), high, -1)
        above = plus(plus(size, {(): -1}), low)
        if facts.at_least_zero(below) and facts.at_least_zero(above):
            return True
    return False
