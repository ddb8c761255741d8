"""The functions of a library as LLVM IR; `$NAME$` stands for a name or a number that glue.py puts in.

A context is opened, called by one thread at a time, and closed. Nothing else has state, but for the pool's workers.
Errors are rows of a table: `@fail` writes the text of one, with the values of the fault record, and returns its code.
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

CALLS = """
define internal i32 @check(ptr %c, ptr %in, ptr %out, i64 %inputs, i64 %outputs) {
entry:
  %none = icmp eq ptr %c, null
  br i1 %none, label %refuse, label %some
refuse:
  ret i32 $ARGUMENT$
some:
  %state_at = getelementptr i8, ptr %c, i64 $STATE$
  %state = load i64, ptr %state_at
  %failed = icmp ne i64 %state, 0
  br i1 %failed, label %broken, label %works
broken:
  %code = trunc i64 %state to i32
  ret i32 %code
works:
  %no_in = icmp eq ptr %in, null
  %wants_in = icmp ne i64 %inputs, 0
  %lacks_in = and i1 %no_in, %wants_in
  br i1 %lacks_in, label %without_inputs, label %given
without_inputs:
  %f0 = call i32 @fail(ptr %c, i64 $NO_INPUTS$)
  ret i32 %f0
given:
  %no_out = icmp eq ptr %out, null
  %wants_out = icmp ne i64 %outputs, 0
  %lacks_out = and i1 %no_out, %wants_out
  br i1 %lacks_out, label %without_outputs, label %measure
without_outputs:
  %f1 = call i32 @fail(ptr %c, i64 $NO_OUTPUTS$)
  ret i32 %f1
measure:
  %sizes = getelementptr i8, ptr %c, i64 $SIZES$
  %bytes = getelementptr i8, ptr %c, i64 $BYTES$
  %fault = getelementptr i8, ptr %c, i64 $FAULT$
  %status = call i64 @"k.sizes"(ptr %in, ptr %sizes, ptr %bytes, ptr %out, ptr %fault, ptr null)
  %well = icmp eq i64 %status, 0
  br i1 %well, label %fine, label %wrong
wrong:
  %row = add i64 %status, $CHECK_ROWS$
  %f2 = call i32 @fail(ptr %c, i64 %row)
  ret i32 %f2
fine:
  ret i32 0
}

define i32 @$NAME$_sizes(ptr %c, ptr %in, ptr %out) {
entry:
  %wrong = call i32 @check(ptr %c, ptr %in, ptr %out, i64 $INPUTS$, i64 $OUTPUTS$)
  %well = icmp eq i32 %wrong, 0
  br i1 %well, label %say, label %end
say:
  %bytes = getelementptr i8, ptr %c, i64 $BYTES$
  br label %next
next:
  %n = phi i64 [ 0, %say ], [ %n1, %one ]
  %all = icmp uge i64 %n, $OUTPUTS$
  br i1 %all, label %end, label %one
one:
  %from = getelementptr i64, ptr %bytes, i64 %n
  %size = load i64, ptr %from
  %to = getelementptr [$ARRAY_WORDS$ x i64], ptr %out, i64 %n, i64 1
  store i64 %size, ptr %to
  %n1 = add i64 %n, 1
  br label %next
end:
  ret i32 %wrong
}

