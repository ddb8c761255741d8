"""Calibration: the peaks and bandwidths of this machine, measured once and kept in the store.

`calibrated(target)` runs the probes with the target's vectors on one core (memory also on all), in under two seconds.
Each rate is the best of many short runs: what disturbs a run only ever makes it slower.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..report.errors import UserError
from ..store import Json, Store, digest, pack, unpack
from .core import number_of, rounded
from .host import Host, current_host
from .machine import llvm_stamp
from .peaks import Peaks
from .probes import PROBES_VERSION, READ_STEP, flops_per_round, print_probes
from .target import MEASURED, Target

if TYPE_CHECKING:
    import numpy.typing as npt

MEMORY_BUFFER_LIMIT: Final = 512 << 20
"""The largest buffer, in bytes, that the memory bandwidth is read from."""

_RUN_SECONDS: Final = 0.002
_PEAK_SECONDS: Final = 0.15  # a core takes tens of milliseconds to reach its clock
_CACHE_SECONDS: Final = 0.05
_MEMORY_SECONDS: Final = 0.2
_lock = threading.Lock()
_measured: dict[str, Measurement] = {}


class Measurement(NamedTuple):
    """What is measured: the clock that the multiply-adds of a core stand for, and the bandwidths."""

    ghz: float
    peaks: Peaks

    def record(self) -> dict[str, Json]:
        return {"ghz": self.ghz, "peaks": self.peaks.record()}

    def put_into(self, target: Target) -> Target:
        peaks = {field.name: getattr(self.peaks, field.name) for field in dataclasses.fields(Peaks)}
        names = ("ghz", *(name for name in peaks if not name.endswith("store_gbs")))
        origins = tuple((name, MEASURED) for name in sorted(names))
        core = target.core.replace(ghz=self.ghz)
        return dataclasses.replace(target, core=core, peaks=self.peaks, origins=origins)


def calibrated(target: Target, store: Store | None = None) -> Target:
    """`target` with the peaks measured on this machine, from `store` (the user's store if None) or measured now.

    A target that this machine cannot run keeps its estimates, and so does one for which memory is too short to measure:
    `target.measured` tells.
    """
    host = current_host()
    if not target.is_runnable_on(host):
        return target
    key = _key(target, host)
    with _lock:
        if key not in _measured:
            kept = _recall_or_measure(target, host, store or Store.default())
            if kept is None:
                return target
            _measured[key] = kept
        return _measured[key].put_into(target)


def recalled(target: Target, store: Store | None = None) -> Target:
    """`target` with the peaks that `calibrated` measured on this machine before; with its estimates where it did not,
    and where the target is a model of a machine and not this one."""
    host = current_host()
    if not target.name.startswith("native") or not target.is_runnable_on(host):
        return target
    key = _key(target, host)
    with _lock:
        found = _measured.get(key) or _recall(target, key, store or Store.default())
    return target if found is None else found.put_into(target)


def measure(target: Target, host: Host) -> Measurement:
    """The clock and bandwidths of `host`, this machine, with the vectors of `target`, which must run on it."""
    with _Probes(target) as probes:
        f32 = probes.time_peak(32)
        caches = [probes.time_reads(cache.bytes // 2, _CACHE_SECONDS) for cache in target.caches]
        buffer = probes.allocate(_memory_bytes(target, host))
        alone = probes.time_reads(len(buffer), _MEMORY_SECONDS, buffer)
        together = probes.time_shared_reads(buffer, min(target.cores, host.cores), alone)
    peaks = target.peaks.replace(
        cache_gbs=tuple(rounded(rate) for rate in caches),
        memory_gbs=rounded(alone),
        memory_gbs_all=rounded(together),
    )
    return Measurement(rounded(f32 * target.core.ghz / target.fma_gflops), peaks)


def _recall_or_measure(target: Target, host: Host, store: Store) -> Measurement | None:
    key = _key(target, host)
    found = _recall(target, key, store)
    if found is not None:
        return found
    try:
        made = measure(target, host)
    except MemoryError:
        return None
    store.put(key, pack(made.record(), {}))
    return made


def _recall(target: Target, key: str, store: Store) -> Measurement | None:
    kept = store.get(key)
    return None if kept is None else _decode(kept, len(target.caches))


def _decode(content: bytes, levels: int) -> Measurement | None:
    try:
        record, _ = unpack(content)
        kept: Any = record["peaks"]
        peaks = Peaks.from_record(kept)
        if len(peaks.cache_gbs) != levels or len(peaks.store_gbs) != levels:
            return None
        ghz = number_of("ghz", record["ghz"])
        return Measurement(ghz, peaks) if ghz > 0 else None
    except (UserError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _key(target: Target, host: Host) -> str:
    """What a measurement depends on. The caches say which buffers were read; the model tells machines apart."""
    return digest(
        kind="calibration",
        probes=PROBES_VERSION,
        model=host.model,
        caches=repr(target.caches),
        cpu=target.cpu,
        tuned=target.model,
        features=target.feature_text,
        cores=target.cores,
        compiler=llvm_stamp(),
    )


def _memory_bytes(target: Target, host: Host) -> int:
    """Four times the last cache, the model's or the real one, within the limit and a quarter of the free memory."""
    last = max(target.caches[-1].bytes, host.caches[-1].bytes)
    wanted = min(4 * last, MEMORY_BUFFER_LIMIT)
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return wanted
    return max(READ_STEP, min(wanted, free // 4))


class _Probes:
    """The probes compiled for a target, to be timed while the `with` block lasts. Rates are in 10^9 a second."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __enter__(self) -> _Probes:
        import llvmlite.binding as llvm

        module = llvm.parse_assembly(print_probes(self._target))
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, self._target.create_machine(jit=True))
        self._engine.finalize_object()
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._read = prototype(self._engine.get_function_address("read"))
        return self

    def __exit__(self, *fault: object) -> None:
        self._engine.close()

    def allocate(self, size: int) -> npt.NDArray[np.uint8]:
        """`size` bytes, rounded to the probes' step, at the start of a page and all written to: really there."""
        size = max(READ_STEP, size - size % READ_STEP)
        raw = np.empty(size + READ_STEP, np.uint8)
        start = -raw.ctypes.data % READ_STEP
        buffer = raw[start : start + size]
        buffer.fill(1)
        return buffer

    def time_peak(self, bits: int) -> float:
        """GFLOP/s of multiply-adds on floats of `bits`."""
        scalar = ctypes.c_float if bits == 32 else ctypes.c_double
        run = ctypes.CFUNCTYPE(scalar, ctypes.c_int64, scalar)(self._engine.get_function_address(f"peak_f{bits}"))
        return _best_rate(lambda rounds: run(rounds, 0.5), flops_per_round(self._target, bits), _PEAK_SECONDS)

    def time_reads(self, size: int, seconds: float, buffer: npt.NDArray[np.uint8] | None = None) -> float:
        """GB/s at which one core reads `size` bytes again and again."""
        held = self.allocate(size) if buffer is None else buffer
        place, length = held.ctypes.data, len(held)
        return _best_rate(lambda rounds: self._read(place, length, rounds), length, seconds)

    def time_shared_reads(self, buffer: npt.NDArray[np.uint8], cores: int, alone: float) -> float:
        """GB/s at which `cores` threads read their shares of `buffer`; at least what one reads `alone`."""
        share = len(buffer) // cores // READ_STEP * READ_STEP
        if cores == 1 or share == 0:
            return alone

        def run(rounds: int) -> None:
            places = [buffer.ctypes.data + core * share for core in range(cores)]
            threads = [threading.Thread(target=self._read, args=(place, share, rounds)) for place in places]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return max(alone, _best_rate(run, share * cores, _MEMORY_SECONDS, run_seconds=5 * _RUN_SECONDS))


def _best_rate(run: Callable[[int], object], work: float, seconds: float, run_seconds: float = _RUN_SECONDS) -> float:
    """The best rate of `run(rounds)`, which does `rounds * work`, in `seconds` of runs of `run_seconds` or more."""
    end = time.perf_counter() + seconds
    rounds, best = 1, 0.0
    while True:
        start = time.perf_counter()
        run(rounds)
        now = time.perf_counter()
        best = max(best, rounds * work / max(now - start, 1e-9) / 1e9)
        if now >= end:
            return best
        if now - start < run_seconds:
            rounds *= 2
