"""Python's collector of cycles, held back while a compiler works.

Nodes refer to one another without cycles and are freed with their last reference. A compilation makes so many that the
collector, which runs after a number of new objects, would scan them again and again and find nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 2_000_000
"""The new objects after which the collector starts all the same: some two hundred megabytes, more than the compilation
of a network of a hundred kernels keeps."""

OWN_FROZEN = 1000
"""More than what an interpreter freezes for itself before any program runs: Python 3.12 some 400 objects. A program
that freezes moves all objects that are tracked: some four thousand."""

_lock = threading.Lock()
_inside = 0
_before: tuple[int, int, int] = (0, 0, 0)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Inside, the collector starts rarely; a process that has switched it off keeps it off. Threads may be inside
    together, and come in again: the last to leave puts back the setting that the first one found."""
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = gc.get_threshold()
            if _before[0]:
                gc.set_threshold(max(_before[0], OBJECTS), *_before[1:])
        _inside += 1


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0:
            _grow_old()
            gc.set_threshold(*_before)


def _grow_old() -> None:
    """The remaining objects are moved to the oldest generation, which only a full collection scans, and none are new:
    no collection is due. A process that has frozen objects keeps them frozen."""
    if gc.get_freeze_count() < OWN_FROZEN:
        gc.freeze()
        gc.unfreeze()