define i32 @$NAME$_run(ptr %c, ptr %in, ptr %out) {
entry:
  %wrong = call i32 @check(ptr %c, ptr %in, ptr %out, i64 $INPUTS$, i64 $OUTPUTS$)
  %well = icmp eq i32 %wrong, 0
  br i1 %well, label %look, label %end
look:
  %bytes = getelementptr i8, ptr %c, i64 $BYTES$
  %fault = getelementptr i8, ptr %c, i64 $FAULT$
  %status = call i64 @"k.arrays"(ptr %in, ptr %out, ptr %bytes, ptr %fault, ptr null)
  %fits = icmp eq i64 %status, 0
  br i1 %fits, label %point, label %unfit
unfit:
  %row = add i64 %status, $CHECK_ROWS$
  %f0 = call i32 @fail(ptr %c, i64 %row)
  ret i32 %f0
point:
  %shared = call i32 @apart(ptr %c, ptr %in, ptr %out)
  %separate = icmp eq i32 %shared, 0
  br i1 %separate, label %go, label %end
go:
  %pointers = getelementptr i8, ptr %c, i64 $POINTERS$
  call void @point(ptr %pointers, ptr %in, i64 $INPUTS$)
  %results = getelementptr ptr, ptr %pointers, i64 $INPUTS$
  call void @point(ptr %results, ptr %out, i64 $OUTPUTS$)
  %code = call i32 @enter(ptr %c)
  %ran = icmp eq i32 %code, 0
  br i1 %ran, label %ready, label %end
ready:
  %which_at = getelementptr i8, ptr %c, i64 $PROGRAM$
  %which = load i64, ptr %which_at
  %late_at = getelementptr %program, ptr @programs, i64 %which, i32 4
  %late = load i64, ptr %late_at
  %late_sizes = getelementptr i8, ptr %c, i64 %late
$HAND_OVER$
  ret i32 0
end:
  %result = phi i32 [ %wrong, %entry ], [ %shared, %point ], [ %code, %go ]
  ret i32 %result
}

define internal void @point(ptr %to, ptr %arrays, i64 %count) {
entry:
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %one ]
  %all = icmp uge i64 %n, %count
  br i1 %all, label %end, label %one
one:
  %from = getelementptr [$ARRAY_WORDS$ x i64], ptr %arrays, i64 %n
  %data = load ptr, ptr %from
  %place = getelementptr ptr, ptr %to, i64 %n
  store ptr %data, ptr %place
  %n1 = add i64 %n, 1
  br label %next
end:
  ret void
}
"""

ENTER = """
define internal i32 @enter(ptr %c) {
entry:
  %record = getelementptr i8, ptr %c, i64 $RECORD_AT$
  %fault = getelementptr i8, ptr %c, i64 $FAULT$
  %which_at = getelementptr i8, ptr %c, i64 $PROGRAM$
  %which = load i64, ptr %which_at
  call void @awake()
  br label %again
again:
  %shrunk = phi i1 [ false, %entry ], [ %shrunk, %larger ], [ %shrunk, %grown ], [ true, %shrink ]
  %status = call i64 @start(i64 %which, ptr %record)
  %done = icmp eq i64 %status, 0
  br i1 %done, label %end, label %not_done
end:
  ret i32 0
not_done:
  %faulted = icmp sgt i64 %status, 0
  br i1 %faulted, label %told, label %asked
told:
  %rows_at = getelementptr %program, ptr @programs, i64 %which, i32 5
  %rows = load i64, ptr %rows_at
  %row = add i64 %status, %rows
  %f0 = call i32 @fail(ptr %c, i64 %row)
  ret i32 %f0
asked:
  %needed = load i64, ptr %fault
  %is_arena = icmp eq i64 %status, -1
  br i1 %is_arena, label %arena, label %enlarge
enlarge:
  %place = sub i64 -2, %status
  %countless = icmp uge i64 %needed, $UNCOUNTABLE$
  br i1 %countless, label %too_much, label %larger
larger:
  %sizes = getelementptr i8, ptr %c, i64 $SIZES$
  %size_at = getelementptr i64, ptr %sizes, i64 %place
  %size = load i64, ptr %size_at
  %twice = shl i64 %size, 1
  %is_more = icmp ugt i64 %twice, %needed
  %chosen = select i1 %is_more, i64 %twice, i64 %needed
  %over = icmp ugt i64 %chosen, $UNCOUNTABLE$
  %capped = select i1 %over, i64 $UNCOUNTABLE$, i64 %chosen
  store i64 %capped, ptr %size_at
  br label %again
arena:
  %given_at = getelementptr i8, ptr %c, i64 $GIVEN$
  %given = load i64, ptr %given_at
  %own = icmp eq i64 %given, 0
  br i1 %own, label %consider, label %too_small
too_small:
  %bytes_at = getelementptr i8, ptr %c, i64 $ARENA_BYTES$
  %bytes = load i64, ptr %bytes_at
  call void @tell(ptr %c, i64 %bytes, i64 %needed)
  %f1 = call i32 @fail(ptr %c, i64 $SMALL_ARENA$)
  ret i32 %f1
consider:
  %limit_at = getelementptr i8, ptr %c, i64 $LIMIT$
  %limit = load i64, ptr %limit_at
  %beyond = icmp ugt i64 %needed, %limit
  br i1 %beyond, label %too_much, label %grow
grow:
  call void @let_go(ptr %c)
  %arena_at = getelementptr i8, ptr %c, i64 $ARENA$
  %refused = call i32 @posix_memalign(ptr %arena_at, i64 64, i64 %needed)
  %got = icmp eq i32 %refused, 0
  br i1 %got, label %grown, label %none
grown:
  %room_at = getelementptr i8, ptr %c, i64 $ARENA_BYTES$
  store i64 %needed, ptr %room_at
  br label %again
none:
  store ptr null, ptr %arena_at
  br label %too_much
too_much:
  %lost = or i1 %shrunk, $NO_ROOMS$
  br i1 %lost, label %lack, label %shrink
shrink:
  call void @small(ptr %c)
  br label %again
lack:
  %most_at = getelementptr i8, ptr %c, i64 $LIMIT$
  %most = load i64, ptr %most_at
  call void @tell(ptr %c, i64 %needed, i64 %most)
  %f2 = call i32 @fail(ptr %c, i64 $TOO_MUCH$)
  ret i32 %f2
}
"""
"""The entry point asks for a larger arena or a larger size until it has what it needs. Where the arena would be too
large, sizes that earlier calls made larger are small again, once."""

QUESTIONS = """
define i32 @$NAME$_interface() {
  ret i32 $INTERFACE$
}

