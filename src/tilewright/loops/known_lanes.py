"""Vectors of indices by their lanes: those of which a compiler knows all but where they begin, a scalar and a number
for each lane; and one lane of others, as a scalar.

broadcast(j*18, 8) + ramp(0, 1, 8) % broadcast(2, 8)      =>      j*18, (0, 1, 0, 1, 0, 1, 0, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import floordiv, mod, mul

from tilewright.expr.nodes import Add, Broadcast, Const, Expr, FloorDiv, Max, Min, Mod, Mul, Ramp, Sub, as_expr, const

Known = tuple[Expr, tuple[int, ...]]

_OF_NUMBERS: dict[type[Expr], Callable[[int, int], int]] = {Mul: mul, FloorDiv: floordiv, Mod: mod}


@lru_cache(maxsize=1 << 12)
def known_lanes(e: Expr) -> Known | None:
    """(a scalar, what is added to it in each lane) of a vector of indices; None where a lane has more to it."""
    match e:
        case Broadcast(Const(number), lanes):
            return const(0), (int(number),) * lanes
        case Broadcast(a, lanes):
            return a, (0,) * lanes
        case Ramp(base, Const(step), lanes):
            start, first = (const(0), int(base.value)) if isinstance(base, Const) else (base, 0)
            return start, tuple(first + int(step) * n for n in range(lanes))
        case Add(a, b) | Sub(a, b) | Mul(a, b) | FloorDiv(a, b) | Mod(a, b) if e.lanes > 1:
            one, two = known_lanes(a), known_lanes(b)
            return None if one is None or two is None else _joined(type(e), one, two)
    return None


def _joined(kind: type[Expr], one: Known, two: Known) -> Known | None:
    """The vector that an operator makes of two."""
    pairs = list(zip(one[1], two[1], strict=True))
    if kind is Add:
        return one[0] + two[0], tuple(a + b for a, b in pairs)
    if kind is Sub:
        return one[0] - two[0], tuple(a - b for a, b in pairs)
    numbers = isinstance(one[0], Const) and isinstance(two[0], Const)  # then both are 0
    if not numbers or (kind is not Mul and 0 in two[1]):
        return None
    return const(0), tuple(_OF_NUMBERS[kind](a, b) for a, b in pairs)


def known_sum(general: Sequence[tuple[Expr, Expr]], step: Expr, lanes: int) -> Known | None:
    """(a scalar, a number for each lane) that vectors of indices, each by its stride, and a step from lane to lane come
    to; None where a lane has more to it."""
    if not isinstance(step, Const):
        return None
    base: Expr = const(0)
    at = tuple(int(step.value) * n for n in range(lanes))
    for index, stride in general:
        found = known_lanes(index)
        if found is None or not isinstance(stride, Const):
            return None
        base = base + found[0] * stride
        at = tuple(a + n * int(stride.value) for a, n in zip(at, found[1], strict=True))
    return base, at


def repeated(at: tuple[int, ...]) -> tuple[int, ...]:
    """The offsets of the lanes from the first one, where these repeat with a period and are all of 0 … n - 1 for an n
    from 2; else nothing."""
    places = tuple(n - at[0] for n in at) if at else ()
    for period in range(2, len(at)):
        if len(at) % period == 0 and places == places[:period] * (len(at) // period):
            found = set(places[:period])
            return places if found == set(range(len(found))) and len(found) > 1 else ()
    return ()


def lane_of(e: Expr, n: int) -> Expr | None:
    """Lane n of a vector of indices, as a scalar; None where it is no sum, product or bound of others."""
    match e:
        case Broadcast(a, _):
            return a
        case Ramp(base, step, _):
            return base + step * n
        case Add(a, b) | Sub(a, b) | Mul(a, b) | Min(a, b) | Max(a, b) if e.lanes > 1:
            one, two = lane_of(a, n), lane_of(b, n)
            return None if one is None or two is None else as_expr(e.rebuild((one, two)))
    return None
