"""Room for Python's frames: what calls cost at any depth."""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Callable

import pytest

from tilewright.core.frames import with_room

CALLS = 300
DEPTHS = range(400)


def called(a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int) -> tuple[int, ...]:
    """A frame as large as a usual one, so that some depth leaves no room for it."""
    return a, b, c, d, e, f, g, h


def calls_at(depth: int) -> int:
    """The page faults of many calls at a depth."""
    if depth:
        return calls_at(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        called(1, 2, 3, 4, 5, 6, 7, 8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def most_faults() -> int:
    return max(calls_at(depth) for depth in DEPTHS)


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted as Linux counts them")
def test_no_depth_faults_at_every_call() -> None:
    assert with_room(most_faults)() < CALLS


def test_a_call_is_the_functions_own() -> None:
    @with_room
    def divide(a: int, /, b: int, *more: int, by: int = 1) -> tuple[object, ...]:
        """Its text."""
        if by == 0:
            raise ValueError("by zero")
        return a, b, more, by

    assert divide(1, 2, 3, by=4) == (1, 2, (3,), 4)
    assert divide.__name__ == "divide"
    assert divide.__doc__ == "Its text."
    with pytest.raises(ValueError, match="by zero"):
        divide(1, 2, by=0)


def test_calls_may_be_inside_one_another_and_in_threads() -> None:
    found = []

    def descend(depth: int) -> int:
        return depth and 1 + deeper(depth - 1)

    deeper: Callable[[int], int] = with_room(descend)
    threads = [threading.Thread(target=lambda: found.append(deeper(100))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [100] * 4
