"""The text of the thread pool, in parts; `$NAME$` stands for a number or an instruction that pool.py puts in."""

from __future__ import annotations

GLOBALS = """
%slot = type { [8 x i64], [8 x i64], [7 x i64], i64, [256 x i8], [256 x i8], [8 x i64], [256 x i8] }
%job = type { ptr, ptr, i64, i64, i64, i64, ptr, i64 }
@slots = internal global [$SLOTS$ x %slot] zeroinitializer, align 64
@busy = internal global i64 0, align 64
@active = internal global i64 0, align 64
@callers = internal global i64 0, align 64
@cores = internal global i64 0
@patience = internal global i64 0
@job = internal global %job zeroinitializer, align 64
@number = internal global i64 0
@borrowed = internal global i64 0
@started = internal global i64 0
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @sched_yield()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.usub.sat.i64(i64, i64)
"""
"""A slot: state, done and asleep on cache lines of their own, the thread, its mutex, its condition variable, its range.
A job: the share, its environment, the first iteration, how many there are, parts, pieces, the record of a profile, the
caller's control word."""

WORKER = """
define internal void @wait(i64 %n) {
  $PAUSE$
  %late = icmp ugt i64 %n, $BEFORE_YIELD$
  %low = and i64 %n, 255
  %turn = icmp eq i64 %low, 0
  %yields = and i1 %late, %turn
  br i1 %yields, label %yield, label %end
yield:
  %y = call i32 @sched_yield()
  br label %end
end:
  ret void
}

define internal i64 @spare(i64 %wanted) {
  %calls = load atomic i64, ptr @callers monotonic, align 8
  %cores = load i64, ptr @cores
  %one = icmp ule i64 %calls, 1
  %unknown = icmp eq i64 %cores, 0
  %all = or i1 %one, %unknown
  %free = call i64 @llvm.usub.sat.i64(i64 %cores, i64 %calls)
  %most = call i64 @llvm.umin.i64(i64 %free, i64 %wanted)
  %spare = select i1 %all, i64 %wanted, i64 %most
  ret i64 %spare
}

define internal ptr @worker(ptr %id) {
entry:
  %me = ptrtoint ptr %id to i64
  %state = getelementptr [$SLOTS$ x %slot], ptr @slots, i64 0, i64 %me
  %done = getelementptr %slot, ptr %state, i64 0, i32 1
  %asleep = getelementptr %slot, ptr %state, i64 0, i32 2
  %mutex = getelementptr %slot, ptr %state, i64 0, i32 4
  %awake = getelementptr %slot, ptr %state, i64 0, i32 5
  br label %spin
spin:
  %n = phi i64 [ 0, %entry ], [ %n1, %waits ], [ 0, %woken ], [ 0, %ran ], [ 0, %found ]
  %free = phi i64 [ 0, %entry ], [ %free1, %waits ], [ 0, %woken ], [ 0, %ran ], [ 0, %found ]
  %s = load atomic i64, ptr %state acquire, align 8
  %odd = trunc i64 %s to i1
  br i1 %odd, label %nothing, label %posted
nothing:
  %calls = load atomic i64, ptr @active monotonic, align 8
  %alone = icmp eq i64 %calls, 0
  %spare = call i64 @spare(i64 1)
  %crowded = icmp eq i64 %spare, 0
  %step = select i1 %crowded, i64 $CROWDED$, i64 1
  %more = add i64 %free, %step
  %idle = or i1 %alone, %crowded
  %free1 = select i1 %idle, i64 %more, i64 0
  %n1 = add i64 %n, 1
  %left = icmp ugt i64 %free1, $AFTER_CALL$
  %long = icmp ugt i64 %n1, $IN_CALL$
  %tired = or i1 %left, %long
  br i1 %tired, label %sleep, label %waits
waits:
  call void @wait(i64 %n1)
  br label %spin
sleep:
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 1, ptr %asleep seq_cst, align 8
  %again = load atomic i64, ptr %state seq_cst, align 8
  %still = trunc i64 %again to i1
  br i1 %still, label %look, label %woken
look:
  %sleeping = load atomic i64, ptr %asleep monotonic, align 8
  %sleeps = icmp ne i64 %sleeping, 0
  br i1 %sleeps, label %rest, label %woken
rest:
  %w = call i32 @pthread_cond_wait(ptr %awake, ptr %mutex)
  br label %look
woken:
  store atomic i64 0, ptr %asleep monotonic, align 8
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %spin
posted:
  %stops = icmp eq i64 %s, -2
  br i1 %stops, label %end, label %found
found:
  %taken = or i64 %s, 1
  %swap = cmpxchg ptr %state, i64 %s, i64 %taken acq_rel monotonic, align 8
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %ran, label %spin
ran:
$PUT$
  call void @part(i64 %me)
  store atomic i64 %s, ptr %done release, align 8
  br label %spin
end:
  ret ptr null
}
"""

