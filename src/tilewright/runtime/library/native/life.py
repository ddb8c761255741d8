"""A library from its loading to its unloading, as LLVM IR: its workers, here and in processes that `fork` makes."""

from __future__ import annotations

LIFE = """
@page = internal global ptr null
@owner = internal global i64 0
declare i32 @getpid()
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_yield()
declare i64 @llvm.ctpop.i64(i64)

define internal i64 @cores() {
entry:
  %mask = alloca [16 x i64], align 8
  %refused = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %told = icmp eq i32 %refused, 0
  br i1 %told, label %next, label %ask
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %one ]
  %count = phi i64 [ 0, %entry ], [ %more, %one ]
  %all = icmp uge i64 %n, 16
  br i1 %all, label %end, label %one
one:
  %at = getelementptr i64, ptr %mask, i64 %n
  %word = load i64, ptr %at
  %bits = call i64 @llvm.ctpop.i64(i64 %word)
  %more = add i64 %count, %bits
  %n1 = add i64 %n, 1
  br label %next
ask:
  %online = call i64 @sysconf(i32 $ONLINE$)
  ret i64 %online
end:
  ret i64 %count
}

define void @on_load() {
entry:
  call void @choose()
  %cores = call i64 @cores()
  call void @$RESET$(i64 %cores)
  %pid = call i32 @getpid()
  %owner = zext i32 %pid to i64
  store i64 %owner, ptr @owner
  %size = call i64 @sysconf(i32 $PAGE_BYTES$)
  %page = call ptr @mmap(ptr null, i64 %size, i32 3, i32 $PRIVATE_MEMORY$, i32 -1, i64 0)
  %address = ptrtoint ptr %page to i64
  %none = icmp eq i64 %address, -1
  br i1 %none, label %end, label %mark
mark:
  %refused = call i32 @madvise(ptr %page, i64 %size, i32 $WIPE_ON_FORK$)
  %well = icmp eq i32 %refused, 0
  br i1 %well, label %keep, label %drop
keep:
  store i64 2, ptr %page
  store ptr %page, ptr @page
  ret void
drop:
  %u = call i32 @munmap(ptr %page, i64 %size)
  br label %end
end:
  ret void
}

define void @on_unload() {
entry:
  call void @awake()
  call void @$STOP$()
  %page = load ptr, ptr @page
  %none = icmp eq ptr %page, null
  br i1 %none, label %end, label %drop
drop:
  %size = call i64 @sysconf(i32 $PAGE_BYTES$)
  %u = call i32 @munmap(ptr %page, i64 %size)
  br label %end
end:
  ret void
}

define internal void @awake() {
entry:
  %page = load ptr, ptr @page
  %none = icmp eq ptr %page, null
  br i1 %none, label %by_number, label %by_page
by_number:
  %pid = call i32 @getpid()
  %now = zext i32 %pid to i64
  %owner = load i64, ptr @owner
  %same = icmp eq i64 %owner, %now
  br i1 %same, label %end, label %another
another:
  store i64 %now, ptr @owner
  br label %reset
by_page:
  %state = load atomic i64, ptr %page acquire, align 8
  %ready = icmp eq i64 %state, 2
  br i1 %ready, label %end, label %wiped
wiped:
  %swap = cmpxchg ptr %page, i64 0, i64 1 acq_rel acquire, align 8
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %reset, label %wait
wait:
  %y = call i32 @sched_yield()
  br label %by_page
reset:
  %cores = call i64 @cores()
  call void @$RESET$(i64 %cores)
  br i1 %none, label %end, label %done
done:
  store atomic i64 2, ptr %page release, align 8
  br label %end
end:
  ret void
}
"""
"""Workers of the pool end with the library. A child process that `fork` makes has none: a page that it finds wiped says
so, or, on systems that wipe none, the number of the process."""

LIFE_ALONE = """
define void @on_load() {
  call void @choose()
  ret void
}

define void @on_unload() {
  ret void
}

define internal void @awake() {
  ret void
}
"""
"""Of a library without a pool."""