define i64 @$NAME$_inputs() {
  ret i64 $INPUTS$
}

define i64 @$NAME$_outputs() {
  ret i64 $OUTPUTS$
}

define internal i32 @describe(i64 %first, i64 %count, i64 %n, ptr %to) {
entry:
  %beyond = icmp uge i64 %n, %count
  %nowhere = icmp eq ptr %to, null
  %wrong = or i1 %beyond, %nowhere
  br i1 %wrong, label %refuse, label %say
refuse:
  ret i32 $ARGUMENT$
say:
  %number = add i64 %first, %n
  %port = getelementptr %port, ptr @ports, i64 %number
  br label %next
next:
  %k = phi i64 [ 0, %say ], [ %k1, %one ]
  %all = icmp uge i64 %k, 3
  br i1 %all, label %rest, label %one
one:
  %from = getelementptr i32, ptr %port, i64 %k
  %place = load i32, ptr %from
  %offset = zext i32 %place to i64
  %text = getelementptr i8, ptr @texts, i64 %offset
  %field = getelementptr ptr, ptr %to, i64 %k
  store ptr %text, ptr %field
  %k1 = add i64 %k, 1
  br label %next
rest:
  %size_from = getelementptr %port, ptr %port, i64 0, i32 3
  %size = load i32, ptr %size_from
  %size64 = zext i32 %size to i64
  %size_to = getelementptr i64, ptr %to, i64 3
  store i64 %size64, ptr %size_to
  %rank_from = getelementptr %port, ptr %port, i64 0, i32 4
  %rank = load i32, ptr %rank_from
  %rank64 = zext i32 %rank to i64
  %rank_to = getelementptr i64, ptr %to, i64 4
  store i64 %rank64, ptr %rank_to
  %dims_from = getelementptr %port, ptr %port, i64 0, i32 5
  %dims = load i32, ptr %dims_from
  %dims64 = zext i32 %dims to i64
  %dims_at = getelementptr i64, ptr @dims, i64 %dims64
  %dims_to = getelementptr ptr, ptr %to, i64 5
  store ptr %dims_at, ptr %dims_to
  ret i32 0
}