CALLER = """
define internal void @post(ptr %state, i64 %what, i1 %wakes) {
  store atomic i64 %what, ptr %state seq_cst, align 8
  %asleep = getelementptr %slot, ptr %state, i64 0, i32 2
  %a = load atomic i64, ptr %asleep seq_cst, align 8
  %sleeping = icmp ne i64 %a, 0
  %calls = and i1 %sleeping, %wakes
  br i1 %calls, label %wake, label %end
wake:
  %mutex = getelementptr %slot, ptr %state, i64 0, i32 4
  %awake = getelementptr %slot, ptr %state, i64 0, i32 5
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 0, ptr %asleep monotonic, align 8
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  %b = call i32 @pthread_cond_signal(ptr %awake)
  br label %end
end:
  ret void
}

define internal i64 @enlist(i64 %wanted, ptr %team) {
entry:
  %have = load i64, ptr @started
  %few = icmp ult i64 %have, %wanted
  br i1 %few, label %hire, label %hired
hire:
  %now = call i64 @start(i64 %have, i64 %wanted)
  br label %hired
hired:
  %workers = phi i64 [ %have, %entry ], [ %now, %hire ]
  %flag = getelementptr i64, ptr %team, i64 1
  %forked = load i64, ptr %flag
  %first = icmp ne i64 %forked, 2
  br i1 %first, label %enter, label %end
enter:
  store i64 2, ptr %flag
  %calls = atomicrmw add ptr @active, i64 1 monotonic
  br label %end
end:
  %enough = call i64 @llvm.umin.i64(i64 %workers, i64 %wanted)
  ret i64 %enough
}

define void @tilewright_parallel(ptr %share, ptr %env, i64 %begin, i64 %end, i64 %grain, ptr %team) {
entry:
  %count = sub i64 %end, %begin
  %some = icmp sgt i64 %count, %grain
  %known = icmp ne ptr %team, null
  %worth = and i1 %some, %known
  br i1 %worth, label %consider, label %alone
consider:
  %others.at = getelementptr i64, ptr %team, i64 4
  %theirs = load ptr, ptr %others.at
  %own_threads = icmp eq ptr %theirs, null
  br i1 %own_threads, label %count_in, label %whose
whose:
  %for_all = load ptr, ptr %theirs
  %are_lent = icmp eq ptr %for_all, null
  br i1 %are_lent, label %lent, label %handed
lent:
  %lender.at = getelementptr ptr, ptr %theirs, i64 1
  %lends = load ptr, ptr %lender.at
  br label %count_in
handed:
  call void @hand_out(ptr %theirs, ptr %share, ptr %env, i64 %begin, i64 %count, i64 %grain, ptr %team)
  ret void
count_in:
  %lender = phi ptr [ null, %consider ], [ %lends, %lent ]
  %flag = getelementptr i64, ptr %team, i64 1
  %forked = load i64, ptr %flag
  %first = icmp eq i64 %forked, 0
  br i1 %first, label %enter, label %entered
enter:
  store i64 1, ptr %flag
  %callers = atomicrmw add ptr @callers, i64 1 monotonic
  br label %entered
entered:
  %most = udiv i64 %count, %grain
  %threads = load i64, ptr %team
  %few = call i64 @llvm.umin.i64(i64 %most, i64 %threads)
  %wanted = call i64 @llvm.umin.i64(i64 %few, i64 $SLOTS$)
  %helpers = call i64 @llvm.usub.sat.i64(i64 %wanted, i64 1)
  %others = call i64 @spare(i64 %helpers)
  %several = icmp ugt i64 %others, 0
  br i1 %several, label %ask, label %refused
refused:
  %crowded = icmp ne i64 %helpers, 0
  br i1 %crowded, label %yield, label %alone
yield:
  store atomic i64 $PATIENCE$, ptr @patience monotonic, align 8
  br label %alone
ask:
  %swap = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic, align 8
  %got = extractvalue { i64, i1 } %swap, 1
  br i1 %got, label %form, label %alone
form:
  %borrows = icmp ne ptr %lender, null
  br i1 %borrows, label %formed, label %enlist
enlist:
  %enlisted = call i64 @enlist(i64 %others, ptr %team)
  br label %formed
formed:
  %workers = phi i64 [ %others, %form ], [ %enlisted, %enlist ]
  %parts = add i64 %workers, 1
  %grains = getelementptr i64, ptr %team, i64 2
  %earlier = load i64, ptr %grains
  %work = add i64 %earlier, %most
  store i64 %work, ptr %grains
  %much = icmp uge i64 %work, $WAKE$
  %unknown = icmp eq i64 %grain, 1
  %worth_it = or i1 %much, %unknown
  %patience = load atomic i64, ptr @patience monotonic, align 8
  %rest = call i64 @llvm.usub.sat.i64(i64 %patience, i64 %most)
  store atomic i64 %rest, ptr @patience monotonic, align 8
  %calm = icmp eq i64 %rest, 0
  %wakes = and i1 %worth_it, %calm
  br i1 %borrows, label %are_awake, label %count_loop
are_awake:
  %since = load i64, ptr @borrowed
  %time = call i64 @now()
  %ago = sub i64 %time, %since
  %recent = icmp ult i64 %ago, $LENT_AWAKE$
  %lends_now = or i1 %wakes, %recent
  br i1 %lends_now, label %count_loop, label %keep_alone
keep_alone:
  store atomic i64 0, ptr @busy release, align 8
  br label %alone
count_loop:
  %last = load i64, ptr @number
  %g = add i64 %last, 2
  store i64 %g, ptr @number
  store ptr %share, ptr @job
  store ptr %env, ptr getelementptr (%job, ptr @job, i64 0, i32 1)
  store i64 %begin, ptr getelementptr (%job, ptr @job, i64 0, i32 2)
  store i64 %count, ptr getelementptr (%job, ptr @job, i64 0, i32 3)
  store i64 %parts, ptr getelementptr (%job, ptr @job, i64 0, i32 4)
  %pieces = call i64 @llvm.umin.i64(i64 %most, i64 $PIECES$)
  store i64 %pieces, ptr getelementptr (%job, ptr @job, i64 0, i32 5)
  %asked = getelementptr i64, ptr %team, i64 3
  %profile = load ptr, ptr %asked
  store ptr %profile, ptr getelementptr (%job, ptr @job, i64 0, i32 6)
$TAKE$
  br label %dealing
dealing:
  %m = phi i64 [ 0, %count_loop ], [ %m1, %deal ]
  %before = phi i64 [ 0, %count_loop ], [ %after, %deal ]
  %dealt = icmp ugt i64 %m, %workers
  br i1 %dealt, label %begin_all, label %deal
deal:
  %m1 = add i64 %m, 1
  %upto = mul i64 %pieces, %m1
  %after = udiv i64 %upto, %parts
  %top = shl i64 %after, 32
  %range = or i64 %top, %before
  %hand = getelementptr [$SLOTS$ x %slot], ptr @slots, i64 0, i64 %m, i32 6
  store atomic i64 %range, ptr %hand release, align 8
  br label %dealing
begin_all:
  br i1 %borrows, label %borrow, label %posting
borrow:
  %parallel = load ptr, ptr %lender
  %size = trunc i64 %parts to i32
  call void %parallel(ptr @member, ptr %lender, i32 %size, i32 0)
  %ended = call i64 @now()
  store i64 %ended, ptr @borrowed
  br label %free
posting:
  %k = phi i64 [ 1, %begin_all ], [ %k1, %post ]
  %all = icmp ugt i64 %k, %workers
  br i1 %all, label %own, label %post
post:
  %slot = getelementptr [$SLOTS$ x %slot], ptr @slots, i64 0, i64 %k
  call void @post(ptr %slot, i64 %g, i1 %wakes)
  %k1 = add i64 %k, 1
  br label %posting
own:
  call void @part(i64 0)
  %g1 = or i64 %g, 1
  br label %joining
joining:
  %j = phi i64 [ %workers, %own ], [ %j1, %join ], [ %j1, %waited ]
  %joined = icmp eq i64 %j, 0
  br i1 %joined, label %free, label %join
join:
  %state = getelementptr [$SLOTS$ x %slot], ptr @slots, i64 0, i64 %j
  %j1 = sub i64 %j, 1
  %back = cmpxchg ptr %state, i64 %g, i64 %g1 acq_rel monotonic, align 8
  %idle = extractvalue { i64, i1 } %back, 1
  br i1 %idle, label %joining, label %begun
begun:
  %done = getelementptr %slot, ptr %state, i64 0, i32 1
  br label %waiting
waiting:
  %n = phi i64 [ 0, %begun ], [ %n1, %waits ]
  %d = load atomic i64, ptr %done acquire, align 8
  %ready = icmp eq i64 %d, %g
  br i1 %ready, label %waited, label %waits
waits:
  %n1 = add i64 %n, 1
  call void @wait(i64 %n1)
  br label %waiting
waited:
  br label %joining
free:
  store atomic i64 0, ptr @busy release, align 8
  ret void
alone:
  call void %share(ptr %env, i64 %begin, i64 %end)
  ret void
}

define void @tilewright_leave(ptr %team) {
  %flag = getelementptr i64, ptr %team, i64 1
  %forked = load i64, ptr %flag
  %any = icmp ne i64 %forked, 0
  br i1 %any, label %leave, label %end
leave:
  %callers = atomicrmw sub ptr @callers, i64 1 monotonic
  %had = lshr i64 %forked, 1
  %calls = atomicrmw sub ptr @active, i64 %had monotonic
  br label %end
end:
  ret void
}
"""

