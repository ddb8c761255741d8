"""A call as LLVM IR: the checks of its arrays, the entry point with what it asks for, and results handed over."""

from __future__ import annotations

CALLS = """
define internal i32 @check(ptr %c, ptr %in, ptr %out, i64 %inputs, i64 %outputs) {
entry:
  %code = call i32 @usable(ptr %c)
  %works = icmp eq i32 %code, 0
  br i1 %works, label %look, label %broken
broken:
  ret i32 %code
look:
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
declare i32 @madvise(ptr, i64, i32)

define internal i32 @enter(ptr %c) {
entry:
  %record = getelementptr i8, ptr %c, i64 $RECORD_AT$
  %fault = getelementptr i8, ptr %c, i64 $FAULT$
  %which_at = getelementptr i8, ptr %c, i64 $PROGRAM$
  %which = load i64, ptr %which_at
  call void @awake()
  br label %again
again:
  %shrunk = phi i1 [ false, %entry ], [ %shrunk, %larger ], [ %shrunk, %grown ], [ %shrunk, %spread ], [ true, %shrink ]
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
  %is_large = icmp uge i64 %needed, $LARGE_PAGE$
  %alignment = select i1 %is_large, i64 $LARGE_PAGE$, i64 64
  %refused = call i32 @posix_memalign(ptr %arena_at, i64 %alignment, i64 %needed)
  %got = icmp eq i32 %refused, 0
  br i1 %got, label %grown, label %none
grown:
  %room_at = getelementptr i8, ptr %c, i64 $ARENA_BYTES$
  store i64 %needed, ptr %room_at
  br i1 %is_large, label %spread, label %again
spread:
  %memory = load ptr, ptr %arena_at
  %pages = and i64 %needed, -$LARGE_PAGE$
  %advised = call i32 @madvise(ptr %memory, i64 %pages, i32 $LARGE_PAGES$)
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