define internal i64 @find(i64 %first, i64 %count, ptr %name) {
entry:
  %none = icmp eq ptr %name, null
  br i1 %none, label %no, label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %other ]
  %all = icmp uge i64 %n, %count
  br i1 %all, label %no, label %one
one:
  %number = add i64 %first, %n
  %port = getelementptr %port, ptr @ports, i64 %number
  %place = load i32, ptr %port
  %offset = zext i32 %place to i64
  %text = getelementptr i8, ptr @texts, i64 %offset
  %differs = call i32 @strcmp(ptr %text, ptr %name)
  %same = icmp eq i32 %differs, 0
  br i1 %same, label %yes, label %other
other:
  %n1 = add i64 %n, 1
  br label %next
yes:
  ret i64 %n
no:
  ret i64 -1
}

define i32 @$NAME$_input(i64 %n, ptr %to) {
  %code = call i32 @describe(i64 0, i64 $INPUTS$, i64 %n, ptr %to)
  ret i32 %code
}

define i32 @$NAME$_output(i64 %n, ptr %to) {
  %code = call i32 @describe(i64 $INPUTS$, i64 $OUTPUTS$, i64 %n, ptr %to)
  ret i32 %code
}

define i64 @$NAME$_find_input(ptr %name) {
  %n = call i64 @find(i64 0, i64 $INPUTS$, ptr %name)
  ret i64 %n
}

define i64 @$NAME$_find_output(ptr %name) {
  %n = call i64 @find(i64 $INPUTS$, i64 $OUTPUTS$, ptr %name)
  ret i64 %n
}
"""

RESULTS = """
define internal i32 @hand_over(ptr %c, ptr %array, ptr %from, ptr %sizes, i64 %rank, i64 %item, i64 %row) {
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %one ]
  %bytes = phi i64 [ %item, %entry ], [ %more, %one ]
  %all = icmp uge i64 %k, %rank
  br i1 %all, label %measured, label %one
one:
  %size_at = getelementptr i64, ptr %sizes, i64 %k
  %size = load i64, ptr %size_at
  %k1 = add i64 %k, 1
  %field = add i64 %k, $DIMS$
  %to = getelementptr i64, ptr %array, i64 %field
  store i64 %size, ptr %to
  %more = mul i64 %bytes, %size
  br label %next
measured:
  %data = load ptr, ptr %array
  %stays = icmp eq ptr %data, null
  br i1 %stays, label %end, label %consider
consider:
  %given_at = getelementptr i64, ptr %array, i64 1
  %given = load i64, ptr %given_at
  %small = icmp ugt i64 %bytes, %given
  br i1 %small, label %refuse, label %copy
refuse:
  call void @tell(ptr %c, i64 %given, i64 %bytes)
  %code = call i32 @fail(ptr %c, i64 %row)
  ret i32 %code
copy:
  call void @llvm.memmove.p0.p0.i64(ptr %data, ptr %from, i64 %bytes, i1 false)
  br label %end
end:
  ret i32 0
}

define ptr @$NAME$_result(ptr %c, i64 %n) {
entry:
  %none = icmp eq ptr %c, null
  %beyond = icmp uge i64 %n, $OUTPUTS$
  %wrong = or i1 %none, %beyond
  br i1 %wrong, label %no, label %yes
yes:
  %results = getelementptr i8, ptr %c, i64 $RESULTS$
  %place = getelementptr ptr, ptr %results, i64 %n
  %data = load ptr, ptr %place
  ret ptr %data
no:
  ret ptr null
}
"""
"""A result whose size the call computed is copied to the caller's memory; where that is null it stays in the arena."""

