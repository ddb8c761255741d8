"""What a context may be told, as LLVM IR: threads, loops on the caller's threads, memory."""

from __future__ import annotations

SETTINGS = """
define internal i32 @usable(ptr %c) {
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
  %wrong = call i32 @usable(ptr %c)
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
  %wrong = call i32 @usable(ptr %c)
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
  %wrong = call i32 @usable(ptr %c)
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
  %wrong = call i32 @usable(ptr %c)
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
