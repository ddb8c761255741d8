"""The programs that say what caches and memory deliver, as LLVM IR text for a target.

`read` adds up a buffer with one accumulator per load in flight, again and again; `write` stores a vector all over it;
`flush` takes it out of every cache:

    i64 read(ptr buffer, i64 bytes, i64 rounds)        bytes: a multiple of `STEP`, at least one; rounds likewise
    i64 write(ptr buffer, i64 bytes, i64 rounds)
    i64 flush(ptr buffer, i64 bytes, i64 rounds)       bytes: a multiple of 64

The text is final: it goes through instruction selection only.
"""

from __future__ import annotations

from typing import Final

from .target import Target

STEP: Final = 4096
"""Buffers are multiples of this many bytes: of every probe's step, and of a page."""

_ACCUMULATORS: Final = 8
_LINE: Final = 64


def print_streams(target: Target) -> str:
    """The module's text: `read`, `write` and `flush`."""
    lines = [f'target triple = "{target.triple}"', f'target datalayout = "{target.data_layout}"']
    lines += [*_print_read(target), *_print_write(target), *_print_flush(target)]
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
    one = ", ".join(["i64 1"] * lanes)
    body = []
    for c in range(_ACCUMULATORS):
        body.append(f"  %q{c} = getelementptr i8, ptr %q, i64 {width * c}")
        body.append(f"  store <{lanes} x i64> <{one}>, ptr %q{c}, align {width}")
    return _loops("write", width * _ACCUMULATORS, [], [], body, ["  ret i64 0"])


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
