"""Weights of a library as LLVM IR: inside of it, or in a file beside it that a context maps and checks.

A file is the bytes of the weights and nothing else. Its length and two sums of its 64-bit words are in the library: of
the words w0, w1, … the first sum is that of all, the second that of the first sum after each word, both modulo 2^64.
"""

from __future__ import annotations

MAP = """declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)"""
"""What a library without a pool declares, too."""

INSIDE = """
declare ptr @$WEIGHTS$()
"""

TAKE_INSIDE = """\
  %base = call ptr @$WEIGHTS$()
  call void @adopt(ptr %c, ptr %base)"""

TAKE_BESIDE = """\
  store i64 $WEIGHTS_CODE$, ptr %state_at
  %told = call i32 @fail(ptr %c, i64 $NO_WEIGHTS$)"""

DROP_BESIDE = """\
  call void @drop_weights(ptr %c)"""

BESIDE = """
declare i32 @open(ptr, i32, ...)
declare i64 @lseek(i32, i64, i32)
declare i32 @close(i32)
$OWN_MAP$

define internal void @drop_weights(ptr %c) {
entry:
  %map_at = getelementptr i8, ptr %c, i64 $MAP$
  %map = load ptr, ptr %map_at
  %own_at = getelementptr i8, ptr %c, i64 $MAP_OWN$
  %own = load i64, ptr %own_at
  %held = icmp ne i64 %own, 0
  br i1 %held, label %drop, label %end
drop:
  %u = call i32 @munmap(ptr %map, i64 $FILE_BYTES$)
  br label %end
end:
  ret void
}

define internal i32 @loadable(ptr %c, ptr %from) {
entry:
  %none = icmp eq ptr %c, null
  br i1 %none, label %refuse, label %some
refuse:
  ret i32 $ARGUMENT$
some:
  %state_at = getelementptr i8, ptr %c, i64 $STATE$
  %state = load i64, ptr %state_at
  %lacks = icmp eq i64 %state, $MACHINE$
  br i1 %lacks, label %broken, label %look
broken:
  ret i32 $MACHINE$
look:
  %map_at = getelementptr i8, ptr %c, i64 $MAP$
  %map = load ptr, ptr %map_at
  %fresh = icmp eq ptr %map, null
  br i1 %fresh, label %some_path, label %has
has:
  %f0 = call i32 @fail(ptr %c, i64 $HAS_WEIGHTS$)
  ret i32 %f0
some_path:
  %nowhere = icmp eq ptr %from, null
  br i1 %nowhere, label %wrong, label %well
wrong:
  %code = call i32 @fail(ptr %c, i64 $NULL_WEIGHTS$)
  ret i32 %code
well:
  ret i32 0
}

define internal void @take_weights(ptr %c, ptr %map, i64 %own) {
  %map_at = getelementptr i8, ptr %c, i64 $MAP$
  store ptr %map, ptr %map_at
  %own_at = getelementptr i8, ptr %c, i64 $MAP_OWN$
  store i64 %own, ptr %own_at
  call void @adopt(ptr %c, ptr %map)
  %state_at = getelementptr i8, ptr %c, i64 $STATE$
  store i64 0, ptr %state_at
  %message = getelementptr i8, ptr %c, i64 $MESSAGE$
  store i8 0, ptr %message
  ret void
}

define internal i1 @is_whole(ptr %map) {
entry:
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %one ]
  %first = phi i64 [ 0, %entry ], [ %first1, %one ]
  %second = phi i64 [ 0, %entry ], [ %second1, %one ]
  %all = icmp uge i64 %n, $FILE_WORDS$
  br i1 %all, label %compare, label %one
one:
  %at = getelementptr i64, ptr %map, i64 %n
  %word = load i64, ptr %at
  %first1 = add i64 %first, %word
  %second1 = add i64 %second, %first1
  %n1 = add i64 %n, 1
  br label %next
compare:
  %same1 = icmp eq i64 %first, $FIRST_SUM$
  %same2 = icmp eq i64 %second, $SECOND_SUM$
  %same = and i1 %same1, %same2
  ret i1 %same
}

define i32 @$NAME$_load_weights(ptr %c, ptr %path) {
entry:
  %wrong = call i32 @loadable(ptr %c, ptr %path)
  %well = icmp eq i32 %wrong, 0
  br i1 %well, label %reach, label %end
end:
  ret i32 %wrong
reach:
  %fd = call i32 (ptr, i32, ...) @open(ptr %path, i32 $READ_ONLY$)
  %missing = icmp slt i32 %fd, 0
  br i1 %missing, label %unreadable, label %measure
unreadable:
  %f0 = call i32 @fail(ptr %c, i64 $UNREADABLE$)
  ret i32 %f0
measure:
  %size = call i64 @lseek(i32 %fd, i64 0, i32 2)
  %fits = icmp eq i64 %size, $FILE_BYTES$
  br i1 %fits, label %map, label %unfit
unfit:
  %x0 = call i32 @close(i32 %fd)
  call void @tell(ptr %c, i64 %size, i64 $FILE_BYTES$)
  %f1 = call i32 @fail(ptr %c, i64 $OTHER_SIZE$)
  ret i32 %f1
map:
  %map0 = call ptr @mmap(ptr null, i64 $FILE_BYTES$, i32 1, i32 2, i32 %fd, i64 0)
  %x1 = call i32 @close(i32 %fd)
  %address = ptrtoint ptr %map0 to i64
  %refused = icmp eq i64 %address, -1
  br i1 %refused, label %unmapped, label %check
unmapped:
  %f2 = call i32 @fail(ptr %c, i64 $UNREADABLE$)
  ret i32 %f2
check:
  %whole = call i1 @is_whole(ptr %map0)
  br i1 %whole, label %take, label %damaged
damaged:
  %u = call i32 @munmap(ptr %map0, i64 $FILE_BYTES$)
  %f3 = call i32 @fail(ptr %c, i64 $DAMAGED$)
  ret i32 %f3
take:
  call void @take_weights(ptr %c, ptr %map0, i64 1)
  ret i32 0
}

define i32 @$NAME$_share_weights(ptr %c, ptr %from) {
entry:
  %wrong = call i32 @loadable(ptr %c, ptr %from)
  %well = icmp eq i32 %wrong, 0
  br i1 %well, label %look, label %end
end:
  ret i32 %wrong
look:
  %map_at = getelementptr i8, ptr %from, i64 $MAP$
  %map = load ptr, ptr %map_at
  %none = icmp eq ptr %map, null
  %itself = icmp eq ptr %c, %from
  %unfit = or i1 %none, %itself
  br i1 %unfit, label %refuse, label %take
refuse:
  %f0 = call i32 @fail(ptr %c, i64 $NOT_LOADED$)
  ret i32 %f0
take:
  call void @take_weights(ptr %c, ptr %map, i64 0)
  ret i32 0
}
"""
