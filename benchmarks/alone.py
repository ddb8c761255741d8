"""A program of ours without Python around it: native code calls it again and again with the arrays of one call, as a
limit's program runs in one call of Python's. A share of a limit then compares code with code; what Python does before
each call of a few microseconds, `python -m benchmarks models overhead` measures. Arrays begin at cache lines, as those
of a limit's program do, and those that a program keeps between its kernels.
"""

from __future__ import annotations

import ctypes
import math
import time
from functools import cache

import llvmlite.binding as llvm

import tilewright as tw
from benchmarks.engines import checked
from benchmarks.limits import Limit, loaded
from benchmarks.problems import Array, Problem
from tilewright.report.errors import InternalError
from tilewright.runtime.memory import allocate
from tilewright.target import native

CALL_SECONDS = 5e-4
"""About what one run takes."""
TRIALS = 8
"""Calls that tell how many of them that is."""

_REPEAT = """
define i64 @repeat(i64 %n, ptr %entry, ptr %record) {
begin:
  br label %again
again:
  %i = phi i64 [0, %begin], [%next, %again]
  %worst = phi i64 [0, %begin], [%later, %again]
  %status = call i64 %entry(ptr %record)
  %later = or i64 %worst, %status
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %again, label %done
done:
  ret i64 %later
}
"""


def open_alone(problem: Problem) -> Limit:
    """Our program for one thread, checked; its work is counted in calls."""
    exe = tw.compile(problem.model, threads=1)
    arrays = [_at_line(problem.feeds[port.name]) for port in exe.inputs]
    results = checked("tilewright", lambda: exe(*arrays), problem)()
    entry, record = exe.native_call()

    def run(calls: int) -> None:
        if repeat(calls, entry, record):
            raise InternalError("a program that ran before failed when it was called again")

    seconds = []
    for _ in range(TRIALS):  # the first calls bring near what later ones find there
        start = time.perf_counter()
        run(1)
        seconds.append(time.perf_counter() - start)
    calls = math.ceil(CALL_SECONDS / max(min(seconds), 1e-9))
    held = (exe, arrays, results)  # what native code reads and writes

    def call() -> object:
        run(calls)
        return held

    return Limit(call, float(calls))


def _at_line(array: Array) -> Array:
    """The same array in memory of its own that begins at a cache line."""
    copy = allocate(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def repeat(calls: int, entry: int, record: int) -> int:
    """Calls a program so many times; 0, or the status of a call that failed."""
    status: int = _engine()[1](calls, entry, record)
    return status


@cache
def _engine() -> tuple[llvm.ExecutionEngine, ctypes._FuncPointer]:  # type: ignore[name-defined]
    engine = loaded(_REPEAT, native())
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    return engine, prototype(engine.get_function_address("repeat"))
