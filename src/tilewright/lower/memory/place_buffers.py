"""Offsets of buffers of known sizes: a search for a small arena, guided by a lower bound.

Buffers are placed one after the other, each at the lowest offset that is free while it is alive; some order of the
buffers gives the smallest possible arena. The search begins with orders that are good for most programs (large buffers
first, long lives first, …). As long as the best arena is larger than the bound, the buffer at the top of the last arena
moves forward in the order. Buffers in conflict are then placed early, while there is room to choose, and large programs
reach the bound in a few moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST_PLACED = 6_000
"""How many buffers the search places for each order that it begins with, a limit of its time: large programs get fewer
moves."""


@dataclass(frozen=True, slots=True)
class Span:
    """A buffer to be placed: its bytes, and the first and the last moment it is alive in."""

    bytes: int
    first: int
    last: int

    @property
    def moments(self) -> int:
        """How long it is alive."""
        return self.last - self.first + 1


def most_alive(spans: Sequence[Span]) -> int:
    """The most bytes alive in one moment: no arena is smaller."""
    changes: dict[int, int] = {}
    for span in spans:
        changes[span.first] = changes.get(span.first, 0) + span.bytes
        changes[span.last + 1] = changes.get(span.last + 1, 0) - span.bytes
    now = most = 0
    for moment in sorted(changes):
        now += changes[moment]
        most = max(most, now)
    return most


def alive_together(spans: Sequence[Span]) -> list[list[int]]:
    """For each buffer the numbers of those that are alive in one of its moments."""
    found: list[list[int]] = [[] for _ in spans]
    alive: list[int] = []
    for n in sorted(range(len(spans)), key=lambda n: spans[n].first):
        alive = [m for m in alive if spans[m].last >= spans[n].first]
        for m in alive:
            found[m].append(n)
        found[n] += alive
        alive.append(n)
    return found


def place_buffers(spans: Sequence[Span], placed: Sequence[tuple[Span, int]] = ()) -> list[int]:
    """An offset for each buffer. Buffers alive at the same time do not overlap, and are above the buffers in `placed`,
    given with their offsets, that are alive with them."""
    count, ends = len(spans), [at + other.bytes for other, at in placed]
    together = alive_together([*spans, *(span for span, _ in placed)])[:count]
    beside = _Beside(
        [[m for m in others if m < count] for others in together],
        [max((ends[m - count] for m in others if m >= count), default=0) for others in together],
    )
    bound = max(most_alive([*spans, *(span for span, _ in placed)]), _top(*zip(*placed, strict=True)) if placed else 0)
    orders = [[n for _, n in sorted((key(span), n) for n, span in enumerate(spans))] for key in ORDERS]
    found = [(_place(spans, beside, order), order) for order in orders]
    best = min(found, key=lambda one: _top(spans, one[0]))[0]
    for offsets, order in found:
        if _top(spans, best) <= bound:
            break
        best = _search(spans, beside, order, offsets, best, bound)
    return best


@dataclass(frozen=True, slots=True)
class _Beside:
    """For each buffer the numbers of those alive at the same time, and the end of those that have a place below it."""

    numbers: Sequence[Sequence[int]]
    floors: Sequence[int]


ORDERS: tuple[Callable[[Span], tuple[int, ...]], ...] = (
    lambda span: (-span.bytes, span.first),
    lambda span: (-span.bytes * span.moments,),
    lambda span: (-span.moments, -span.bytes),
    lambda span: (span.first, -span.bytes),
)
"""Large ones first, what takes most room and time first, long lives first, and as they come."""


def _search(
    spans: Sequence[Span],
    beside: _Beside,
    order: list[int],
    offsets: list[int],
    best: list[int],
    bound: int,
) -> list[int]:
    """The best placement met on the way from an order and its offsets, `best` unless there is a better one. An order
    that was met before would lead the same way again."""
    order, met = list(order), set[tuple[int, ...]]()
    for _ in range(MOST_PLACED // len(spans)):
        if tuple(order) in met:
            break
        met.add(tuple(order))
        top = _top(spans, offsets)
        place = next(k for k, n in enumerate(order) if offsets[n] + spans[n].bytes == top)
        if place == 0:
            break
        order.insert(place // 2, order.pop(place))
        offsets = _place(spans, beside, order)
        if _top(spans, offsets) < _top(spans, best):
            best = offsets
        if _top(spans, best) <= bound:
            break
    return best


def _place(spans: Sequence[Span], beside: _Beside, order: Sequence[int]) -> list[int]:
    """Each buffer, in this order, at the lowest offset that is free all its life."""
    offsets = [-1] * len(spans)
    for n in order:
        at, size = beside.floors[n], spans[n].bytes
        taken = [(offsets[m], offsets[m] + spans[m].bytes) for m in beside.numbers[n] if offsets[m] >= 0]
        for begin, end in sorted(taken):
            if at + size <= begin:
                break
            at = max(at, end)
        offsets[n] = at
    return offsets


def _top(spans: Sequence[Span], offsets: Sequence[int]) -> int:
    return max((at + span.bytes for at, span in zip(offsets, spans, strict=True)), default=0)
