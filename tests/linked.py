"""Two object files for tests of linking and loading: what `main` gives for 0 to 5 is known."""

from __future__ import annotations

from tilewright.codegen.assemble import assemble
from tilewright.target import Target

PARTS = (
    """
    declare i64 @far(i64)
    define i64 @near(i64 %x) { %y = mul i64 %x, 3  ret i64 %y }
    define i64 @main(i64 %x) {
      %a = call i64 @far(i64 %x)
      %b = call i64 @near(i64 %a)
      ret i64 %b
    }
    """,
    """
    @table = private constant [4096 x i64] [i64 5, TABLE]
    @seen = internal global [8 x i64] zeroinitializer, align 64
    declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
    define i64 @far(i64 %x) {
    entry:
      %room = alloca [4096 x i8], align 16
      call void @llvm.memset.p0.i64(ptr %room, i8 1, i64 4096, i1 false)
      %at = getelementptr i8, ptr %room, i64 %x
      %byte = load volatile i8, ptr %at
      %one = zext i8 %byte to i64
      %i = and i64 %x, 4095
      %from = getelementptr [4096 x i64], ptr @table, i64 0, i64 %i
      %read = load i64, ptr %from
      %place = getelementptr [8 x i64], ptr @seen, i64 0, i64 3
      %before = load i64, ptr %place
      %now = add i64 %before, %one
      store i64 %now, ptr %place
      switch i64 %x, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c
                                    i64 3, label %d  i64 4, label %e ]
    a:
      %ra = call i64 @step(i64 100)
      br label %end
    b:
      %rb = udiv i64 100000, %now
      br label %end
    c:
      %rc = xor i64 %now, 77
      br label %end
    d:
      %rd = mul i64 %now, %now
      br label %end
    e:
      %re = sub i64 0, %now
      br label %end
    other:
      br label %end
    end:
      %r = phi i64 [ %ra, %a ], [ %rb, %b ], [ %rc, %c ], [ %rd, %d ], [ %re, %e ], [ 0, %other ]
      %sum = add i64 %r, %read
      ret i64 %sum
    }
    define internal i64 @step(i64 %x) noinline { %f = uitofp i64 %x to double  %g = fmul double %f, 2.5
      %h = fptoui double %g to i64  ret i64 %h }
    """,
)
"""Two objects that call one another and the system, with a large constant, data, a jump table and a constant pool."""

TABLE = [5, *((7 * n) % 1000 for n in range(1, 4096))]


def objects(target: Target) -> list[bytes]:
    head = f'target triple = "{target.triple}"\ntarget datalayout = "{target.data_layout}"\n'
    rows = ", ".join(f"i64 {n}" for n in TABLE[1:])
    return [assemble(head + part.replace("TABLE", rows), target) for part in PARTS]
