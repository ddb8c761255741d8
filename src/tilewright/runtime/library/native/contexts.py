"""Contexts of a library as LLVM IR: opened, closed, and the text of their last error.

A context is opened, called by one thread at a time, and closed. Errors are rows of a table: `@fail` writes the text of
one, with the values of the fault record, and returns its code.
"""

from __future__ import annotations

HEAD = """
%row = type { i32, i32, i32 }
%port = type { i32, i32, i32, i32, i32, i32 }
%program = type { i64, i64, i64, i64, i64, i64, i64, i64, i64 }
@chosen = internal global i64 0
@lacking = internal global i64 0
declare ptr @calloc(i64, i64)
declare void @free(ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare i32 @snprintf(ptr, i64, ptr, ...)
declare i32 @strcmp(ptr, ptr)
declare i64 @sysconf(i32)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
@integer = internal constant [5 x i8] c"%lld\\00"
@real = internal constant [6 x i8] c"%.17g\\00"
"""

ERRORS = """
define internal i32 @fail(ptr %c, i64 %number) {
entry:
  %row = getelementptr %row, ptr @rows, i64 %number
  %place = load i32, ptr %row
  %from = zext i32 %place to i64
  %floats_at = getelementptr %row, ptr %row, i64 0, i32 1
  %floats = load i32, ptr %floats_at
  %code_at = getelementptr %row, ptr %row, i64 0, i32 2
  %code = load i32, ptr %code_at
  %message = getelementptr i8, ptr %c, i64 $MESSAGE$
  br label %next
next:
  %n = phi i64 [ %from, %entry ], [ %n1, %copied ], [ %n2, %told ]
  %at = phi i64 [ 0, %entry ], [ %at1, %copied ], [ %at2, %told ]
  %text = getelementptr i8, ptr @texts, i64 %n
  %letter = load i8, ptr %text
  %to = getelementptr i8, ptr %message, i64 %at
  %ended = icmp eq i8 %letter, 0
  %full = icmp uge i64 %at, $LAST$
  %stops = or i1 %ended, %full
  br i1 %stops, label %end, label %some
some:
  %is_value = icmp eq i8 %letter, 1
  br i1 %is_value, label %value, label %copied
copied:
  store i8 %letter, ptr %to
  %n1 = add i64 %n, 1
  %at1 = add i64 %at, 1
  br label %next
value:
  %digit_at = getelementptr i8, ptr %text, i64 1
  %digit = load i8, ptr %digit_at
  %which8 = sub i8 %digit, 48
  %which = zext i8 %which8 to i64
  %slot = add i64 %which, 1
  %fault = getelementptr i8, ptr %c, i64 $FAULT$
  %value_at = getelementptr i64, ptr %fault, i64 %slot
  %room = sub i64 $LAST$, %at
  %which32 = zext i8 %which8 to i32
  %bits = lshr i32 %floats, %which32
  %is_float = trunc i32 %bits to i1
  br i1 %is_float, label %float, label %whole
float:
  %d = load double, ptr %value_at
  %wrote_d = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %to, i64 %room, ptr @real, double %d)
  br label %told
whole:
  %i = load i64, ptr %value_at
  %wrote_i = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %to, i64 %room, ptr @integer, i64 %i)
  br label %told
told:
  %wrote = phi i32 [ %wrote_d, %float ], [ %wrote_i, %whole ]
  %letters = sext i32 %wrote to i64
  %n2 = add i64 %n, 2
  %beyond = add i64 %at, %letters
  %is_beyond = icmp ugt i64 %beyond, $LAST$
  %at2 = select i1 %is_beyond, i64 $LAST$, i64 %beyond
  br label %next
end:
  store i8 0, ptr %to
  ret i32 %code
}

define internal void @tell(ptr %c, i64 %first, i64 %second) {
  %fault = getelementptr i8, ptr %c, i64 $FAULT$
  %first_at = getelementptr i64, ptr %fault, i64 1
  store i64 %first, ptr %first_at
  %second_at = getelementptr i64, ptr %fault, i64 2
  store i64 %second, ptr %second_at
  ret void
}

define ptr @$NAME$_error(ptr %c) {
entry:
  %none = icmp eq ptr %c, null
  br i1 %none, label %fixed, label %own
fixed:
  %text = getelementptr i8, ptr @texts, i64 $NO_CONTEXT$
  ret ptr %text
own:
  %message = getelementptr i8, ptr %c, i64 $MESSAGE$
  ret ptr %message
}
"""

