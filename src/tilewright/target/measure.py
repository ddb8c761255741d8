"""What the probes find on this machine: raw figures, by the names of `Target.figures`, in under 0.3 seconds.

Times are taken as turns.py says: short turns again and again, of which the best counts where others agree with it. A
figure that is not settled is None. Nothing here judges what was found: plausible.py does.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from .core import DOTS, Figures
from .host import Cache, Host
from .probes import CHAIN, GROUP, Probe, alike, core_probes, make_data, print_module
from .streams import STEP, print_streams
from .target import Target
from .turns import LEAST, TURN, Clock, Run, settle, settled

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_CORE_SECONDS: Final = 0.08
_CACHE_SECONDS: Final = 0.05
_MEMORY_SECONDS: Final = 0.03
_TOGETHER_SECONDS: Final = 0.03
_SHARE_SECONDS: Final = 0.06
"""The seconds after which no further turn begins. An idle machine needs less than half of them."""

MEMORY_BYTES: Final = 64 << 20
"""The largest buffer for probes of memory. Data is flushed from all caches before it is read, so the buffer need not be
larger than the caches; writes may stay in a last-level cache that is larger."""

_PLACES: Final = 4
"""Parts of the buffer that probes of a cache go over in turn."""

_PIECE: Final = 2 << 20
"""Bytes of memory that a turn reads or writes: little enough for a time slice."""

_PASSES: Final = 5
"""Passes over a set, of which the median is the usual one."""

SUBNORMAL: Final = "subnormal_cycles"


def measure(target: Target, host: Host) -> dict[str, float | None]:
    """The figures of `host`, this machine, with the vectors of `target`, which must run on it: all that `Core` has in
    cycles, and all of `Peaks`. Raises MemoryError where there is no room for the buffer."""
    return {**measure_core(target), **measure_streams(target, host)}


def measure_core(target: Target, clock: Clock | None = None) -> dict[str, float | None]:
    """The clock in GHz, and cycles by it."""
    probes = core_probes(target)
    with Engine(target, print_module(target, probes)) as engine:
        usual, subnormal = make_data(), make_data(1e-40)
        (multiply_add,) = (probe for probe in probes if probe.name == "fma_cycles")
        rows = [(probe.name, probe, usual) for probe in probes] + [(SUBNORMAL, multiply_add, subnormal)]
        counts = {name: probe.count for name, probe, _ in rows}
        runs = {name: _probe_run(engine, probe, data.ctypes.data, target) for name, probe, data in rows}
        times = settle(runs, _CORE_SECONDS, clock)
    return figures_of_core(times, counts, target)


def figures_of_core(times: Figures, counts: Mapping[str, int], target: Target) -> dict[str, float | None]:
    """The figures of `Core` from the seconds a round of all probes, by how many instructions a round has."""
    cycle = _ratio(times["ghz"], counts["ghz"])
    cycles = {name: _ratio(_ratio(seconds, counts[name]), cycle) for name, seconds in times.items()}
    return {"ghz": _ratio(1e-9, cycle), **_figures(cycles, target)}


def measure_streams(target: Target, host: Host) -> dict[str, float | None]:
    """GB/s read from and written to each cache and memory."""
    with Engine(target, print_streams(target)) as engine:
        read, write, flush, tile, asked = (
            engine.function(name, 3) for name in ("read", "write", "flush", "tile", "asked")
        )
        size = min(MEMORY_BYTES, 2 * max(target.caches[-1].bytes, host.caches[-1].bytes)) // STEP * STEP
        with _Buffer(size) as place:
            write(place, size, 1)  # the pages are there
            sizes = _sizes(target.caches, size)
            runs: dict[str, Run] = {}
            moved: dict[str, int] = {}
            for figure, stream in (("cache_gbs", read), ("store_gbs", write)):
                for n, each in enumerate(sizes, 1):
                    runs[f"{figure}.{n}"], moved[f"{figure}.{n}"] = _over(stream, place, each, size), each
            found = _rates(settle(runs, _CACHE_SECONDS), moved)
            piece = min(_PIECE, size // 4) // STEP * STEP
            write(
                place, size, 1
            )  # the last-level cache holds the end of the buffer, and pieces come in order: none is there
            for name, run in (
                ("memory_store_gbs", _pieces(write, place, piece, size)),
                ("memory_gbs", _pieces(read, place, piece, size, flush)),
                ("memory_tile_gbs", _pieces(tile, place, piece, size, flush)),
                ("memory_asked_gbs", _pieces(asked, place, piece, size, flush)),
            ):
                found.update(_rates(settle({name: run}, _MEMORY_SECONDS), {name: piece}))
            passes = _passes(read, place, size, sizes[-1], target.caches[-1].bytes)
            found["last_share"] = share_kept(passes, target.caches[-1].bytes, found["memory_gbs"])
            cores = min(target.cores, host.cores)
            found["memory_gbs_all"] = _all_cores(read, flush, place, size, cores) if cores > 1 else found["memory_gbs"]
    return found


def _sizes(caches: Sequence[Cache], most: int) -> list[int]:
    """Bytes that a level holds and the one before does not: a sequential pass over four times the size of a cache finds
    nothing of it there. No more than half of the level, since the pages that the system gave may share sets."""
    before = [caches[0].bytes, *(cache.bytes for cache in caches)]
    return [
        max(STEP, min(cache.bytes // 2, 4 * nearer, most) // STEP * STEP)
        for cache, nearer in zip(caches, before, strict=False)
    ]


def _rates(times: Figures, moved: Mapping[str, int]) -> dict[str, float | None]:
    """GB/s, by the bytes that are moved in a round."""
    return {name: _ratio(moved[name] * 1e-9, seconds) for name, seconds in times.items()}


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


class Engine:
    """The functions of a module of probes, loaded while the `with` block lasts."""

    def __init__(self, target: Target, text: str) -> None:
        self._target, self._text = target, text
        self._engine: llvm.ExecutionEngine

    def __enter__(self) -> Engine:
        import llvmlite.binding as llvm

        machine = self._target.create_machine(jit=True)
        module = llvm.parse_assembly(self._text)
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        return self

    def __exit__(self, *fault: object) -> None:
        self._engine.close()

    def function(self, name: str, arguments: int) -> Callable[..., int]:
        """A function of one address and whole numbers."""
        kinds = (ctypes.c_void_p, *[ctypes.c_int64] * (arguments - 1))
        return ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(self._engine.get_function_address(name))


class _Buffer:
    """Pages of memory while the `with` block lasts: large ones where the system has them."""

    def __init__(self, size: int) -> None:
        try:
            self._pages = mmap.mmap(-1, size)
        except OSError as error:
            raise MemoryError from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._pages.madvise(mmap.MADV_HUGEPAGE)

    def __enter__(self) -> int:
        self._held = ctypes.c_char.from_buffer(self._pages)
        return ctypes.addressof(self._held)

    def __exit__(self, *fault: object) -> None:
        del self._held
        self._pages.close()


def _probe_run(engine: Engine, probe: Probe, data: int, target: Target) -> Run:
    function = engine.function(probe.name, 2)
    return Run(lambda turn, rounds: function(data, rounds), max(1, round(TURN * target.core.hertz / probe.count / 8)))


def _over(stream: Callable[..., int], place: int, part: int, size: int) -> Run:
    """Rounds over a part of a buffer that a cache holds, one of `_PLACES` in each turn: how well a cache holds pages
    depends on where they are."""
    places = min(max(size // part, 1), _PLACES)

    def at(turn: int) -> int:
        return place + turn % places * part

    return Run(lambda turn, rounds: stream(at(turn), part, rounds), prepare=lambda turn: stream(at(turn), part, 1))


def _pieces(
    stream: Callable[..., int], place: int, piece: int, size: int, flush: Callable[..., int] | None = None
) -> Run:
    """The next piece of a buffer in each turn, all round; taken out of all caches before by `flush`."""
    places = max(size // piece, 1)

    def prepare(turn: int) -> None:
        if flush is not None:
            flush(place + turn % places * piece, piece, 1)

    return Run(lambda turn, _: stream(place + turn % places * piece, piece, 1), prepare=prepare, fixed=True)


def _figures(cycles: Figures, target: Target) -> dict[str, float | None]:
    """Figures of `Core` from the cycles of probes."""
    out = {name: number for name, number in cycles.items() if not name.startswith(DOTS) and name != "ghz"}
    fma, add, chain = cycles["fma_cycles"], cycles["add_cycles"], cycles["chain"]
    beside, subnormal = cycles["add_beside_cycles"], cycles[SUBNORMAL]
    multiply_adds, plain = CHAIN
    if fma is None or add is None or chain is None:
        out["chain"] = None
    else:
        out["chain"] = max(1.0, chain / (multiply_adds * fma + plain * add))
    out["add_beside_cycles"] = None if fma is None or beside is None else max(0.0, beside - (GROUP - 1) * fma)
    extra = None if fma is None or subnormal is None else subnormal - fma
    out[SUBNORMAL] = extra if extra is None or extra > 0.1 else 0.0
    for first, *others in alike(target):
        out.update((f"{DOTS}{row.name}", cycles[f"{DOTS}{first.name}"]) for row in (first, *others))
    return out


def _passes(
    read: Callable[..., int], place: int, size: int, first: int, last: int
) -> Iterator[tuple[int, float | None]]:
    """Sets of bytes that are read again and again, from `first` on by eighths of the last cache, with the seconds of
    the usual pass over each. The usual pass, not the best one: others who use the cache are there when programs run,
    too."""
    end = time.perf_counter() + _SHARE_SECONDS
    for part in (first, *range(last // 8, min(last, size) + 1, last // 8)):
        whole = part // STEP * STEP
        yield whole, _usual(functools.partial(read, place, whole, 1), end)


def share_kept(passes: Iterable[tuple[int, float | None]], last: int, far: float | None) -> float | None:
    """The share of the `last` cache's bytes that is found again half: the set of which half came at the rate of the
    fastest set, half at memory's, `far` GB/s; where that is not known, at the slowest set's, if that is but half as
    fast. A cache that keeps the largest set is taken as whole; None where a pass is not settled, or no set is faster
    than memory."""
    if far is None:
        passes = [*passes]
        rates = [size / seconds * 1e-9 for size, seconds in passes if seconds is not None]
        far = min(rates) if rates and 2 * min(rates) <= max(rates) else None
    near, before = 0.0, (0.0, 1.0)
    for size, seconds in passes:
        if seconds is None or far is None:
            return None
        rate = size / seconds * 1e-9
        near = max(near, rate)
        found = (1 / far - 1 / rate) / (1 / far - 1 / near) if near > far else 1.0
        if found < 1 / 2:
            held, kept = before
            return (held + (size - held) * (kept - 1 / 2) / (kept - found)) / last
        before = size, found
    return 1.0 if near > (far or near) else None


def _usual(run: Callable[[], object], end: float) -> float | None:
    """The median of the seconds of `_PASSES` runs after one; None where there is no time for so many."""
    spans = list[float]()
    run()
    while len(spans) < _PASSES:
        if time.perf_counter() > end:
            return None
        took = Clock().time(run)
        spans += [] if took is None else [took]
    return sorted(spans)[_PASSES // 2]


def _all_cores(read: Callable[..., int], flush: Callable[..., int], place: int, size: int, cores: int) -> float | None:
    """GB/s that all cores read from memory together."""
    part = size // 4 // STEP * STEP
    end, turn, spans = time.perf_counter() + _TOGETHER_SECONDS, 0, list[float]()
    while time.perf_counter() < end and (turn < LEAST or settled(spans) is None):
        at = place + turn % 4 * part
        flush(at, part, 1)
        spans += _together(read, at, part, cores)
        turn += 1
    return _ratio(part // cores // STEP * STEP * cores * 1e-9, settled(spans))


def _together(read: Callable[..., int], place: int, size: int, cores: int) -> list[float]:
    """The seconds in which `cores` threads read their shares, from when the first begins to when the last has done;
    none where one of them was disturbed."""
    share = size // cores // STEP * STEP
    gate, spans = threading.Barrier(cores), list[tuple[float, float]]()

    def run(core: int) -> None:
        gate.wait()
        start = time.perf_counter()
        if Clock().time(lambda: read(place + core * share, share, 1)) is not None:
            spans.append((start, time.perf_counter()))

    threads = [threading.Thread(target=run, args=(core,)) for core in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [max(end for _, end in spans) - min(start for start, _ in spans)] if len(spans) == cores else []
