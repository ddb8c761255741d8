"""The programs that say what caches and memory deliver, as LLVM IR text for a target.

`read` adds up a buffer with one accumulator per load in flight, again and again; `write` fills it with ones; `flush`
takes it out of every cache; `tile` multiplies each line of it, `PRODUCTS` vectors of products, and adds to as many
sums, before it reads the next; `asked` does, too, and prefetches each line a page ahead:

    i64 read(ptr buffer, i64 bytes, i64 rounds)        bytes: a multiple of `STEP`, at least one; rounds likewise
    i64 write(ptr buffer, i64 bytes, i64 rounds)
    i64 flush(ptr buffer, i64 bytes, i64 rounds)       bytes: a multiple of 64
    i64 tile(ptr buffer, i64 bytes, i64 rounds)
    i64 asked(ptr buffer, i64 bytes, i64 rounds)

The text is final: it goes through instruction selection only.
"""

from __future__ import annotations

from typing import Final

from .target import Target

STEP: Final = 4096
"""Buffers are multiples of this many bytes: of every probe's step, and of a page."""

PRODUCTS: Final = 8
"""The vectors of products that a line is read for: fewer than memory takes time for it."""

_ACCUMULATORS: Final = 8
_LINE: Final = 64
_ONES: Final = 0x3F8000003F800000
"""Two ones of f32 in 64 bits."""


def print_streams(target: Target) -> str:
    """The module's text: all five."""
    lines = [f'target triple = "{target.triple}"', f'target datalayout = "{target.data_layout}"']
    lines += [*_print_read(target), *_print_write(target), *_print_flush(target)]
    lines += [*_print_tile(target, "tile", ahead=0), *_print_tile(target, "asked", ahead=STEP)]
    lanes = target.vector_bits // 32
    lines.append(f"declare <{lanes} x float> @llvm.fmuladd.v{lanes}f32({', '.join([f'<{lanes} x float>'] * 3)})")
    lines.append("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    return "\n".join([*lines, f"attributes #0 = {{ nounwind {target.attributes} }}", ""])


def _print_read(target: Target) -> list[str]:
    lanes, width = target.vector_bits // 64, target.vector_bits // 8
    vector, cells = f"<{lanes} x i64>", range(_ACCUMULATORS)
    carried = [f"  %o{c} = phi {vector} [zeroinitializer, %entry], [%s{c}, %last]" for c in cells]
    inner = [f"  %a{c} = phi {vector} [%o{c}, %round], [%s{c}, %step]" for c in cells]
    body = []
    for c in cells:
        body += [
            f"  %q{c} = getelementptr i8, ptr %q, i64 {width * c}",
            f"  %x{c} = load {vector}, ptr %q{c}, align {width}",
            f"  %s{c} = add {vector} %a{c}, %x{c}",
        ]
    sums = ["  %t0 = add i64 0, 0"]
    for c in cells:
        sums.append(f"  %e{c} = extractelement {vector} %s{c}, i32 0")
        sums.append(f"  %t{c + 1} = add i64 %t{c}, %e{c}")
    return _loops("read", width * _ACCUMULATORS, carried, inner, body, [*sums, f"  ret i64 %t{_ACCUMULATORS}"])


def _print_write(target: Target) -> list[str]:
    lanes, width = target.vector_bits // 64, target.vector_bits // 8
    one = ", ".join([f"i64 {_ONES}"] * lanes)
    body = []
    for c in range(_ACCUMULATORS):
        body.append(f"  %q{c} = getelementptr i8, ptr %q, i64 {width * c}")
        body.append(f"  store <{lanes} x i64> <{one}>, ptr %q{c}, align {width}")
    return _loops("write", width * _ACCUMULATORS, [], [], body, ["  ret i64 0"])


def _print_tile(target: Target, name: str, *, ahead: int = 0) -> list[str]:
    """The vectors of a line times numbers that are loaded for them: a product for each of `PRODUCTS` sums, which are
    that many rows by the vectors of a line. None waits for another one of its line."""
    lanes, width = target.vector_bits // 32, target.vector_bits // 8
    vector, parts = f"<{lanes} x float>", max(_LINE // width, 1)
    sums = range(PRODUCTS)
    carried = [f"  %o{n} = phi {vector} [zeroinitializer, %entry], [%s{n}, %last]" for n in sums]
    inner = [f"  %a{n} = phi {vector} [%o{n}, %round], [%s{n}, %step]" for n in sums]
    body = []
    if ahead:
        body.append(f"  %ahead = getelementptr i8, ptr %q, i64 {ahead}")
        body.append("  call void @llvm.prefetch.p0(ptr %ahead, i32 0, i32 3, i32 1)")
    for c in range(parts):
        body.append(f"  %q{c} = getelementptr i8, ptr %q, i64 {width * c}")
        body.append(f"  %x{c} = load {vector}, ptr %q{c}, align {width}")
    for n in sums:
        taken = ", ".join(f"{vector} %{name}" for name in (f"b{n}", f"x{n % parts}", f"a{n}"))
        body += [
            f"  %w{n} = getelementptr float, ptr %p, i64 {n // parts}",
            f"  %e{n} = load float, ptr %w{n}, align 4",
            f"  %i{n} = insertelement {vector} poison, float %e{n}, i32 0",
            f"  %b{n} = shufflevector {vector} %i{n}, {vector} poison, <{lanes} x i32> zeroinitializer",
            f"  %s{n} = call {vector} @llvm.fmuladd.v{lanes}f32({taken})",
        ]
    ends = [f"  %t{n} = fadd {vector} %{f't{n - 1}' if n > 1 else 's0'}, %s{n}" for n in sums[1:]]
    end = [*ends, f"  %d = bitcast {vector} %t{PRODUCTS - 1} to <{lanes // 2} x i64>"]
    end += [f"  %first = extractelement <{lanes // 2} x i64> %d, i32 0", "  ret i64 %first"]
    return _loops(name, max(_LINE, width), carried, inner, body, end)


def _print_flush(target: Target) -> list[str]:
    declare, call = [], '  call void asm sideeffect "dc civac, $0", "r"(ptr %q)'
    if target.architecture == "x86_64":
        declare = ["declare void @llvm.x86.sse2.clflush(ptr)"]
        call = "  call void @llvm.x86.sse2.clflush(ptr %q)"
    return [*declare, *_loops("flush", _LINE, [], [], [call], ["  ret i64 0"])]


def _loops(name: str, step: int, carried: list[str], inner: list[str], body: list[str], end: list[str]) -> list[str]:
    """Rounds over a buffer by steps; `carried` are values from one round to the next, `inner` from step to step."""
    return [
        f"define i64 @{name}(ptr %p, i64 %bytes, i64 %rounds) #0 {{",
        "entry:",
        "  br label %round",
        "round:",
        "  %r = phi i64 [0, %entry], [%r1, %last]",
        *carried,
        "  br label %step",
        "step:",
        "  %at = phi i64 [0, %round], [%at1, %step]",
        *inner,
        "  %q = getelementptr i8, ptr %p, i64 %at",
        *body,
        f"  %at1 = add i64 %at, {step}",
        "  %at.more = icmp slt i64 %at1, %bytes",
        "  br i1 %at.more, label %step, label %last",
        "last:",
        "  %r1 = add i64 %r, 1",
        "  %r.more = icmp slt i64 %r1, %rounds",
        "  br i1 %r.more, label %round, label %done",
        "done:",
        *end,
        "}",
    ]
