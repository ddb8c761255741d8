"""What the probes find on this machine: raw figures, by the names of `Target.figures`, in under 0.3 seconds.

All probes of a core run in turn, for microseconds each, again and again; the best time of each counts, for what
disturbs a run only ever makes it slower. A processor takes milliseconds to reach its clock, so the first turns seldom
count. Nothing here judges what was found: plausible.py does.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from .core import DOTS
from .host import Host
from .probes import CHAIN, GROUP, Probe, alike, core_probes, make_data, print_module
from .streams import STEP, print_streams
from .target import Target

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_RUN: Final = 30e-6
"""Seconds that one run of a probe takes: far more than its call, far less than a scheduler's time slice."""

_TURNS: Final = 24
_CORE_SECONDS: Final = 0.06
"""How often each probe runs, and after how many seconds no further turn begins."""

_CACHE_TURNS: Final = 12
_CACHE_SECONDS: Final = 0.04
_MEMORY_SECONDS: Final = 0.08

MEMORY_BYTES: Final = 64 << 20
"""The largest buffer for memory. What is read of it was taken out of all caches before, so it need not be larger than
they; writes to it may stay in a last cache that is."""

SUBNORMAL: Final = "subnormal_cycles"


def measure(target: Target, host: Host) -> dict[str, float]:
    """The figures of `host`, this machine, with the vectors of `target`, which must run on it: all that `Core` has in
    cycles, and all of `Peaks`. Raises MemoryError where there is no room for the buffer."""
    return {**measure_core(target), **measure_streams(target, host)}


def measure_core(target: Target) -> dict[str, float]:
    """The clock in GHz, and cycles by it."""
    probes = core_probes(target)
    with Engine(target, print_module(target, probes)) as engine:
        usual, subnormal = make_data(), make_data(1e-40)
        runs = {probe.name: _run(engine, probe, usual.ctypes.data) for probe in probes}
        (multiply_add,) = (probe for probe in probes if probe.name == "fma_cycles")
        runs[SUBNORMAL] = _run(engine, multiply_add, subnormal.ctypes.data)
        counts = {probe.name: probe.count for probe in probes} | {SUBNORMAL: multiply_add.count}
        rounds = {name: max(1, round(_RUN * target.core.hertz / counts[name])) for name in runs}
        times = _best_times({name: (run, rounds[name]) for name, run in runs.items()}, _TURNS, _CORE_SECONDS)
    cycle = times["ghz"] / counts["ghz"]
    cycles = {name: seconds / counts[name] / cycle for name, seconds in times.items()}
    return {"ghz": 1e-9 / cycle, **_figures(cycles, target)}


