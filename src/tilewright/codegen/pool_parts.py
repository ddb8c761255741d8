"""The text of how a thread takes part in a loop, behind that of pool_text.py.

    @run(from, to)    runs these pieces
    @part(me)         runs a quarter of what is left of its own pieces, from the front, until none is left; then a
                      quarter of another thread's, from the back, until nobody has any; notes when it began and ended
                      where somebody asked

Pieces change hands by one compare-and-swap of a range, so that each is run once.
"""

from __future__ import annotations

PARTS = """
define internal void @run(i64 %from, i64 %to) {
  %share = load ptr, ptr @job
  %env = load ptr, ptr getelementptr (%job, ptr @job, i64 0, i32 1)
  %begin = load i64, ptr getelementptr (%job, ptr @job, i64 0, i32 2)
  %count = load i64, ptr getelementptr (%job, ptr @job, i64 0, i32 3)
  %pieces = load i64, ptr getelementptr (%job, ptr @job, i64 0, i32 5)
  %a = mul i64 %count, %from
  %b = udiv i64 %a, %pieces
  %first = add i64 %begin, %b
  %c = mul i64 %count, %to
  %d = udiv i64 %c, %pieces
  %last = add i64 %begin, %d
  call void %share(ptr %env, i64 %first, i64 %last)
  ret void
}

define internal void @part(i64 %me) {
entry:
  %since = alloca i64, align 8
  %parts = load i64, ptr getelementptr (%job, ptr @job, i64 0, i32 4)
  %mine = getelementptr [$SLOTS$ x %slot], ptr @slots, i64 0, i64 %me, i32 6
  %profile = load ptr, ptr getelementptr (%job, ptr @job, i64 0, i32 6)
  %unasked = icmp eq ptr %profile, null
  br i1 %unasked, label %own, label %timed
timed:
  %began = call i64 @now()
  store i64 %began, ptr %since
  br label %own
own:
  %r = load atomic i64, ptr %mine acquire, align 8
  %low = and i64 %r, 4294967295
  %high = lshr i64 %r, 32
  %some = icmp ult i64 %low, %high
  br i1 %some, label %take, label %look
take:
  %left = sub i64 %high, %low
  %more = add i64 %left, 3
  %size = lshr i64 %more, 2
  %less = add i64 %r, %size
  %swap = cmpxchg ptr %mine, i64 %r, i64 %less acq_rel monotonic, align 8
  %got = extractvalue { i64, i1 } %swap, 1
  br i1 %got, label %taken, label %own
taken:
  %next = add i64 %low, %size
  call void @run(i64 %low, i64 %next)
  br label %own
look:
  br label %other
other:
  %k = phi i64 [ 1, %look ], [ %k1, %empty ], [ %k, %steal ]
  %all = icmp uge i64 %k, %parts
  br i1 %all, label %end, label %ask
ask:
  %sum = add i64 %me, %k
  %which = urem i64 %sum, %parts
  %theirs = getelementptr [$SLOTS$ x %slot], ptr @slots, i64 0, i64 %which, i32 6
  %r2 = load atomic i64, ptr %theirs acquire, align 8
  %low2 = and i64 %r2, 4294967295
  %high2 = lshr i64 %r2, 32
  %some2 = icmp ult i64 %low2, %high2
  br i1 %some2, label %steal, label %empty
empty:
  %k1 = add i64 %k, 1
  br label %other
steal:
  %left2 = sub i64 %high2, %low2
  %more2 = add i64 %left2, 3
  %size2 = lshr i64 %more2, 2
  %shift = shl i64 %size2, 32
  %less2 = sub i64 %r2, %shift
  %swap2 = cmpxchg ptr %theirs, i64 %r2, i64 %less2 acq_rel monotonic, align 8
  %got2 = extractvalue { i64, i1 } %swap2, 1
  br i1 %got2, label %stolen, label %other
stolen:
  %from = sub i64 %high2, %size2
  call void @run(i64 %from, i64 %high2)
  br label %look
end:
  br i1 %unasked, label %leave, label %tell
tell:
  %ended = call i64 @now()
  %from0 = load i64, ptr %since
  call void @note(ptr %profile, i64 %me, i64 -1, i64 %from0, i64 %ended)
  br label %leave
leave:
  ret void
}
"""