SETTINGS = """
define internal i32 @settable(ptr %c) {
entry:
  %none = icmp eq ptr %c, null
  br i1 %none, label %refuse, label %some
refuse:
  ret i32 $ARGUMENT$
some:
  %state_at = getelementptr i8, ptr %c, i64 $STATE$
  %state = load i64, ptr %state_at
  %code = trunc i64 %state to i32
  ret i32 %code
}

define internal i32 @threads(ptr %c, i64 %n, ptr %for_all, ptr %state) {
entry:
  %less = sub i64 %n, 1
  %wrong = icmp uge i64 %less, $MOST_THREADS$
  br i1 %wrong, label %refuse, label %set
refuse:
  call void @tell(ptr %c, i64 %n, i64 0)
  %code = call i32 @fail(ptr %c, i64 $BAD_THREADS$)
  ret i32 %code
set:
  %threads_at = getelementptr i8, ptr %c, i64 $THREADS$
  store i64 %n, ptr %threads_at
  %others = getelementptr i8, ptr %c, i64 $OTHERS$
  store ptr %for_all, ptr %others
  %state_at = getelementptr ptr, ptr %others, i64 1
  store ptr %state, ptr %state_at
  %own = icmp eq ptr %for_all, null
  %record = select i1 %own, ptr null, ptr %others
  %record_at = getelementptr i8, ptr %c, i64 $OTHERS_AT$
  store ptr %record, ptr %record_at
  ret i32 0
}

define i32 @$NAME$_set_threads(ptr %c, i64 %n) {
entry:
  %wrong = call i32 @settable(ptr %c)
  %well = icmp eq i32 %wrong, 0
  br i1 %well, label %set, label %end
set:
  %code = call i32 @threads(ptr %c, i64 %n, ptr null, ptr null)
  ret i32 %code
end:
  ret i32 %wrong
}

define i32 @$NAME$_set_parallel(ptr %c, i64 %n, ptr %for_all, ptr %state) {
entry:
  %wrong = call i32 @settable(ptr %c)
  %well = icmp eq i32 %wrong, 0
  br i1 %well, label %look, label %end
look:
  %none = icmp eq ptr %for_all, null
  br i1 %none, label %refuse, label %set
refuse:
  %f0 = call i32 @fail(ptr %c, i64 $NO_FUNCTION$)
  ret i32 %f0
set:
  %code = call i32 @threads(ptr %c, i64 %n, ptr %for_all, ptr %state)
  ret i32 %code
end:
  ret i32 %wrong
}

define i32 @$NAME$_set_limit(ptr %c, i64 %bytes) {
entry:
  %wrong = call i32 @settable(ptr %c)
  %well = icmp eq i32 %wrong, 0
  br i1 %well, label %look, label %end
look:
  %negative = icmp slt i64 %bytes, 0
  br i1 %negative, label %refuse, label %set
refuse:
  call void @tell(ptr %c, i64 %bytes, i64 0)
  %f0 = call i32 @fail(ptr %c, i64 $BAD_LIMIT$)
  ret i32 %f0
set:
  %limit_at = getelementptr i8, ptr %c, i64 $LIMIT$
  store i64 %bytes, ptr %limit_at
  ret i32 0
end:
  ret i32 %wrong
}

define i32 @$NAME$_arena_bytes(ptr %c, ptr %in, ptr %to) {
entry:
  %out = alloca [$ARRAY_WORDS$ x [$SOME_OUTPUTS$ x i64]], align 8
  %wrong = call i32 @check(ptr %c, ptr %in, ptr %out, i64 $INPUTS$, i64 $OUTPUTS$)
  %well = icmp eq i32 %wrong, 0
  br i1 %well, label %look, label %end
look:
  %none = icmp eq ptr %to, null
  br i1 %none, label %refuse, label %ask
refuse:
  %f0 = call i32 @fail(ptr %c, i64 $NO_NUMBER$)
  ret i32 %f0
ask:
  %which_at = getelementptr i8, ptr %c, i64 $PROGRAM$
  %which = load i64, ptr %which_at
  %sizes = getelementptr i8, ptr %c, i64 $SIZES$
  %fault = getelementptr i8, ptr %c, i64 $FAULT$
  %status = call i64 @arena(i64 %which, ptr %sizes, ptr %to, ptr %fault)
  %told = icmp eq i64 %status, 0
  br i1 %told, label %end, label %large
large:
  %row = add i64 %status, $CHECK_ROWS$
  %f1 = call i32 @fail(ptr %c, i64 %row)
  ret i32 %f1
end:
  ret i32 %wrong
}

define i32 @$NAME$_set_arena(ptr %c, ptr %memory, i64 %bytes) {
entry:
  %wrong = call i32 @settable(ptr %c)
  %well = icmp eq i32 %wrong, 0
  br i1 %well, label %look, label %end
look:
  %none = icmp eq ptr %memory, null
  br i1 %none, label %own, label %consider
own:
  call void @let_go(ptr %c)
  ret i32 0
consider:
  %address = ptrtoint ptr %memory to i64
  %low = and i64 %address, 63
  %uneven = icmp ne i64 %low, 0
  br i1 %uneven, label %refuse, label %positive
positive:
  %negative = icmp slt i64 %bytes, 0
  br i1 %negative, label %refuse, label %take
refuse:
  %f0 = call i32 @fail(ptr %c, i64 $BAD_ARENA$)
  ret i32 %f0
take:
  call void @let_go(ptr %c)
  %arena_at = getelementptr i8, ptr %c, i64 $ARENA$
  store ptr %memory, ptr %arena_at
  %bytes_at = getelementptr i8, ptr %c, i64 $ARENA_BYTES$
  store i64 %bytes, ptr %bytes_at
  %given_at = getelementptr i8, ptr %c, i64 $GIVEN$
  store i64 1, ptr %given_at
  ret i32 0
end:
  ret i32 %wrong
}
"""

