"""Which of many cases every run takes: so many that each two values that go together do so in one of them.

Most faults come from one value, or from two together (Kuhn, Wallace and Gallo, "Software fault interactions and
implications for software testing", 2004). `make long` takes all cases.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations, product
from typing import Any

from hypothesis import settings

LONG = settings.get_current_profile_name() == "long"


def drawn(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases of the product of these axes, in its order: all pairs of values of two axes, or the whole of it."""
    every = list(product(*axes))
    return every if LONG else [every[n] for n in cover([pairs(list(enumerate(case))) for case in every])]


def in_turn(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Cases of the product of these axes, where each value is read by itself: each of the longest axis once, with those
    of the others by turns; or the whole product, in its order."""
    if LONG:
        return list(product(*axes))
    return [tuple(axis[n % len(axis)] for axis in axes) for n in range(max(map(len, axes)))]


def pairs(values: Collection[Hashable]) -> set[Hashable]:
    """All pairs of what a case has, in no order: every process finds the same."""
    return {frozenset(pair) for pair in combinations(values, 2)}


def cover(cases: Sequence[set[Hashable]]) -> list[int]:
    """The numbers of cases that together have what all have: each in turn the one that adds most."""
    left = set[Hashable]().union(*cases)
    waiting = [(-len(case), n) for n, case in enumerate(cases)]
    heapify(waiting)
    taken: list[int] = []
    while left:
        most, n = heappop(waiting)
        adds = len(cases[n] & left)
        if adds == -most:
            taken.append(n)
            left -= cases[n]
        elif adds:
            heappush(waiting, (-adds, n))
    return sorted(taken)
