"""The programs that say what caches and memory deliver, as LLVM IR text for a target.

`read` adds up a buffer with one accumulator per load in flight, again and again; `write` fills it with ones; `flush`
takes it out of every cache; `tile` multiplies each vector of it by `ROWS` numbers, and adds to as many sums, before it
reads the next; `asked` does, too, and prefetches each line a page ahead:

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

ROWS: Final = 8
"""The sums that a line is multiplied for: about a tile's, and fewer products than memory takes time for the line."""

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
    """Each vector of a line times numbers that are loaded for it, one for each sum."""
    lanes, width = target.vector_bits // 32, target.vector_bits // 8
    vector, rows, parts = f"<{lanes} x float>", range(ROWS), max(_LINE // width, 1)
    carried = [f"  %o{r} = phi {vector} [zeroinitializer, %entry], [%s{r}, %last]" for r in rows]
    inner = [f"  %a{r}.0 = phi {vector} [%o{r}, %round], [%s{r}, %step]" for r in rows]
    body = []
    if ahead:
        body.append(f"  %ahead = getelementptr i8, ptr %q, i64 {ahead}")
        body.append("  call void @llvm.prefetch.p0(ptr %ahead, i32 0, i32 3, i32 1)")
    for c in range(parts):
        body.append(f"  %q{c} = getelementptr i8, ptr %q, i64 {width * c}")
        body.append(f"  %x{c} = load {vector}, ptr %q{c}, align {width}")
        for r in rows:
            n, total = f"{r}.{c}", f"%s{r}" if c == parts - 1 else f"%a{r}.{c + 1}"
            body += [
                f"  %w{n} = getelementptr float, ptr %p, i64 {c * ROWS + r}",
                f"  %e{n} = load float, ptr %w{n}, align 4",
                f"  %i{n} = insertelement {vector} poison, float %e{n}, i32 0",
                f"  %b{n} = shufflevector {vector} %i{n}, {vector} poison, <{lanes} x i32> zeroinitializer",
                f"  {total} = call {vector} @llvm.fmuladd.v{lanes}f32({vector} %b{n}, {vector} %x{c}, {vector} %a{n})",
            ]
    ends = [f"  %t{r} = fadd {vector} %{f't{r - 1}' if r > 1 else 's0'}, %s{r}" for r in rows[1:]]
    end = [*ends, f"  %d = bitcast {vector} %t{ROWS - 1} to <{lanes // 2} x i64>"]
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