OVERLAPS = """
define internal i32 @apart(ptr %c, ptr %in, ptr %out) {
entry:
  %bytes = getelementptr i8, ptr %c, i64 $BYTES$
  br label %result
result:
  %n = phi i64 [ 0, %entry ], [ %n1, %next_result ]
  %all = icmp uge i64 %n, $OUTPUTS$
  br i1 %all, label %end, label %measure
measure:
  %size_at = getelementptr i64, ptr %bytes, i64 %n
  %size = load i64, ptr %size_at
  %array = getelementptr [$ARRAY_WORDS$ x i64], ptr %out, i64 %n
  %begin = load i64, ptr %array
  %last = add i64 %begin, %size
  %none = icmp eq i64 %size, 0
  br i1 %none, label %next_result, label %others
others:
  br label %other
other:
  %k = phi i64 [ 0, %others ], [ %k1, %next_other ]
  %enough = add i64 %n, $INPUTS$
  %compared = icmp uge i64 %k, %enough
  br i1 %compared, label %next_result, label %compare
compare:
  %is_output = icmp ult i64 %k, %n
  %from = sub i64 %k, %n
  %arrays = select i1 %is_output, ptr %out, ptr %in
  %place = select i1 %is_output, i64 %k, i64 %from
  %behind = add i64 %from, $OUTPUTS$
  %which = select i1 %is_output, i64 %k, i64 %behind
  %length_at = getelementptr i64, ptr %bytes, i64 %which
  %length = load i64, ptr %length_at
  %theirs = getelementptr [$ARRAY_WORDS$ x i64], ptr %arrays, i64 %place
  %start = load i64, ptr %theirs
  %stop = add i64 %start, %length
  %before = icmp ult i64 %start, %last
  %after = icmp ult i64 %begin, %stop
  %some = icmp ne i64 %length, 0
  %meets = and i1 %before, %after
  %overlaps = and i1 %meets, %some
  br i1 %overlaps, label %refuse, label %next_other
next_other:
  %k1 = add i64 %k, 1
  br label %other
next_result:
  %n1 = add i64 %n, 1
  br label %result
refuse:
  call void @tell(ptr %c, i64 %n, i64 0)
  %code = call i32 @fail(ptr %c, i64 $OVERLAP$)
  ret i32 %code
end:
  ret i32 0
}
"""
"""Whether a result's memory is no other array's: programs count on it. Bytes are those of outputs, then of inputs."""

LIFE = """
@page = internal global ptr null
@owner = internal global i64 0
declare i32 @getpid()
declare i32 @madvise(ptr, i64, i32)
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
