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


Digit = tuple[int, int, int]
"""What a loop adds to a place: its step, where it begins, and how many iterations it has."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """An access as a loop sees it: the step of the loop and those of the loops around it, and what the loops inside add
    to a number, the largest steps first."""

    step: int
    outer: dict[Var, int]
    number: int
    digits: list[Digit]

    def ends(self, first: int) -> tuple[int, int]:
        """The least and the greatest of the number and the digits from this one on."""
        least = most = self.number
        for step, begin, count in self.digits[first:]:
            ends = step * begin, step * (begin + count - 1)
            least, most = least + min(ends), most + max(ends)
        return least, most


def stay_apart(loop: For, inside: Sequence[Access]) -> bool:
    """Whether addresses show that no two iterations of a loop touch one element. The accesses are those of its body, to
    one buffer, or to several of one shape as if they were one.

    A place is a number of mixed radix: where all that moves less than the loop comes to less than a step of it, and
    each step of what moves further is more than all below it, an element has one iteration."""
    found = [_seen(loop, access) for access in inside]
    first = found[0] if found else None
    if first is None or not first.step:
        return False
    above = sum(abs(step) >= abs(first.step) for step, _, _ in first.digits)
    ends = [first.ends(above)]
    for other in found[1:]:
        if other is None or (other.step, other.outer) != (first.step, first.outer):
            return False
        if other.digits[:above] != first.digits[:above] or any(
            abs(d[0]) >= abs(first.step) for d in other.digits[above:]
        ):
            return False
        ends.append(other.ends(above))
    reach = max(most for _, most in ends) - min(least for least, _ in ends)
    if reach >= abs(first.step):
        return False
    if not above:
        return True
    return loop.size is not None and _are_digits(first.digits[:above], reach + abs(first.step) * max(loop.size - 1, 0))


def are_disjoint(one: Access, other: Access) -> bool:
    """Whether addresses show that two accesses touch no element both while the loops around both stand still: `loops`
    are those that do not. There they differ in the lower digits of their places, where higher ones are the same."""
    first, second = (_seen(None, access) for access in (one, other))
    if first is None or second is None or first.outer != second.outer:
        return False
    for above in range(min(len(first.digits), len(second.digits)) + 1):
        if first.digits[:above] != second.digits[:above]:
            return False
        (low, high), (least, most) = first.ends(above), second.ends(above)
        if (high < least or most < low) and _are_digits(first.digits[:above], max(high, most) - min(low, least)):
            return True
    return False


def _are_digits(above: Sequence[Digit], reach: int) -> bool:
    """Whether each of these steps is more than what all below it can reach."""
    for step, _, count in reversed(above):
        if abs(step) <= reach:
            return False
        reach += abs(step) * (count - 1)
    return True


def _seen(loop: For | None, access: Access) -> _Seen | None:
    """The access as a loop sees it, or, without one, as what is around all of its loops does; None where these are no
    numbers."""
    place = place_of(access.buffer.shape, access.indices)
    if place is None:
        return None
    outer, digits = dict(place.steps), []
    step = 0 if loop is None else outer.pop(loop.var, 0)
    for inner in access.loops:
        by = outer.pop(inner.var, 0)
        if by:
            if not isinstance(inner.begin, Const) or inner.size is None:
                return None
            digits.append((by, int(inner.begin.value), max(inner.size, 1)))
    return _Seen(step, outer, place.number, sorted(digits, key=lambda digit: -abs(digit[0])))
