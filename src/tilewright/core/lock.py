"""How long a thread that computes keeps others waiting that have little to do.

A thread that waits for Python's lock gets it when the one that has it has run for `sys.getswitchinterval` seconds, 5 ms
unless a program says otherwise. Where a thread answers other processes beside one that computes, these wait as long.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 5e-4
"""A hundredth of what a task takes that another process does."""

_lock = threading.Lock()
_inside = 0
_before = 0.0


@contextmanager
def quick_turns() -> Iterator[None]:
    """Inside, threads take turns more often. Several may be inside: the last to leave puts back what the first one
    found."""
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_before, SECONDS))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                sys.setswitchinterval(_before)
