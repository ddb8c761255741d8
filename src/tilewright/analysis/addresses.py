"""What addresses alone tell of iterations, where all sizes are numbers: enough for most loops, and seen at once.

    for ij in 0..64, k in 0..2:          y[ij // 8, ij % 8, k] of f32[8, 8, 2] lies at ij*2 + k: an iteration of ij
      y[ij // 8, ij % 8, k] = x[ij, k]   moves on by 2, and k by less than that: each has elements of its own

What has different addresses has different indices. Nothing is said about addresses that are no sums of loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.analysis.accesses import Access
from tilewright.expr.linear import Polynomial, are_moderate, joined, plus, polynomial
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.loops.nodes import For


@dataclass(frozen=True, slots=True)
class Place:
    """The element of a buffer in row-major order: `number`, and each variable times its step."""

    number: int
    steps: dict[Var, int]


@lru_cache(maxsize=1 << 11)
def place_of(shape: tuple[Expr, ...], indices: tuple[Expr, ...]) -> Place | None:
    """Where an access lies; None where that is no sum of variables."""
    total: Polynomial = {}
    weight = 1
    for extent, index in zip(reversed(shape), reversed(indices), strict=True):
        if not isinstance(extent, Const) or index.lanes != 1:
            return None
        total = plus(total, polynomial(index), weight)
        weight *= int(extent.value)
    total = joined(total)
    steps: dict[Var, int] = {}
    number = total.pop((), 0)
    for atoms, step in total.items():
        var = atoms[0]
        if len(atoms) != 1 or not isinstance(var, Var):
            return None
        steps[var] = step
    return Place(number, steps) if are_moderate(total) else None


def stay_apart(loop: For, inside: Sequence[Access]) -> bool:
    """Whether addresses show that no two iterations of a loop touch one element. The accesses are those of its body, to
    one buffer, or to several of one shape as if they were one."""
    found = [_seen(loop, access) for access in inside]
    if not found or found[0] is None:
        return False
    step, outer, least, most = found[0]
    for other in found[1:]:
        if other is None or other[0] != step or other[1] != outer:
            return False
        least, most = min(least, other[2]), max(most, other[3])
    return most - least < abs(step)


def are_disjoint(one: Access, other: Access) -> bool:
    """Whether addresses show that two accesses touch no element both while the loops around both stand still: `loops`
    are those that do not."""
    first, second = (_seen(None, access) for access in (one, other))
    if first is None or second is None or first[1] != second[1]:
        return False
    return first[3] < second[2] or second[3] < first[2]


def _seen(loop: For | None, access: Access) -> tuple[int, dict[Var, int], int, int] | None:
    """The step of a loop, those of the loops around it, and the least and the greatest of the rest over the loops
    inside; None where these are no numbers."""
    place = place_of(access.buffer.shape, access.indices)
    if place is None:
        return None
    outer, least, most = dict(place.steps), place.number, place.number
    step = 0 if loop is None else outer.pop(loop.var, 0)
    for inner in access.loops:
        by = outer.pop(inner.var, 0)
        if not by:
            continue
        size = inner.size
        if not isinstance(inner.begin, Const) or size is None:
            return None
        ends = by * int(inner.begin.value), by * (int(inner.begin.value) + max(size - 1, 0))
        least, most = least + min(ends), most + max(ends)
    return step, outer, least, most
