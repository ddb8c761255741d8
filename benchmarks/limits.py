"""What bounds a kernel on this machine, as programs that take part in a race: the share of a limit is then a ratio of
two times taken in the same rounds, and a noisy minute hits both.

The programs are those that machines are measured with (`tilewright.target.probes`, `streams`), compiled for this one.
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
from tilewright.target.probes import core_probes, make_data, print_module
from tilewright.target.streams import STEP, print_streams

CALL_FLOPS = 5e7
"""About what one call of `multiply_adds` does: half a millisecond at 100 GFLOP/s."""
MEMORY_BUFFER_LIMIT = 512 << 20
"""The largest buffer, in bytes, that the memory bandwidth is read from."""
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
    target = native()
    (probe,) = (probe for probe in core_probes(target) if probe.name == "fma_cycles")
    engine, data = loaded(print_module(target, [probe]), target), make_data()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    run = kind(engine.get_function_address(probe.name))
    flops = 2 * probe.count * (target.vector_bits // 32)
    rounds = int(CALL_FLOPS / flops)

    def call() -> None:
        assert engine  # the code lives as long as it
        run(data.ctypes.data, rounds)

    return Limit(call, rounds * flops)


def reads(size: int) -> Limit:
    """One core reading `size` bytes (whole pages), again and again until there are `CALL_BYTES`."""
    engine = _streams()
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    run = prototype(engine.get_function_address("read"))
    size = max(STEP, size // STEP * STEP)
    raw = np.ones(size + STEP, np.uint8)
    buffer = raw[-raw.ctypes.data % STEP :][:size]
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
def _streams() -> llvm.ExecutionEngine:
    return loaded(print_streams(native()), native())


def loaded(text: str, target: Target) -> llvm.ExecutionEngine:
    """Machine code of LLVM IR, which lives as long as the engine."""
    module = llvm.parse_assembly(text)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, target.create_machine(jit=True))
    engine.finalize_object()
    return engine
