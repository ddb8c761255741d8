"""What bounds a kernel on this machine, as programs that take part in a race: the share of a limit is then a ratio of
two times taken in the same rounds, and a noisy minute hits both.

The programs are the calibration's probes (`tilewright.target.probes`), compiled for this machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm
import numpy as np

from tilewright.target import Target, native
from tilewright.target.calibrate import MEMORY_BUFFER_LIMIT
from tilewright.target.probes import READ_STEP, flops_per_round, print_probes

CALL_FLOPS = 5e7
"""About what one call of `multiply_adds` does: half a millisecond at 100 GFLOP/s."""
CALL_BYTES = 8 << 20
"""What one call of `reads` reads at least."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A call, and the operations or bytes that it does."""

    call: Callable[[], object]
    work: float


@cache
def multiply_adds() -> Limit:
    """Independent multiply-adds of f32 vectors on one core."""
    engine, target = _probes()
    scalar = ctypes.c_float
    run = ctypes.CFUNCTYPE(scalar, ctypes.c_int64, scalar)(engine.get_function_address("peak_f32"))
    rounds = int(CALL_FLOPS / flops_per_round(target, 32))
    return Limit(lambda: run(rounds, 0.5), rounds * flops_per_round(target, 32))


def reads(size: int) -> Limit:
    """One core reading `size` bytes (whole pages), again and again until there are `CALL_BYTES`."""
    engine, _ = _probes()
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    run = prototype(engine.get_function_address("read"))
    size = max(READ_STEP, size // READ_STEP * READ_STEP)
    raw = np.ones(size + READ_STEP, np.uint8)
    buffer = raw[-raw.ctypes.data % READ_STEP :][:size]
    rounds = -(-CALL_BYTES // size)
    return Limit(lambda: run(buffer.ctypes.data, size, rounds), size * rounds)


def memory_reads() -> Limit:
    """One core reading a buffer of four times the last cache, so from memory."""
    return reads(min(4 * native().caches[-1].bytes, MEMORY_BUFFER_LIMIT))


def repeated(limit: Limit, work: float) -> Limit:
    """As many calls as come nearest to so much work: a disturbance hits programs of one length alike."""
    count = max(1, round(work / limit.work))

    def call() -> None:
        for _ in range(count):
            limit.call()

    return Limit(call, count * limit.work)


def together(limits: Sequence[Limit]) -> Limit:
    """Limits at once, each in a thread of its own."""
    if len(limits) == 1:
        return limits[0]
    threads = ThreadPoolExecutor(len(limits) - 1)

    def call() -> None:
        others = [threads.submit(limit.call) for limit in limits[1:]]
        limits[0].call()
        for other in others:
            other.result()

    return Limit(call, sum(limit.work for limit in limits))


def on_cores(make: Callable[[], Limit], work: float, cores: int) -> Limit:
    """About so much work, at the limit of so many cores."""
    return together([repeated(make(), work / cores) for _ in range(cores)])


@cache
def _probes() -> tuple[llvm.ExecutionEngine, Target]:
    target = native()
    return loaded(print_probes(target), target), target


def loaded(text: str, target: Target) -> llvm.ExecutionEngine:
    """Machine code of LLVM IR, which lives as long as the engine."""
    module = llvm.parse_assembly(text)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, target.create_machine(jit=True))
    engine.finalize_object()
    return engine
