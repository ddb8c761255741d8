"""Which program of a library runs on this machine, as LLVM IR: asked once, when the library is loaded.

    @choose()    puts the number of the best program into @chosen, or -1, and into @lacking what the least of them lacks

Programs come best first. `@has(need)` says whether the machine has what a row asks for (machines.py).
"""

from __future__ import annotations

X86 = """
@answers = internal global [4 x i32] zeroinitializer
@asked = internal global i64 0
declare void @$CPUID$(i32, i32, ptr)
declare i32 @$XGETBV$()

define internal i32 @answer(i32 %leaf, i32 %subleaf, i64 %register) {
entry:
  %high = zext i32 %leaf to i64
  %shifted = shl i64 %high, 32
  %low = zext i32 %subleaf to i64
  %both = or i64 %shifted, %low
  %key = add i64 %both, 1
  %before = load i64, ptr @asked
  %same = icmp eq i64 %before, %key
  br i1 %same, label %read, label %ask
ask:
  call void @$CPUID$(i32 %leaf, i32 %subleaf, ptr @answers)
  store i64 %key, ptr @asked
  br label %read
read:
  %at = getelementptr i32, ptr @answers, i64 %register
  %word = load i32, ptr %at
  ret i32 %word
}

define internal i1 @has(ptr %need) {
entry:
  %leaf = load i32, ptr %need
  %subleaf.at = getelementptr %need, ptr %need, i64 0, i32 1
  %subleaf = load i32, ptr %subleaf.at
  %saved.at = getelementptr %need, ptr %need, i64 0, i32 4
  %saved = load i32, ptr %saved.at
  %least.at = getelementptr %need, ptr %need, i64 0, i32 5
  %least = load i32, ptr %least.at
  %family = and i32 %leaf, -2147483648
  %top = call i32 @answer(i32 %family, i32 0, i64 0)
  %known = icmp ule i32 %leaf, %top
  br i1 %known, label %deeper, label %no
deeper:
  %plain = icmp eq i32 %subleaf, 0
  %is_seven = icmp eq i32 %leaf, 7
  %other = xor i1 %is_seven, true
  %exists = or i1 %plain, %other
  br i1 %exists, label %state, label %sub
sub:
  %most = call i32 @answer(i32 7, i32 0, i64 0)
  %there = icmp ule i32 %subleaf, %most
  br i1 %there, label %state, label %no
state:
  %free = icmp eq i32 %saved, 0
  br i1 %free, label %look, label %saves
saves:
  %flags = call i32 @answer(i32 1, i32 0, i64 2)
  %own = lshr i32 %flags, 27
  %tells = trunc i32 %own to i1
  br i1 %tells, label %registers, label %no
registers:
  %kept = call i32 @$XGETBV$()
  %both = and i32 %kept, %saved
  %enough = icmp eq i32 %both, %saved
  br i1 %enough, label %kept_for_us, label %no
kept_for_us:
  %allowed = call i1 @is_allowed(i32 %saved)
  br i1 %allowed, label %look, label %no
look:
  %register.at = getelementptr %need, ptr %need, i64 0, i32 2
  %register = load i32, ptr %register.at
  %which = zext i32 %register to i64
  %word = call i32 @answer(i32 %leaf, i32 %subleaf, i64 %which)
  %is_bit = icmp eq i32 %least, 0
  br i1 %is_bit, label %bit, label %number
bit:
  %bit.at = getelementptr %need, ptr %need, i64 0, i32 3
  %n = load i32, ptr %bit.at
  %moved = lshr i32 %word, %n
  %set = trunc i32 %moved to i1
  ret i1 %set
number:
  %byte = and i32 %word, 255
  %large = icmp uge i32 %byte, %least
  ret i1 %large
no:
  ret i1 false
}
"""

WITHOUT_TILES = """
define internal i1 @is_allowed(i32 %saved) {
  ret i1 true
}
"""
"""The system saves all registers but tiles for anybody."""

WITH_TILES = """
declare i64 @syscall(i64, ...)
define internal i1 @is_allowed(i32 %saved) {
entry:
  %tiles = and i32 %saved, $TILES$
  %plain = icmp eq i32 %tiles, 0
  br i1 %plain, label %yes, label %ask
ask:
  %refused = call i64 (i64, ...) @syscall(i64 $TILES_CALL$, i64 $TILES_REQUEST$, i64 $TILES_FEATURE$)
  %given = icmp eq i64 %refused, 0
  ret i1 %given
yes:
  ret i1 true
}
"""
"""Tiles are for processes that ask for them: see target/cpuid.py."""

AUXILIARY = """
declare i64 @getauxval(i64)

define internal i1 @has(ptr %need) {
entry:
  %least.at = getelementptr %need, ptr %need, i64 0, i32 5
  %least = load i32, ptr %least.at
  %is_bit = icmp eq i32 %least, 0
  br i1 %is_bit, label %bit, label %length
length:
  %bytes = call i64 @vector_bytes()
  %wanted = zext i32 %least to i64
  %long = icmp uge i64 %bytes, %wanted
  %most.at = getelementptr %need, ptr %need, i64 0, i32 4
  %most = load i32, ptr %most.at
  %bound = zext i32 %most to i64
  %short = icmp ule i64 %bytes, %bound
  %fits = and i1 %long, %short
  ret i1 %fits
bit:
  %number = load i32, ptr %need
  %which = zext i32 %number to i64
  %word = call i64 @getauxval(i64 %which)
  %bit.at = getelementptr %need, ptr %need, i64 0, i32 3
  %place = load i32, ptr %bit.at
  %n = zext i32 %place to i64
  %moved = lshr i64 %word, %n
  %set = trunc i64 %moved to i1
  ret i1 %set
}
"""

CHOOSE = """
%need = type { i32, i32, i32, i32, i32, i32 }

define internal void @choose() {
entry:
  br label %program
program:
  %p = phi i64 [ 0, %entry ], [ %p1, %fails ]
  %all = icmp uge i64 %p, $PROGRAMS$
  br i1 %all, label %none, label %begin
begin:
  %from.at = getelementptr %program, ptr @programs, i64 %p, i32 7
  %from = load i64, ptr %from.at
  %to.at = getelementptr %program, ptr @programs, i64 %p, i32 8
  %to = load i64, ptr %to.at
  br label %next
next:
  %n = phi i64 [ %from, %begin ], [ %n1, %one ]
  %met = icmp uge i64 %n, %to
  br i1 %met, label %found, label %one
one:
  %need = getelementptr %need, ptr @needs, i64 %n
  %has = call i1 @has(ptr %need)
  %n1 = add i64 %n, 1
  br i1 %has, label %next, label %fails
fails:
  store i64 %n, ptr @lacking
  %p1 = add i64 %p, 1
  br label %program
found:
  store i64 %p, ptr @chosen
  ret void
none:
  store i64 -1, ptr @chosen
  ret void
}
"""
