"""The thread pool as LLVM IR over pthreads: one text, compiled once a process, called by generated code.

    void tilewright_parallel(ptr share, ptr env, i64 begin, i64 end, i64 grain, ptr team)
    void tilewright_leave(ptr team)
    void tilewright_stop()                  void tilewright_reset(i64 cores)

`tilewright_parallel` runs share(env, b, e) for contiguous parts b..e of begin..end, and returns when all have run. The
loop is cut into pieces, none of fewer than `grain` iterations, and each thread of the team gets as many neighbouring
ones: the caller the first, each worker further ones, which are posted to it. A thread runs a quarter of what is left of
its own pieces, from the front, and so on; when it has none left, it takes a quarter of another thread's, from the
back. So a loop never waits for a worker to wake up, nor for a slow one to do its whole part. One caller at a time has
the workers; whoever finds them taken (another thread, or a share that forks again) runs the whole loop alone. So does
everybody while as many calls are under way as there are cores: a worker would take the core from another caller. With
fewer callers, but several, a loop gets as many workers as there are cores without one.

A team is { i64 threads, i64 forked, i64 grains, ptr profile, ptr others }: one call of a program; `forked` is 0 before
its first loop worth sharing, 1 behind it, and 2 once a loop had workers. While a call that had workers is under way,
they wait for its next loop awake, unless callers need all cores; when it has left, a little longer, for the next call;
then they sleep on a condition variable. Waking one costs its caller a system call, so a call does it when its loops
have come to WAKE grains of work, or at a loop whose grain is 1: the time of its iterations is not known.

A worker has a slot with what it shares with callers:

    state    even: the number of a loop whose part is posted; odd: nothing to do; -2: return
    done     the number of the last loop in which it took part
    range    the pieces that nobody has begun, the first in its low half, the one behind the last in its high half
    asleep   1 while it sleeps and nobody has woken it

A worker computes as the caller does: a job has the control word of its caller's floating-point unit (subnormals.py),
and the worker makes it its own before its part. Threads inherit that of the one that starts them, so it is put each
time.

Where the team has a record of others, the caller's own threads, these run its loops and the pool has no part in it; or
threads are lent to the pool, which run its loops in its workers' place (pool_others.py). Where it has a record for a
profile, each thread notes the time of its part in a loop there (profile.py).

pthread objects are initialised by their own functions in buffers that are larger than any system's. Workers block all
signals but those of faults, so that Ctrl-C reaches Python's main thread.
"""

from __future__ import annotations

from tilewright.codegen.abi import LEAVE, PARALLEL, RESET, STOP
from tilewright.codegen.pool_others import OTHERS
from tilewright.codegen.pool_parts import PARTS
from tilewright.codegen.pool_text import CALLER, GLOBALS, LIFE, WORKER
from tilewright.codegen.profile import notes_text
from tilewright.codegen.subnormals import control_of, put, take

DECLARE_PARALLEL = f"declare void @{PARALLEL}(ptr, ptr, i64, i64, i64, ptr)"
DECLARE_LEAVE = f"declare void @{LEAVE}(ptr)"

MOST_WORKERS = 255
"""Threads beyond this and the caller are not used."""

_PAUSES = {"x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()", 1)}
_PAUSES["aarch64"] = ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)", 16)
_PAUSES["riscv64"] = ("declare void @llvm.riscv.pause()", "call void @llvm.riscv.pause()", 16)

AFTER_CALL = 30_000
"""Pauses that a worker stays awake when no call is under way: about half a millisecond, what waking one may cost."""

IN_CALL = 100 * AFTER_CALL
"""Pauses that a worker stays awake for the next loop of a call: a call that long without one does not need it soon."""

CROWDED = 64
"""What a pause counts towards AFTER_CALL while callers need all cores."""

PATIENCE = 200
"""Grains of work behind a loop that was refused workers, before another one wakes them: a caller that is gone for less,
to prepare its next call, wants its core back."""

WAKE = 50
"""Grains of work (see lower/kernels/share_out.py) that are worth waking a worker for: about 50 microseconds."""

LENT_AWAKE = 1_000_000
"""Nanoseconds after a loop in which threads that are lent are taken to wait awake for the next one, as OpenMP's do for
some milliseconds: until then no loop is too small for them."""

PIECES = 1 << 20
"""The most pieces that a loop is cut into."""

TEAM = "{ i64, i64, i64, ptr, ptr }"

_CONTROL = "getelementptr (%job, ptr @job, i64 0, i32 7)"

_BEFORE_YIELD = 4096
"""Pauses before a waiting thread begins to let others have its core, once in 256."""


def has_threads(triple: str) -> bool:
    """Whether a system has pthreads: Windows has others, WebAssembly none."""
    return not ("windows" in triple or triple.startswith("wasm"))


def pool_text(triple: str, data_layout: str) -> str:
    """The pool for one machine. Where there are no pthreads, every loop runs in its caller."""
    head = f'target triple = "{triple}"\ntarget datalayout = "{data_layout}"\n'
    if not has_threads(triple):
        return head + _WITHOUT_THREADS
    declaration, pause, factor = _PAUSES.get(triple.split("-", 1)[0], ("", "", 64))
    apple = "darwin" in triple or "macos" in triple
    values = {
        "PAUSE": pause,
        "AFTER_CALL": AFTER_CALL * factor,
        "IN_CALL": IN_CALL * factor,
        "BEFORE_YIELD": _BEFORE_YIELD,
        "MOST": MOST_WORKERS,
        "SLOTS": MOST_WORKERS + 1,
        "CROWDED": CROWDED * factor,
        "WAKE": WAKE,
        "PATIENCE": PATIENCE,
        "LENT_AWAKE": LENT_AWAKE,
        "PIECES": PIECES,
        "SETMASK": 3 if apple else 2,
        "BUS": 10 if apple else 7,
    }
    control = control_of(triple)
    values |= {"TAKE": "\n".join(take(control, _CONTROL, "%taken")), "PUT": "\n".join(put(control, _CONTROL, "%put"))}
    values |= {
        "TAKE_OWN": "\n".join(take(control, "%own", "%before")),
        "PUT_OWN": "\n".join(put(control, "%own", "%back")),
    }
    values["TAKE_WORK"] = "\n".join(take(control, "%word", "%taken"))
    values["PUT_WORK"] = "\n".join(put(control, "%word", "%put"))
    declared = "\n".join(["", *(control.declarations if control is not None else ())])
    text = GLOBALS + declaration + declared + notes_text(triple) + WORKER + PARTS + OTHERS + CALLER + LIFE
    for name, value in values.items():
        text = text.replace(f"${name}$", str(value))
    return head + text


_WITHOUT_THREADS = f"""
define void @{PARALLEL}(ptr %share, ptr %env, i64 %begin, i64 %end, i64 %grain, ptr %team) {{
  call void %share(ptr %env, i64 %begin, i64 %end)
  ret void
}}
define void @{LEAVE}(ptr %team) {{
  ret void
}}
define void @{STOP}() {{
  ret void
}}
define void @{RESET}(i64 %cores) {{
  ret void
}}
"""