CONTEXTS = """
define i32 @$NAME$_open(ptr %where) {
entry:
  %none = icmp eq ptr %where, null
  br i1 %none, label %refuse, label %make
refuse:
  ret i32 $ARGUMENT$
make:
  %c = call ptr @calloc(i64 1, i64 $SIZE$)
  store ptr %c, ptr %where
  %no = icmp eq ptr %c, null
  br i1 %no, label %poor, label %fill
poor:
  ret i32 $MEMORY$
fill:
  %page = call i64 @sysconf(i32 $PAGE_BYTES$)
  %pages = call i64 @sysconf(i32 $PAGES$)
  %memory = mul i64 %page, %pages
  %limit = getelementptr i8, ptr %c, i64 $LIMIT$
  store i64 %memory, ptr %limit
$RECORD$
  %which = load i64, ptr @chosen
  %which_at = getelementptr i8, ptr %c, i64 $PROGRAM$
  store i64 %which, ptr %which_at
  %state_at = getelementptr i8, ptr %c, i64 $STATE$
  %runs = icmp sge i64 %which, 0
  br i1 %runs, label %found, label %lacks
lacks:
  store i64 $MACHINE$, ptr %state_at
  %lacking = load i64, ptr @lacking
  %row = add i64 %lacking, $LACK_ROWS$
  %f0 = call i32 @fail(ptr %c, i64 %row)
  ret i32 %f0
found:
  %flushes_from = getelementptr %program, ptr @programs, i64 %which, i32 6
  %flushes = load i64, ptr %flushes_from
  %flushes_at = getelementptr i8, ptr %c, i64 $FLUSHES$
  store i64 %flushes, ptr %flushes_at
  call void @small(ptr %c)
$TAKE_WEIGHTS$
  ret i32 0
}

define internal void @adopt(ptr %c, ptr %base) {
entry:
  %which_at = getelementptr i8, ptr %c, i64 $PROGRAM$
  %which = load i64, ptr %which_at
  %program = getelementptr %program, ptr @programs, i64 %which
  %first = load i64, ptr %program
  %count_at = getelementptr %program, ptr %program, i64 0, i32 1
  %count = load i64, ptr %count_at
  %constants = getelementptr i8, ptr %c, i64 $CONSTANTS_AT$
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %one ]
  %all = icmp uge i64 %n, %count
  br i1 %all, label %end, label %one
one:
  %number = add i64 %first, %n
  %offset_at = getelementptr i64, ptr @places, i64 %number
  %offset = load i64, ptr %offset_at
  %address = getelementptr i8, ptr %base, i64 %offset
  %constant = getelementptr ptr, ptr %constants, i64 %n
  store ptr %address, ptr %constant
  %n1 = add i64 %n, 1
  br label %next
end:
  ret void
}

define internal void @small(ptr %c) {
  %which_at = getelementptr i8, ptr %c, i64 $PROGRAM$
  %which = load i64, ptr %which_at
  %program = getelementptr %program, ptr @programs, i64 %which
  %first_at = getelementptr %program, ptr %program, i64 0, i32 2
  %first = load i64, ptr %first_at
  %bytes_at = getelementptr %program, ptr %program, i64 0, i32 3
  %bytes = load i64, ptr %bytes_at
  %from = getelementptr i64, ptr @rooms, i64 %first
  %to = getelementptr i8, ptr %c, i64 $ROOMS_AT$
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %to, ptr align 8 %from, i64 %bytes, i1 false)
  ret void
}

define void @$NAME$_close(ptr %c) {
entry:
  %none = icmp eq ptr %c, null
  br i1 %none, label %end, label %some
some:
  call void @let_go(ptr %c)
$DROP_WEIGHTS$
  call void @free(ptr %c)
  br label %end
end:
  ret void
}

define internal void @let_go(ptr %c) {
entry:
  %given_at = getelementptr i8, ptr %c, i64 $GIVEN$
  %given = load i64, ptr %given_at
  %arena_at = getelementptr i8, ptr %c, i64 $ARENA$
  %bytes_at = getelementptr i8, ptr %c, i64 $ARENA_BYTES$
  %own = icmp eq i64 %given, 0
  br i1 %own, label %release, label %end
release:
  %arena = load ptr, ptr %arena_at
  call void @free(ptr %arena)
  br label %end
end:
  store ptr null, ptr %arena_at
  store i64 0, ptr %bytes_at
  store i64 0, ptr %given_at
  ret void
}
"""
