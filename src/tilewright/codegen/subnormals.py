"""How a thread computes with subnormal numbers, as LLVM IR: the control word of its floating-point unit.

With flushing on, subnormal operands and results of f32 and f64 operations are zeros of their sign. On x86 that is two
bits of MXCSR (FTZ for results, DAZ for operands), on AArch64 FPCR.FZ. The entry point sets them for a call that wants
it and puts back what the caller had; a worker computes as the thread whose loop it shares.

    take(place)    the thread's control word, stored at a place of eight bytes
    put(place)     the control word at a place becomes the thread's
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Control:
    """An architecture's control word: what its instructions declare, the lines that take it to a place and put it from
    there, its type, and the bits that flush."""

    declarations: tuple[str, ...]
    take: tuple[str, ...]
    put: tuple[str, ...]
    word: str
    bits: int


_X86 = Control(
    ("declare void @llvm.x86.sse.stmxcsr(ptr)", "declare void @llvm.x86.sse.ldmxcsr(ptr)"),
    ("  call void @llvm.x86.sse.stmxcsr(ptr {place})",),
    ("  call void @llvm.x86.sse.ldmxcsr(ptr {place})",),
    "i32",
    1 << 15 | 1 << 6,
)
_ARM = Control(
    ("declare i64 @llvm.aarch64.get.fpcr()", "declare void @llvm.aarch64.set.fpcr(i64)"),
    ("  {name} = call i64 @llvm.aarch64.get.fpcr()", "  store i64 {name}, ptr {place}, align 8"),
    ("  {name} = load i64, ptr {place}, align 8", "  call void @llvm.aarch64.set.fpcr(i64 {name})"),
    "i64",
    1 << 24,
)
_CONTROLS = {"x86_64": _X86, "aarch64": _ARM, "arm64": _ARM}


def control_of(triple: str) -> Control | None:
    """The control word of a machine; None where there is none that this knows."""
    return _CONTROLS.get(triple.split("-", 1)[0])


def take(control: Control | None, place: str, name: str) -> list[str]:
    """The thread's control word goes to a place; nothing where there is none. `name` is free for a value."""
    return [line.format(place=place, name=name) for line in control.take] if control else []


def put(control: Control | None, place: str, name: str) -> list[str]:
    """The control word at a place becomes the thread's."""
    return [line.format(place=place, name=name) for line in control.put] if control else []
