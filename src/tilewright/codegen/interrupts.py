"""How a long loop of a program is interrupted: at its end, a step looks from time to time whether a signal came.

Who wants that gives the entry point a record of nine words; else the pointer is null, and a loop never looks again:

    0          the addresses of Python's functions ASKED
    6          the exception that a handler of a signal raised, as PyErr_Fetch gives it: type, value, traceback

A look takes Python's lock, lets other threads have it, which a call may have kept from them, and runs the handlers of
signals that came. Where one raises, the call ends with INTERRUPTED, the exception in the record. Steps count down to a
look. How many there are between two follows from the time that steps took: at first one, then four times as many until
looks are milliseconds apart, and twice as many until they are between PERIOD and twice that. All loops of a call count
together.
"""

from __future__ import annotations

from tilewright.codegen.abi import INTERRUPTED
from tilewright.codegen.profile import now_text

ASKED = (
    *("PyGILState_Ensure", "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals", "PyErr_Fetch"),
    "PyGILState_Release",
)

PERIOD = 40_000_000
"""Nanoseconds between looks, at least: a user waits a tenth of a second at most, and a look, which may have to wait for
the lock, is rare."""

TURNS = "[3 x i64]"
"""What loops count with: steps left before a look, steps between looks, and the time of the last one."""

STOPPED = "stopped"

COUNT = (
    f"  %turns = alloca {TURNS}, align 8",
    f"  store {TURNS} [ i64 1, i64 1, i64 0 ], ptr %turns, align 8",
)
"""Makes the counters, where a program begins."""

_TEXT = f"""
define internal i64 @{STOPPED}(ptr %stop, ptr %turns) #0 {{
  %between = getelementptr i64, ptr %turns, i64 1
  %last = getelementptr i64, ptr %turns, i64 2
  %nobody = icmp eq ptr %stop, null
  br i1 %nobody, label %never, label %look
never:
  store i64 {(1 << 63) - 1}, ptr %turns, align 8
  ret i64 0
look:
  %now = call i64 @now()
  %steps = load i64, ptr %between, align 8
  %before = load i64, ptr %last, align 8
  %first = icmp eq i64 %before, 0
  br i1 %first, label %begin, label %time
begin:
  store i64 %now, ptr %last, align 8
  br label %grow
time:
  %took = sub i64 %now, %before
  %soon = icmp slt i64 %took, {PERIOD}
  br i1 %soon, label %grow, label %ask
grow:
  %since = phi i64 [ 0, %begin ], [ %took, %time ]
  %short = icmp slt i64 %since, {PERIOD // 16}
  %times = select i1 %short, i64 2, i64 1
  %grown = shl i64 %steps, %times
  %small = icmp slt i64 %grown, {1 << 40}
  %more = select i1 %small, i64 %grown, i64 {1 << 40}
  store i64 %more, ptr %between, align 8
  store i64 %more, ptr %turns, align 8
  ret i64 0
ask:
  %late = icmp sgt i64 %took, {2 * PERIOD}
  %periods = sdiv i64 %took, {PERIOD}
  %part = sdiv i64 %steps, %periods
  %fewer = call i64 @llvm.smax.i64(i64 %part, i64 1)
  %next = select i1 %late, i64 %fewer, i64 %steps
  store i64 %next, ptr %between, align 8
  store i64 %next, ptr %turns, align 8
{{FUNCTIONS}}
  %lock = call i32 %PyGILState_Ensure()
  %thread = call ptr %PyEval_SaveThread()
  call void %PyEval_RestoreThread(ptr %thread)
  %raised = call i32 %PyErr_CheckSignals()
  %quiet = icmp eq i32 %raised, 0
  br i1 %quiet, label %go, label %keep
keep:
  %type = getelementptr ptr, ptr %stop, i64 {len(ASKED)}
  %value = getelementptr ptr, ptr %stop, i64 {len(ASKED) + 1}
  %trace = getelementptr ptr, ptr %stop, i64 {len(ASKED) + 2}
  call void %PyErr_Fetch(ptr %type, ptr %value, ptr %trace)
  br label %go
go:
  call void %PyGILState_Release(i32 %lock)
  %asked = call i64 @now()
  store i64 %asked, ptr %last, align 8
  %result = sext i32 %raised to i64
  ret i64 %result
}}
"""

_LOADS = "\n".join(
    f"  %{name}.at = getelementptr ptr, ptr %stop, i64 {n}\n  %{name} = load ptr, ptr %{name}.at, align 8"
    for n, name in enumerate(ASKED)
)

DECLARATION = "declare i64 @llvm.smax.i64(i64, i64)"


def stopped_text(triple: str) -> str:
    """What the steps of a program's loops call, and the time that it asks for."""
    return now_text(triple) + _TEXT.replace("{FUNCTIONS}", _LOADS)


def look(n: int, name: str) -> list[str]:
    """The end of a step with the labels `n`, up to where the loop goes on; values begin with `name`."""
    return [
        f"  {name}.left = load i64, ptr %turns, align 8",
        f"  {name}.less = sub i64 {name}.left, 1",
        f"  store i64 {name}.less, ptr %turns, align 8",
        f"  {name}.due = icmp slt i64 {name}.less, 1",
        f"  br i1 {name}.due, label %look{n}, label %on{n}, !prof !3",
        f"look{n}:",
        f"  {name}.stops = call i64 @{STOPPED}(ptr %stop, ptr %turns)",
        f"  {name}.goes = icmp eq i64 {name}.stops, 0",
        f"  br i1 {name}.goes, label %on{n}, label %stop{n}",
        f"stop{n}:",
        f"  ret i64 {INTERRUPTED}",
    ]