LIFE = """
define internal i64 @start(i64 %have, i64 %wanted) {
entry:
  %attributes = alloca [512 x i8], align 64
  %blocked = alloca [256 x i8], align 64
  %before = alloca [256 x i8], align 64
  %a = call i32 @pthread_attr_init(ptr %attributes)
  %b = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 8388608)
  %f = call i32 @sigfillset(ptr %blocked)
  %d0 = call i32 @sigdelset(ptr %blocked, i32 4)
  %d1 = call i32 @sigdelset(ptr %blocked, i32 8)
  %d2 = call i32 @sigdelset(ptr %blocked, i32 11)
  %d3 = call i32 @sigdelset(ptr %blocked, i32 $BUS$)
  %m = call i32 @pthread_sigmask(i32 $SETMASK$, ptr %blocked, ptr %before)
  br label %one
one:
  %n = phi i64 [ %have, %entry ], [ %n1, %made ]
  %enough = icmp uge i64 %n, %wanted
  br i1 %enough, label %end, label %make
make:
  %n1 = add i64 %n, 1
  %state = getelementptr [$SLOTS$ x %slot], ptr @slots, i64 0, i64 %n1
  call void @llvm.memset.p0.i64(ptr align 64 %state, i8 0, i64 1024, i1 false)
  store i64 1, ptr %state
  %mutex = getelementptr %slot, ptr %state, i64 0, i32 4
  %awake = getelementptr %slot, ptr %state, i64 0, i32 5
  %thread = getelementptr %slot, ptr %state, i64 0, i32 3
  %i = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr %awake, ptr null)
  %id = inttoptr i64 %n1 to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr %id)
  %well = icmp eq i32 %failed, 0
  br i1 %well, label %made, label %end
made:
  br label %one
end:
  %u = call i32 @pthread_sigmask(i32 $SETMASK$, ptr %before, ptr null)
  %x = call i32 @pthread_attr_destroy(ptr %attributes)
  store i64 %n, ptr @started
  ret i64 %n
}

define void @tilewright_stop() {
entry:
  br label %try
try:
  %n = phi i64 [ 0, %entry ], [ %n1, %waits ]
  %swap = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic, align 8
  %got = extractvalue { i64, i1 } %swap, 1
  br i1 %got, label %close, label %waits
waits:
  %n1 = add i64 %n, 1
  call void @wait(i64 %n1)
  br label %try
close:
  %workers = load i64, ptr @started
  store i64 0, ptr @started
  br label %next
next:
  %k = phi i64 [ %workers, %close ], [ %k1, %stop ]
  %none = icmp eq i64 %k, 0
  br i1 %none, label %end, label %stop
stop:
  %state = getelementptr [$SLOTS$ x %slot], ptr @slots, i64 0, i64 %k
  call void @post(ptr %state, i64 -2, i1 true)
  %place = getelementptr %slot, ptr %state, i64 0, i32 3
  %thread = load i64, ptr %place
  %j = call i32 @pthread_join(i64 %thread, ptr null)
  %k1 = sub i64 %k, 1
  br label %next
end:
  ret void
}

define void @tilewright_reset(i64 %cores) {
  store i64 %cores, ptr @cores
  store i64 0, ptr @started
  store i64 0, ptr @active
  store i64 0, ptr @callers
  store i64 0, ptr @patience
  store atomic i64 0, ptr @busy release, align 8
  ret void
}
"""
