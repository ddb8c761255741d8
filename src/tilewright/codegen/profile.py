"""How a call is timed: the program notes when it begins and ends each kernel, and each thread when it works on a loop.

Who profiles gives the entry point a record of 64-bit words, zero where nothing else is said; else the pointer is null,
and a kernel costs two more branches.

    0          how many places there are that call kernels: sites
    1          how many events each lane has room for: events
    2          how many threads have a lane
    8          for each site, how often it was reached, and its nanoseconds in all
    then       for each lane 8 words, the first of them how many events there were, and behind these the events: site
               (-1 for a thread's part in a loop), begin and end, in nanoseconds of the monotonic clock

Events beyond the room are counted and not kept; what sites come to is always kept. A kernel that follows another one
with nothing between them begins when that one ends: to ask for the time takes as long as a small kernel.
"""

from __future__ import annotations

HEAD = 8
"""Words before the totals of sites, and in front of a lane's events."""

TOTAL = 2
"""Words of a site."""

EVENT = 3
"""Words of an event."""

PART = -1
"""The site of a thread's part in a loop."""

BEGIN = "site_begin"
END = "site_end"

DECLARE_SITES = (f"declare i64 @{BEGIN}(ptr)", f"declare i64 @{END}(ptr, i64, i64)")

_CLOCK = """
declare i32 @clock_gettime(i32, ptr)
define internal i64 @now() {
  %time = alloca { i64, i64 }, align 8
  %r = call i32 @clock_gettime(i32 $CLOCK$, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %at, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}
"""

_CYCLES = """
declare i64 @llvm.readcyclecounter()
define internal i64 @now() {
  %n = call i64 @llvm.readcyclecounter()
  ret i64 %n
}
"""
"""Where there is no such clock: the machine's cycles."""

_NOTE = f"""
define internal void @note(ptr %profile, i64 %lane, i64 %site, i64 %begin, i64 %end) {{
  %sites = load i64, ptr %profile, align 8
  %p1 = getelementptr i64, ptr %profile, i64 1
  %room = load i64, ptr %p1, align 8
  %p2 = getelementptr i64, ptr %profile, i64 2
  %lanes = load i64, ptr %p2, align 8
  %known = icmp ult i64 %lane, %lanes
  br i1 %known, label %count, label %done
count:
  %totals = mul i64 %sites, {TOTAL}
  %events = mul i64 %room, {EVENT}
  %each = add i64 %events, {HEAD}
  %before = mul i64 %each, %lane
  %skip = add i64 %totals, %before
  %at = add i64 %skip, {HEAD}
  %mine = getelementptr i64, ptr %profile, i64 %at
  %n = load i64, ptr %mine, align 8
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %mine, align 8
  %fits = icmp ult i64 %n, %room
  br i1 %fits, label %write, label %done
write:
  %offset = mul i64 %n, {EVENT}
  %place = add i64 %offset, {HEAD}
  %event = getelementptr i64, ptr %mine, i64 %place
  store i64 %site, ptr %event, align 8
  %e1 = getelementptr i64, ptr %event, i64 1
  store i64 %begin, ptr %e1, align 8
  %e2 = getelementptr i64, ptr %event, i64 2
  store i64 %end, ptr %e2, align 8
  br label %done
done:
  ret void
}}
"""

_SITES = f"""
define i64 @{BEGIN}(ptr %profile) {{
  %off = icmp eq ptr %profile, null
  br i1 %off, label %none, label %time
time:
  %t = call i64 @now()
  ret i64 %t
none:
  ret i64 0
}}
define i64 @{END}(ptr %profile, i64 %site, i64 %begin) {{
  %off = icmp eq ptr %profile, null
  br i1 %off, label %none, label %time
time:
  %t = call i64 @now()
  %word = mul i64 %site, {TOTAL}
  %at = add i64 %word, {HEAD}
  %reached = getelementptr i64, ptr %profile, i64 %at
  %n = load i64, ptr %reached, align 8
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %reached, align 8
  %spent = getelementptr i64, ptr %reached, i64 1
  %s = load i64, ptr %spent, align 8
  %took = sub i64 %t, %begin
  %s1 = add i64 %s, %took
  store i64 %s1, ptr %spent, align 8
  call void @note(ptr %profile, i64 0, i64 %site, i64 %begin, i64 %t)
  ret i64 %t
none:
  ret i64 0
}}
"""


def now_text(triple: str) -> str:
    """`now`: the time."""
    if "windows" in triple or triple.startswith("wasm"):
        return _CYCLES
    clock = 6 if "darwin" in triple or "macos" in triple else 1
    return _CLOCK.replace("$CLOCK$", str(clock))


def notes_text(triple: str) -> str:
    """`now` and `note`: the time, and an event in a lane."""
    return now_text(triple) + _NOTE


def sites_text(triple: str, data_layout: str) -> str:
    """What programs call around each kernel, and what that needs, as a module of its own: the same for all programs of
    a target."""
    head = f'target triple = "{triple}"\ntarget datalayout = "{data_layout}"\n'
    return head + notes_text(triple) + _SITES


def words(sites: int, room: int, lanes: int) -> int:
    """How many words a record of this many sites, events a lane and lanes has."""
    return HEAD + TOTAL * sites + lanes * (HEAD + EVENT * room)
