"""What starting work takes on this machine: the pool's parallel loops, and a call of an executable.

A program runs a loop of two shares again and again, with the pool of this process. A share waits for the other
thread's, so that each loop is timed from its start to the end of both threads' work. If the other thread does not come,
because the machine is busy, the wait times out and the turn does not count.
"""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from tilewright.codegen.abi import ENTRY, LEAVE, PARALLEL
from tilewright.codegen.assemble import assemble
from tilewright.codegen.link import link_code
from tilewright.runtime.executable import Executable
from tilewright.runtime.interface import Interface
from tilewright.runtime.loader import load_code
from tilewright.runtime.pool import pool_code, pool_functions
from tilewright.runtime.program import Program
from tilewright.target import Target
from tilewright.target.host import Host
from tilewright.target.turns import Run, settle, settled

_LOOPS, _CALLS = 10, 20
"""Loops in a turn, and calls."""

_AWAKE_LOOKS, _ASLEEP_LOOKS = 1 << 14, 1 << 22
"""How often a share looks for the other: for microseconds, and for a millisecond."""

_CALL_SECONDS, _AWAKE_SECONDS, _ASLEEP_SECONDS = 0.01, 0.02, 0.04
_WAKES: Final = 5
"""Wakes, of which the median counts: the time that a system takes to wake a thread varies."""

_SLEEP: Final = 0.002
"""Seconds after which the pool's workers sleep, several times over."""

_TEXT: Final = f"""
declare void @{PARALLEL}(ptr, ptr, i64, i64, i64, ptr)
declare void @{LEAVE}(ptr)

define i64 @{ENTRY}(ptr %call) #0 {{
  ret i64 0
}}

define internal void @meet(ptr %env, i64 %begin, i64 %end) #0 {{
entry:
  %here = atomicrmw add ptr %env, i64 1 acq_rel
  %pair = lshr i64 %here, 1
  %more = add i64 %pair, 1
  %goal = shl i64 %more, 1
  %at = getelementptr i64, ptr %env, i64 8
  %most = load i64, ptr %at
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %n1, %look ]
  %n1 = add i64 %n, 1
  %now = load atomic i64, ptr %env acquire, align 8
  %met = icmp uge i64 %now, %goal
  %late = icmp uge i64 %n1, %most
  %leave = or i1 %met, %late
  br i1 %leave, label %left, label %look
left:
  br i1 %met, label %done, label %missed
missed:
  %misses = getelementptr i64, ptr %env, i64 9
  store atomic i64 1, ptr %misses monotonic, align 8
  br label %done
done:
  ret void
}}

define i64 @loops(ptr %env, ptr %team, i64 %count) #0 {{
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %loop ]
  call void @{PARALLEL}(ptr @meet, ptr %env, i64 0, i64 2, i64 1, ptr %team)
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, %count
  br i1 %more, label %loop, label %done
done:
  ret i64 0
}}

define i64 @leave(ptr %env, ptr %team, i64 %count) #0 {{
  call void @{LEAVE}(ptr %team)
  ret i64 0
}}
"""


def measure_starts(target: Target, host: Host) -> dict[str, float | None]:
    """`call_seconds` of `host`, this machine, and, where it has several cores, `fork_seconds` and `wake_seconds`; None
    for what is not settled, as in target/turns.py."""
    head = f'target triple = "{target.triple}"\ntarget datalayout = "{target.data_layout}"\n'
    text = f"{head}{_TEXT}attributes #0 = {{ nounwind {target.attributes} }}\n"
    code = link_code([assemble(text, target)], target, (ENTRY, "loops", "leave"))
    found = {"call_seconds": _time_calls(target, code)}
    if min(host.cores, target.cores) > 1:
        loaded = load_code((*code, pool_code(target)), target, pool_functions)
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        loops, leave = kind(loaded.address("loops")), kind(loaded.address("leave"))
        found |= _time_forks(loops, leave)
    return found


def _time_calls(target: Target, code: tuple[bytes, ...]) -> float | None:
    """Seconds of a call of a program that does nothing."""
    native = (*code, pool_code(target))
    executable = Executable(Program(Interface((), (), ()), native, (), (), target), None, threads=1)

    def call(turn: int, rounds: int) -> None:
        for _ in range(rounds):
            executable()

    return settle({"call": Run(call, _CALLS, fixed=True)}, _CALL_SECONDS)["call"]


def _time_forks(loops: Callable[..., int], leave: Callable[..., int]) -> dict[str, float | None]:
    """Seconds of a loop whose worker is awake, and the additional seconds when it sleeps; None where the machine is too
    busy for two threads to run at once."""
    env, team = np.zeros(16, np.int64), np.zeros(8, np.int64)

    def run(count: int, looks: int) -> float:
        """Seconds of a loop; infinite where not all shares met."""
        env[:] = 0
        env[8] = looks
        start = time.perf_counter()
        loops(env.ctypes.data, team.ctypes.data, count)
        return math.inf if env[9] else (time.perf_counter() - start) / count

    def call(run_loops: Callable[[], list[float]]) -> list[float]:
        team[:4] = (2, 0, 0, 0)
        try:
            return run_loops()
        finally:
            leave(None, team.ctypes.data, 0)

    def wake() -> list[float]:
        time.sleep(_SLEEP)
        return call(lambda: [run(1, _ASLEEP_LOOKS)])

    wake()  # the worker is started
    awake = settled(_finite(call(lambda: _within(_AWAKE_SECONDS, lambda: run(_LOOPS, _AWAKE_LOOKS)))))
    asleep = _finite(_within(_ASLEEP_SECONDS, lambda: wake()[0]))
    found = None if awake is None or len(asleep) < _WAKES else max(statistics.median(asleep) - awake, awake)
    return {"fork_seconds": awake, "wake_seconds": found}


def _within(seconds: float, run: Callable[[], float]) -> list[float]:
    """What runs within `seconds` say."""
    end, found = time.perf_counter() + seconds, [run()]
    while time.perf_counter() < end:
        found.append(run())
    return found


def _finite(seconds: list[float]) -> list[float]:
    return [s for s in seconds if math.isfinite(s)]
