"""The text of loops whose threads are the caller's.

A function that the caller gives runs their pieces:

    for_all(state, count, task, work)      calls task(work, n) for each n of 0..count, on any threads, and returns then

The caller's function and its state are the record that a team has for it. A loop is cut into pieces as the pool cuts
it, four for each thread that the call may use, so that threads that are done early find more. A piece computes with the
control word of the thread that runs the program, and puts back that of its own.

Or, where the record has no such function, its state is what lends threads, or null where nothing does any longer:

    parallel(member, state, threads, 0)    calls member(state) on so many threads, and returns when all have
    number()                               of the thread among these: 0 for the caller's

These are OpenMP's, as compilers call them. The pool deals the pieces of a loop and keeps one caller at a time, as it
does for its workers, and each thread takes part by its number; where fewer threads come, they take what is left.
"""

from __future__ import annotations

OTHERS = """
define internal void @task(ptr %work, i64 %n) {
entry:
  %own = alloca i64, align 8
  %share = load ptr, ptr %work
  %env.at = getelementptr %job, ptr %work, i64 0, i32 1
  %env = load ptr, ptr %env.at
  %begin.at = getelementptr %job, ptr %work, i64 0, i32 2
  %begin = load i64, ptr %begin.at
  %count.at = getelementptr %job, ptr %work, i64 0, i32 3
  %count = load i64, ptr %count.at
  %pieces.at = getelementptr %job, ptr %work, i64 0, i32 5
  %pieces = load i64, ptr %pieces.at
  %word = getelementptr %job, ptr %work, i64 0, i32 7
  %a = mul i64 %count, %n
  %b = udiv i64 %a, %pieces
  %first = add i64 %begin, %b
  %n1 = add i64 %n, 1
  %c = mul i64 %count, %n1
  %d = udiv i64 %c, %pieces
  %last = add i64 %begin, %d
$TAKE_OWN$
$PUT_WORK$
  call void %share(ptr %env, i64 %first, i64 %last)
$PUT_OWN$
  ret void
}

define internal void @hand_out(ptr %others, ptr %share, ptr %env, i64 %begin, i64 %count, i64 %grain, ptr %team) {
entry:
  %work = alloca %job, align 64
  %most = udiv i64 %count, %grain
  %threads = load i64, ptr %team
  %quarters = shl i64 %threads, 2
  %few = call i64 @llvm.umin.i64(i64 %most, i64 %quarters)
  %pieces = call i64 @llvm.umin.i64(i64 %few, i64 $PIECES$)
  store ptr %share, ptr %work
  %env.at = getelementptr %job, ptr %work, i64 0, i32 1
  store ptr %env, ptr %env.at
  %begin.at = getelementptr %job, ptr %work, i64 0, i32 2
  store i64 %begin, ptr %begin.at
  %count.at = getelementptr %job, ptr %work, i64 0, i32 3
  store i64 %count, ptr %count.at
  %pieces.at = getelementptr %job, ptr %work, i64 0, i32 5
  store i64 %pieces, ptr %pieces.at
  %word = getelementptr %job, ptr %work, i64 0, i32 7
$TAKE_WORK$
  %for_all = load ptr, ptr %others
  %state.at = getelementptr ptr, ptr %others, i64 1
  %state = load ptr, ptr %state.at
  call void %for_all(ptr %state, i64 %pieces, ptr @task, ptr %work)
  ret void
}

define internal void @member(ptr %lender) {
entry:
  %own = alloca i64, align 8
  %which.at = getelementptr ptr, ptr %lender, i64 1
  %which = load ptr, ptr %which.at
  %number = call i32 %which()
  %me = zext i32 %number to i64
  %word = getelementptr %job, ptr @job, i64 0, i32 7
$TAKE_OWN$
$PUT_WORK$
  call void @part(i64 %me)
$PUT_OWN$
  ret void
}
"""
