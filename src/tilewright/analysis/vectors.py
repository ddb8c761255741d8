"""Distance vectors: by how many iterations of each loop of a nest two accesses of one element differ.

    for i, j: a[i, j] = a[i - 1, j + 1]       between the store and the load: distance 1 in i, -1 in j

A component is a number, or None where it may be any. Only what is written or read outside a nest's own buffers counts.
The theory is that of Wolfe and Banerjee: a reordering is legal when every vector stays lexicographically positive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.regions import ranges_of, settled
from tilewright.expr.linear import plus, polynomial
from tilewright.expr.nodes import Const, Expr, Min, Var
from tilewright.loops.edit import allocations, loads_of
from tilewright.loops.nodes import For

Vector = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two accesses that may touch the same element, and how many iterations the second is behind the first, loop by
    loop."""

    first: Access
    second: Access
    distances: Vector


def distance_along(loop: For, first: Access, second: Access) -> tuple[bool, int | None]:
    """(whether two accesses inside a loop may meet in different iterations of it, the distance where it is one number).
    The loops that both stand in count as one, in iterations of their own."""
    shared = [inner for inner in first.loops if inner in second.loops]
    reach = {each.var: most_apart(each) for each in (loop, *shared)}
    vector = _distances(first, second, reach)
    if vector is None or vector[0] == 0:
        return False, None
    return True, vector[0]


def meetings(nest: For, loops: Sequence[For], outer: Sequence[For] = ()) -> list[Meeting]:
    """The pairs of accesses inside `nest` that may meet in different iterations of `loops`, at least one a store.
    `outer` are the loops around the nest, outermost first: their ranges help to prove."""
    own = set(allocations(nest))
    found = [settled(a, ranges_of(outer)) for a in accesses(nest) if a.buffer not in own]
    reach = {loop.var: most_apart(loop) for loop in loops}
    result = []
    for n, first in enumerate(found):
        for second in found[n:]:
            if first.buffer is second.buffer and (first.is_store or second.is_store):
                distances = _distances(first, second, reach)
                if distances is not None and any(d != 0 for d in distances):
                    result.append(Meeting(first, second, distances))
    return result


def most_apart(loop: For) -> int | None:
    """The largest distance of two iterations of a loop; None where that is dynamic."""
    extent = longest(loop.extent)
    return max(int(extent.value) - 1, 0) if isinstance(extent, Const) else None


def longest(extent: Expr) -> Expr:
    """The constant that an extent is at most, where it is the lesser of one and something else; else the extent."""
    sides = (extent.a, extent.b) if isinstance(extent, Min) else (extent,)
    return min((e for e in sides if isinstance(e, Const)), key=lambda e: e.value, default=extent)


def _distances(first: Access, second: Access, reach: Mapping[Var, int | None]) -> Vector | None:
    """The vector of two accesses; None when they cannot meet."""
    known: dict[Var, int] = {v: 0 for v, most in reach.items() if most == 0}
    for a, b in zip(first.indices, second.indices, strict=True):
        found = _dimension(a, b, reach)
        for var, distance in (found or {}).items():
            if known.setdefault(var, distance) != distance:
                return None
        if found is None:
            return None
    return tuple(known.get(v) for v in reach)


def _dimension(a: Expr, b: Expr, reach: Mapping[Var, int | None]) -> dict[Var, int] | None:
    """The distances at which two indices are equal, as far as they are one number each; None when they never are.

    c1*d1 + c2*d2 + … = gap, the largest factor first: where what the others can reach leaves one value to d1, it is
    that; where it leaves none, the indices never meet (mixed radix, as in i*4 + j with j below 4)."""
    if a.lanes != 1 or b.lanes != 1 or loads_of(a) or loads_of(b):
        return {}
    one, two = polynomial(a), polynomial(b)
    gap = plus(one, two, -1)
    factors: dict[Var, int] = {}
    for monomial, c in one.items():
        if not any(mentions(atom, frozenset(reach)) for atom in monomial):
            continue
        (atom, *more) = monomial
        if more or not isinstance(atom, Var):
            return {}
        factors[atom] = c
    if any(monomial for monomial in gap):
        return {}
    return _solve(sorted(factors.items(), key=lambda f: -abs(f[1])), gap.get((), 0), reach)


def _solve(factors: list[tuple[Var, int]], gap: int, reach: Mapping[Var, int | None]) -> dict[Var, int] | None:
    found: dict[Var, int] = {}
    for n, (var, factor) in enumerate(factors):
        slack = 0
        for other, c in factors[n + 1 :]:
            most = reach[other]
            if most is None:
                return found
            slack += abs(c) * most
        low, high = sorted(((gap - slack) / factor, (gap + slack) / factor))
        values = range(math.ceil(low), math.floor(high) + 1)
        if len(values) != 1:
            return found if values else None
        found[var] = values[0]
        gap -= factor * values[0]
    return found if gap == 0 else None


def stays_forward(distances: Vector, order: Sequence[int]) -> bool:
    """Whether every iteration pair with these distances keeps its order when loop `order[n]` becomes the n-th."""
    moving = [n for n, d in enumerate(distances) if d != 0]
    after = [n for n in order if distances[n] != 0]
    if len(moving) <= 1 or moving == after:
        return True
    if any(distances[n] is None for n in moving):
        return False
    before, then = distances[moving[0]], distances[after[0]]
    assert before is not None
    assert then is not None
    return (before > 0) == (then > 0)


def stays_forward_skewed(distances: Vector, step: int) -> bool:
    """Whether iterations of two loops at these distances keep their order when the outer loop runs over outer*step +
    inner. Those of one iteration of the outer loop always do."""
    outer, inner = distances
    if outer == 0 or inner == 0:
        return True
    if outer is None or inner is None:
        return False
    along = outer * step + inner
    return (along or outer) * outer > 0