def measure_streams(target: Target, host: Host) -> dict[str, float]:
    """GB/s read from and written to each cache and memory."""
    with Engine(target, print_streams(target)) as engine:
        read, write, flush = (engine.function(name, 3) for name in ("read", "write", "flush"))
        size = min(MEMORY_BYTES, 2 * max(target.caches[-1].bytes, host.caches[-1].bytes)) // STEP * STEP
        with _Buffer(size) as place:
            write(place, size, 1)  # the pages are there
            sizes = [max(STEP, min(cache.bytes // 2, size) // STEP * STEP) for cache in target.caches]
            out: dict[str, float] = {}
            for figure, stream in (("cache_gbs", read), ("store_gbs", write)):
                runs = {f"{figure}.{n}": _over(stream, place, each) for n, each in enumerate(sizes, 1)}
                rounds = {name: max(2, 400_000 // each) for name, each in zip(runs, sizes, strict=True)}
                pairs = {name: (run, rounds[name]) for name, run in runs.items()}
                times = _best_times(pairs, _CACHE_TURNS, _CACHE_SECONDS)
                moved = dict(zip(runs, sizes, strict=True))
                out.update((name, moved[name] / seconds * 1e-9) for name, seconds in times.items())
            out.update(_memory(read, write, flush, place, size, min(target.cores, host.cores)))
    return out


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


def _run(engine: Engine, probe: Probe, data: int) -> Callable[[int], object]:
    function = engine.function(probe.name, 2)
    return lambda rounds: function(data, rounds)


def _over(stream: Callable[..., int], place: int, size: int) -> Callable[[int], object]:
    return lambda rounds: stream(place, size, rounds)


def _best_times(
    runs: Mapping[str, tuple[Callable[[int], object], int]], turns: int, seconds: float
) -> dict[str, float]:
    """The least seconds a round of each run, which all have their turns one after another. The first turn finds out how
    many rounds take `_RUN` seconds: the numbers given are no more than a beginning."""
    end = time.perf_counter() + seconds
    best = dict.fromkeys(runs, float("inf"))
    rounds = {name: max(1, number // 8) for name, (_, number) in runs.items()}
    for turn in range(turns):
        for name, (run, _) in runs.items():
            start = time.perf_counter()
            run(rounds[name])
            took = (time.perf_counter() - start) / rounds[name]
            best[name] = min(best[name], took)
            if turn < 3:
                rounds[name] = max(1, round(_RUN / best[name]))
        if turn > 4 and time.perf_counter() > end:
            break
    return best


def _figures(cycles: Mapping[str, float], target: Target) -> dict[str, float]:
    """Figures of `Core` from the cycles of probes."""
    out = {name: number for name, number in cycles.items() if not name.startswith(DOTS) and name != "ghz"}
    multiply_adds, plain = CHAIN
    out["chain"] = max(1.0, cycles["chain"] / (multiply_adds * cycles["fma_cycles"] + plain * cycles["add_cycles"]))
    out["add_beside_cycles"] = max(0.0, cycles["add_beside_cycles"] - (GROUP - 1) * cycles["fma_cycles"])
    extra = cycles[SUBNORMAL] - cycles["fma_cycles"]
    out[SUBNORMAL] = extra if extra > 0.1 else 0.0
    for first, *others in alike(target):
        out.update((f"{DOTS}{row.name}", cycles[f"{DOTS}{first.name}"]) for row in (first, *others))
    return out


def _memory(
    read: Callable[..., int], write: Callable[..., int], flush: Callable[..., int], place: int, size: int, cores: int
) -> dict[str, float]:
    """What one core reads from memory and writes to it, and what all cores read together."""
    part = size // 4 // STEP * STEP
    best = {"memory_gbs": 0.0, "memory_store_gbs": 0.0, "memory_gbs_all": 0.0}
    end = time.perf_counter() + _MEMORY_SECONDS
    for turn in range(40):
        at = place + turn % 4 * part
        flush(at, part, 1)
        best["memory_gbs"] = max(best["memory_gbs"], part / _seconds(partial(read, at, part, 1)) * 1e-9)
        best["memory_store_gbs"] = max(best["memory_store_gbs"], size / _seconds(partial(write, place, size, 1)) * 1e-9)
        if cores > 1:
            flush(at, part, 1)
            best["memory_gbs_all"] = max(best["memory_gbs_all"], _together(read, at, part, cores))
        if turn > 1 and time.perf_counter() > end:
            break
    best["memory_gbs_all"] = max(best["memory_gbs_all"], best["memory_gbs"])
    return best


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _together(read: Callable[..., int], place: int, size: int, cores: int) -> float:
    """GB/s at which `cores` threads read their shares, from when the first begins to when the last has done."""
    share = size // cores // STEP * STEP
    gate, spans = threading.Barrier(cores), []

    def run(core: int) -> None:
        gate.wait()
        start = time.perf_counter()
        read(place + core * share, share, 1)
        spans.append((start, time.perf_counter()))

    threads = [threading.Thread(target=run, args=(core,)) for core in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return share * cores / (max(end for _, end in spans) - min(start for start, _ in spans)) * 1e-9
