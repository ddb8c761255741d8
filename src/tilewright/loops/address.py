"""The address of an access: a scalar, and the offset of each lane from it, as far as it is known at compile time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.expr.nodes import Add, Broadcast, Const, Expr, Ramp, Sub, const
from tilewright.loops.known_lanes import known_sum
from tilewright.loops.nodes import Buffer, Load


@dataclass(frozen=True, slots=True)
class Address:
    """The flat index of an access: a scalar base + offset; or lanes at base + offset + n*stride, or as far from
    base + offset as `at` says for each, 0 for the first; or a vector `index` of any indices. Accesses that are a
    constant number of elements apart have one base."""

    base: Expr
    offset: int
    stride: Expr | None
    index: tuple[tuple[Expr, Expr], ...] = ()
    lanes: int = 1
    at: tuple[int, ...] = ()


def strides(shape: tuple[Expr, ...]) -> list[Expr]:
    """The row-major strides of a shape, in elements."""
    result: list[Expr] = [const(1)]
    for extent in reversed(shape[1:]):
        result.append(extent * result[-1])
    return list(reversed(result[: len(shape)]))


@lru_cache(maxsize=1 << 12)
def address(shape: tuple[Expr, ...], indices: tuple[Expr, ...]) -> Address:
    """The address of `indices` in a row-major array of this shape."""
    lanes = max((i.lanes for i in indices), default=1)
    terms = list(zip(indices, strides(shape), strict=True))
    base: Expr = const(0)
    step: Expr = const(0)
    general: list[tuple[Expr, Expr]] = []
    for index, stride in terms:
        match index:
            case Ramp(first, each, _):
                base, step = base + first * stride, step + each * stride
            case Broadcast(a, _):
                base = base + a * stride
            case _ if index.lanes == 1:
                base = base + index * stride
            case _:
                scalar, rest = _without_scalars(index)
                base = base + scalar * stride
                general.append((rest, stride))
    known = known_sum(general, step, lanes) if general else None
    rest, offset = _without_constant(base if known is None else base + known[0], DEEPEST_SUM)
    if known is not None:
        start = known[1][0]
        return Address(rest, offset + start, None, (), lanes, tuple(n - start for n in known[1]))
    if general:
        return Address(rest, offset, step, tuple(general), lanes)
    return Address(rest, offset, step if lanes > 1 else None, (), lanes)


def _without_scalars(index: Expr) -> tuple[Expr, Expr]:
    """(scalar, rest) of a vector of indices, with index = scalar + rest in each lane."""
    match index:
        case Add(Broadcast(a, _), rest) | Add(rest, Broadcast(a, _)):
            scalar, inner = _without_scalars(rest)
            return a + scalar, inner
    return const(0), index


DEEPEST_SUM = 32
"""How deep a sum is searched for constants."""


def _without_constant(e: Expr, depth: int) -> tuple[Expr, int]:
    """(rest, number) with e = rest + number."""
    if type(e) is Const:
        return const(0), int(e.value)
    if not (type(e) is Add or type(e) is Sub) or depth == 0:
        return e, 0
    a, first = _without_constant(e.a, depth - 1)
    b, second = _without_constant(e.b, depth - 1)
    if not first and not second:
        return e, 0
    rest, number = (a + b, first + second) if isinstance(e, Add) else (a - b, first - second)
    return rest, int(const(number).value)


def reads_one(load: Load) -> bool:
    """Whether a load reads a single element, in however many lanes."""
    return is_one(address(load.buffer.shape, load.indices))


def is_one(place: Address) -> bool:
    return place.lanes == 1 or (not place.index and is_number(place.stride, 0))


def is_inside(buffer: Buffer, place: Address) -> bool:
    """Whether all lanes are certainly inside the buffer: everything about it is constant."""
    size = 1
    for extent in buffer.shape:
        if not isinstance(extent, Const):
            return False
        size *= int(extent.value)
    steps = steps_of(place)
    if place.index or not isinstance(place.base, Const) or not steps:
        return False
    return place.offset + min(steps) >= 0 and place.offset + max(steps) < size


def steps_of(place: Address) -> tuple[int, ...]:
    """How far each lane is from the first; nothing where that is not known."""
    if isinstance(place.stride, Const):
        return tuple(int(place.stride.value) * n for n in range(place.lanes))
    return place.at


def taking_turns(place: Address) -> tuple[int, ...]:
    """Where runs of contiguous elements begin, two or four, that lanes take in turns; nothing where they do not. A run
    is more than one element."""
    for count in (2, 4):
        runs, left = place.at[:count], place.lanes % count
        if place.lanes > count and not left and all(n == runs[k % count] + k // count for k, n in enumerate(place.at)):
            return runs
    return ()


def is_number(e: Expr | None, number: int) -> bool:
    return isinstance(e, Const) and e.value == number


def every_second(lanes: int) -> tuple[int, ...]:
    """The lanes, two elements apart, of the two vectors that span them and no element beyond."""
    return tuple([2 * n if 2 * n < lanes else 2 * n + 1 for n in range(lanes)])
