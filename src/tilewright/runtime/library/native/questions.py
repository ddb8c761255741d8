"""What a program may ask of a library, as LLVM IR: its version, its inputs and outputs by number and by name."""

from __future__ import annotations

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
