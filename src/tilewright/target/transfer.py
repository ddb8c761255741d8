"""What moving bytes takes: the one place that says which cache holds how much, and how fast it delivers.

Of a working set that is used again, caches keep a part (`kept`, `fits`), which they deliver faster (`reread_seconds`,
`rewrite_seconds`). A stream comes whole from one level (`read_seconds`, `move_cycles`), its pieces after a latency
(`wait_cycles`). Levels count from 1, the nearest cache; one beyond the last is memory.
"""

from __future__ import annotations

from .host import Cache
from .target import Target


def kept(size: float, cache: Cache, cores: int = 1) -> float:
    """The share of a working set of so many bytes that a cache still has when it is used again. So many `cores` have
    one each in the same cache.

    All of a set is found that leaves room for as much to stream past it ("about half" of a cache is what Goto and van
    de Geijn fill, "Anatomy of high-performance matrix multiplication", 2008, 6.3), nothing of one as large as the cache
    where the least recently used goes first, and in the middle between the two a half.
    """
    return min(max(2 * (1 - size * cores / cache.bytes), 0.0), 1.0)


def room_in(cache: float) -> float:
    """The largest working set of which a cache of so many bytes, or lines, keeps at least a half (`kept`)."""
    return cache * 3 / 4


def fits(size: float, target: Target, *, own: bool = True) -> int:
    """The nearest cache that keeps most of a working set, which each core has of its `own`, or which all share; one
    beyond the last is memory. The first cache has to keep all of it: results, stacks and what streams by go through
    it."""
    for cache in target.kept_caches:
        found = kept(size, cache, cache.shared if own and cache.level > 2 else 1)
        if found >= (1 if cache.level == 1 else 1 / 2):
            return cache.level
    return memory(target)


def level_of_sets(apart: int, rows: int, target: Target) -> int:
    """The nearest level of cache that has room in its sets for a line of each of so many rows."""
    for cache in target.kept_caches:
        if rows <= room_in(cache.room(apart)):
            return cache.level
    return memory(target)


def memory(target: Target) -> int:
    """The level of memory."""
    return len(target.caches) + 1


def reread_seconds(size: float, within: float, target: Target) -> float:
    """Seconds in which a core reads so many bytes of a working set of `within` bytes again, which all cores share: each
    cache delivers the part that it kept."""
    return _again(size, within, target, stores=False)


def rewrite_seconds(size: float, within: float, target: Target) -> float:
    """Seconds in which a core writes over them."""
    return _again(size, within, target, stores=True)


def _again(size: float, within: float, target: Target, *, stores: bool) -> float:
    cycles, left = 0.0, size
    for cache in target.kept_caches:
        found = left * kept(within, cache)
        cycles, left = cycles + found * byte_cycles(cache.level, target, stores=stores), left - found
    return (cycles + left * byte_cycles(memory(target), target, stores=stores)) / target.core.hertz


def read_seconds(size: float, level: int, target: Target) -> float:
    """Seconds in which a core reads so many bytes from a level."""
    return size * byte_cycles(level, target) / target.core.hertz


def byte_cycles(level: int, target: Target, *, stores: bool = False) -> float:
    """Cycles for a byte that streams from a level, or is stored there."""
    peaks = target.peaks
    caches, far = (peaks.store_gbs, peaks.memory_store_gbs) if stores else (peaks.cache_gbs, peaks.memory_gbs)
    rates = (*caches, far)
    return target.core.hertz / (rates[min(max(level, 1), len(rates)) - 1] * 1e9)


def panel_cycles(level: int, target: Target, *, asked: bool = False) -> float:
    """Cycles for a byte of what tiles of rows multiply while they read it from a level, or `asked` for it ahead."""
    if level < memory(target):
        return byte_cycles(level, target)
    peaks = target.peaks
    return target.core.hertz / ((peaks.memory_asked_gbs if asked else peaks.memory_tile_gbs) * 1e9)


def move_cycles(size: float, source: int, level: int, target: Target) -> float:
    """Cycles to read so many bytes from one level and to write them to another."""
    return size * (byte_cycles(source, target) + byte_cycles(level, target, stores=True))


def wait_cycles(level: int, target: Target) -> float:
    """Cycles until the first byte of a piece comes from a level, which nothing fetched before it was asked for."""
    waits = (*target.peaks.cache_ns, target.peaks.memory_ns)
    return waits[min(max(level, 1), len(waits)) - 1] * target.core.ghz


def apart_cycles(level: int, target: Target) -> float:
    """Cycles until the first byte of a row on a page of its own comes, one of many: by Little's law the latency of one,
    shared by all that are under way at a time."""
    return wait_cycles(level, target) / target.core.rows_ahead


def pieces_again_cycles(pieces: float, apart: float, within: float, near: int, target: Target) -> float:
    """The same of pieces of a working set of `within` bytes that is used again, which all cores share: from the level
    `near` as far as the last cache keeps the set, else from memory."""
    found = kept(within, target.kept_caches[-1])
    far = pieces_cycles(pieces, apart, memory(target), target)
    return found * pieces_cycles(pieces, apart, near, target) + (1 - found) * far


def pieces_cycles(pieces: float, apart: float, level: int, target: Target) -> float:
    """Cycles in which so many pieces, `apart` bytes from one to the next, come from a level as far as each is on a page
    of its own, where nothing has followed them."""
    return pieces * min(apart / target.page, 1.0) * apart_cycles(level, target)
