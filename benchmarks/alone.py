"""A program of ours without Python around it: native code calls it again and again with the arrays of one call, as a
limit's program runs in one call of Python's. A share of a limit then compares code with code; what Python does before
each call of a few microseconds, `python -m benchmarks models overhead` measures.
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
from benchmarks.problems import Problem
from tilewright.report.errors import InternalError
from tilewright.target import native

CALL_SECONDS = 5e-4
"""About what one run takes."""

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
    arrays = [problem.feeds[port.name] for port in exe.inputs]
    results = checked("tilewright", lambda: exe(*arrays), problem)()
    entry, record = exe.native_call()

    def run(calls: int) -> None:
        if _repeat(calls, entry, record):
            raise InternalError("a program that ran before failed when it was called again")

    start = time.perf_counter()
    run(1)
    calls = math.ceil(CALL_SECONDS / max(time.perf_counter() - start, 1e-9))
    held = (exe, arrays, results)  # what native code reads and writes

    def call() -> object:
        run(calls)
        return held

    return Limit(call, float(calls))


def _repeat(calls: int, entry: int, record: int) -> int:
    status: int = _engine()[1](calls, entry, record)
    return status


@cache
def _engine() -> tuple[llvm.ExecutionEngine, ctypes._FuncPointer]:  # type: ignore[name-defined]
    engine = loaded(_REPEAT, native())
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    return engine, prototype(engine.get_function_address("repeat"))
