"""What moving bytes takes: the one place that says which cache holds how much, and how fast it delivers.

level_of(bytes, target)                    1 the nearest cache; one beyond the last is memory
read_seconds(bytes, level, target)         of one core that streams
write_seconds(bytes, level, target)
"""

from __future__ import annotations

from tilewright.target import Target

SHARE = 1 / 2
"""The part of a cache in which a working set stays between two uses: the rest is for what streams past it in between.
It is a matter of replacement, which no cache documents; at a half, streams as large as the set leave it alone."""


def level_of(size: float, target: Target) -> int:
    """The nearest cache that keeps a working set of so many bytes; one beyond the last is memory."""
    fitting = (cache.level for cache in target.caches if size <= cache.bytes * SHARE)
    return next(fitting, len(target.caches) + 1)


def memory(target: Target) -> int:
    """The level of memory."""
    return len(target.caches) + 1


def read_seconds(size: float, level: int, target: Target) -> float:
    """Seconds in which a core reads so many bytes from a level."""
    rates = (*target.peaks.cache_gbs, target.peaks.memory_gbs)
    return size / (rates[min(level, len(rates)) - 1] * 1e9)


def write_seconds(size: float, level: int, target: Target) -> float:
    """Seconds in which a core writes so many bytes to a level."""
    rates = (*target.peaks.store_gbs, target.peaks.memory_store_gbs)
    return size / (rates[min(level, len(rates)) - 1] * 1e9)
