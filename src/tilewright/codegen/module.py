"""Loops functions become LLVM IR: modules of a few kernels, and one for the program with its entry point.

What a unit (units.py), a kernel with the functions that it calls, makes does not depend on the others: its checks are
numbered from 1, and the program adds how many come before it. So kernels are compiled in any process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from tilewright.codegen.abi import CALL, ENTRY, LEAVE, FaultMessage
from tilewright.codegen.interrupts import stopped_text
from tilewright.codegen.names import kernel_symbol
from tilewright.codegen.parallel import emit_range, emit_share
from tilewright.codegen.parts import RANGE, runs_by_parts
from tilewright.codegen.pool import DECLARE_LEAVE, TEAM
from tilewright.codegen.profile import DECLARE_SITES
from tilewright.codegen.statements import Statements, parameters
from tilewright.codegen.subnormals import Control, control_of, put, take
from tilewright.codegen.units import handed_out, units_of
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Function, Publish
from tilewright.loops.text import constants_of
from tilewright.report.errors import UserError
from tilewright.target import Target
from tilewright.target.instructions import byte_dots

PROGRAM = "program"

GROUP = 4
"""Kernels of a large model that make an object file together. LLVM takes one to two milliseconds for a file beside what
is in it, a tenth of what it takes for a kernel; larger groups save little more, and leave processes without work."""

T = TypeVar("T")

LOOP_ALIGNMENT = 64
"""Innermost loops begin at a multiple of this many bytes, a line of the instruction cache. Otherwise the speed of a
tile of bf16 pairs depends on the address of its function: with tiles of 5 x 80, a product took 0.23 or 0.31 ms."""

STACK_BITS = 128
"""The System V ABI and Windows align the stack of x86-64 to 16 bytes. LLVM says how a function aligns its own before
registers are allocated, and none does for what it may spill: a wider vector on the stack then lies across cache lines,
and what is loaded right after it was stored waits (a tile of 7 x 7 windows that spills took a quarter longer). So all
functions of a program keep the stack aligned to a vector, and those that others call align it first (`#1`)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Functions as LLVM IR: what they declare, those of other units that they call, their definitions; the messages of
    their checks, of which the first has number 1; and whether they use the pool. `names` are what others may call,
    `sites` the kernels that a program calls, in the order of the places where it does."""

    names: tuple[str, ...]
    declarations: tuple[str, ...]
    others: tuple[str, ...]
    definitions: str
    faults: tuple[FaultMessage, ...]
    forks: bool
    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Generated:
    """The units of a program, that of its entry first, and the messages that the entry point's positive results stand
    for (1 is the first)."""

    units: tuple[Unit, ...]
    faults: tuple[FaultMessage, ...]
    target: Target

    @property
    def sites(self) -> tuple[str, ...]:
        """The kernels that the program calls, by the numbers of the places where it does: see profile.py."""
        return self.units[0].sites

    @property
    def forks(self) -> bool:
        """Whether the program uses the pool."""
        return any(unit.forks for unit in self.units)

    @property
    def text(self) -> str:
        """The whole program as one module."""
        declarations = {line for unit in self.units for line in unit.declarations}
        return _module(sorted(declarations), [unit.definitions for unit in self.units], self.target)

    def texts(self) -> list[str]:
        """The program as several modules: that of its entry, then one for each group of kernels."""
        first, *kernels = self.units
        return [module_of((first,), self.target), *(module_of(group, self.target) for group in grouped(kernels))]


def grouped(kernels: Sequence[T]) -> list[Sequence[T]]:
    """Kernels, in the order of their program, in the groups that make an object file together."""
    return [kernels[n : n + GROUP] for n in range(0, len(kernels), GROUP)]


def module_of(units: Sequence[Unit], target: Target) -> str:
    """Some units of a program as one module."""
    needed = dict.fromkeys(line for unit in units for line in (*unit.declarations, *unit.others))
    return _module(list(needed), [unit.definitions for unit in units], target)


def generate(functions: Mapping[str, Function], entry: str, target: Target) -> Generated:
    """LLVM IR for the functions, `entry` being the one that the entry point runs."""
    program, *kernels = units_of(functions, entry)
    return join(program, [generate_unit(unit, target) for unit in kernels], target)


def generate_unit(functions: Sequence[Function], target: Target) -> Unit:
    """LLVM IR for the functions of a unit that is not the program's."""
    return _unit(functions, None, {}, [], False, target)


def join(program: Sequence[Function], kernels: Sequence[Unit], target: Target) -> Generated:
    """A program, given as the functions of its unit, of which the first is its entry, with the units that it calls."""
    faults: list[FaultMessage] = []
    before: dict[str, int] = {}
    for unit in kernels:
        before.update(dict.fromkeys(unit.names, len(faults)))
        faults += unit.faults
    forks = any(unit.forks for unit in kernels)
    made = _unit(program, program[0].name, before, faults, forks, target)
    return Generated((made, *kernels), tuple(faults), target)


def _unit(
    functions: Sequence[Function],
    entry: str | None,
    before: Mapping[str, int],
    faults: list[FaultMessage],
    forks: bool,
    target: Target,
) -> Unit:
    """The IR of functions. `faults` takes the messages of their checks, behind those that are there; `before` says how
    many checks come before those of the functions of other units; `forks` whether one of these uses the pool."""
    known = len(faults)
    sites: list[str] = []
    parts: list[str] = []
    forked = handed_out({f.name: f for f in functions})
    forks = forks or bool(forked)
    declarations: set[str] = {DECLARE_LEAVE} if forks and entry is not None else set()
    control = control_of(target.triple)
    declarations |= set(control.declarations) if control is not None and entry is not None else set()
    others: set[str] = set()
    looks = False
    for function in functions:
        body = Statements(faults, before)
        body.out.byte_dots = byte_dots(target)
        body.out.casts_saturate = target.casts_saturate
        if function.name == entry:
            body.sites = sites
            parts.append(_entry(function, body))
            looks = body.looks
            declarations |= set(DECLARE_SITES) if sites else set()
        elif function.name in forked:
            turns = forked[function.name]
            parts += [emit_range(function, body, turns), emit_share(function, turns)]
        else:
            parts.append(_kernel(function, body))
        declarations |= body.out.declarations
        others |= body.others
        if body.out.converts_f16 and not target.has_f16c:
            raise _no_f16(function, target)
    if entry is not None:
        parts += [*([stopped_text(target.triple)] if looks else []), _call_in(forks, control)]
    names = tuple(f.name for f in functions if f.name != entry and f.name not in forked)
    own = tuple(faults[known:])
    return Unit(names, tuple(sorted(declarations)), tuple(sorted(others)), "\n".join(parts), own, forks, tuple(sites))


def _module(declarations: Sequence[str], parts: Sequence[str], target: Target) -> str:
    head = [f'target triple = "{target.triple}"', f'target datalayout = "{target.data_layout}"', ""]
    return "\n".join([*head, *declarations, "", *parts, _footer(target)])


def _no_f16(function: Function, target: Target) -> UserError:
    """LLVM would call a library for the conversion, which no process has to have."""
    return UserError(
        f"cannot compile f16 for the target {target}",
        where=", ".join(function.source) or f"the function {function.name}",
        why="it has no instructions that convert between f16 and f32 (F16C)",
        fix="compile for x86-64-v3 or later, or keep the data in bf16 or f32",
    )


def _kernel(function: Function, body: Statements) -> str:
    for n, buffer in enumerate(function.params):
        body.memory.pointers[buffer] = f"%b{n}"
    for n, symbol in enumerate(function.symbols):
        body.out.define(symbol, f"%s{n}")
    body.statement(function.body)
    signature = f"define i64 @{kernel_symbol(function.name)}({', '.join(parameters(function))}) #0"
    return "\n".join([f"{signature} {{", "entry:", *body.out.allocas, *body.out.lines, "  ret i64 0", "}", ""])


def _call_in(forks: bool, control: Control | None) -> str:
    """The entry point: makes the call's team, runs the program, and lets the workers go. Around that subnormal numbers
    are flushed where the call wants it; however the program ends, the caller's control word is put back."""
    lines = [f"define i64 @{ENTRY}(ptr noalias %call) #1 {{"]
    for n, name in enumerate(CALL):
        kind = "i64" if name in ("arena_bytes", "threads", "flushes", "kernels") else "ptr"
        lines.append(f"  %at.{name} = getelementptr i64, ptr %call, i64 {n}")
        lines.append(f"  %{name} = load {kind}, ptr %at.{name}, align 8")
    lines += [
        f"  %team = alloca {TEAM}, align 64",
        f"  store {TEAM} zeroinitializer, ptr %team, align 8",
        "  store i64 %threads, ptr %team, align 8",
        f"  %asked = getelementptr {TEAM}, ptr %team, i64 0, i32 3",
        "  store ptr %profile, ptr %asked, align 8",
        f"  %threads_of = getelementptr {TEAM}, ptr %team, i64 0, i32 4",
        "  store ptr %others, ptr %threads_of, align 8",
        *_flush(control),
        f"  %status = call i64 @{PROGRAM}(ptr %arguments, ptr %constants, ptr %symbols, ptr %arena, "
        "i64 %arena_bytes, ptr %fault, ptr %team, ptr %profile, ptr %stop, i64 %kernels)",
    ]
    lines += [f"  call void @{LEAVE}(ptr %team)"] if forks else []
    lines += _restore(control)
    return "\n".join([*lines, "  ret i64 %status", "}", ""])


def _flush(control: Control | None) -> list[str]:
    """The thread flushes from here on, where the call wants it."""
    if control is None:
        return []
    return [
        "  %before = alloca i64, align 8",
        "  %during = alloca i64, align 8",
        "  %flushed = icmp ne i64 %flushes, 0",
        "  br i1 %flushed, label %flush, label %run",
        "flush:",
        *take(control, "%before", "%taken"),
        f"  %kept = load {control.word}, ptr %before, align 8",
        f"  %wanted = or {control.word} %kept, {control.bits}",
        f"  store {control.word} %wanted, ptr %during, align 8",
        *put(control, "%during", "%put"),
        "  br label %run",
        "run:",
    ]


def _restore(control: Control | None) -> list[str]:
    """The thread's control word is what it was."""
    if control is None:
        return []
    restored = put(control, "%before", "%restored")
    return ["  br i1 %flushed, label %restore, label %end", "restore:", *restored, "  br label %end", "end:"]


def _entry(function: Function, body: Statements) -> str:
    """The program itself: its parameters and the constants it uses come out of the caller's arrays. Places of the
    caller's pointers that the function publishes results in are no parameters'."""
    published = {s.argument for s in statements(function.body) if isinstance(s, Publish)}
    free = (n for n in count() if n not in published)
    body.tables = {buffer: ("%arguments", next(free)) for buffer in function.params}
    body.tables |= {buffer: ("%constants", n) for n, buffer in enumerate(constants_of(function))}
    for buffer, place in body.tables.items():
        body.memory.pointers[buffer] = body.out.element("ptr", *place)
    for n, symbol in enumerate(function.symbols):
        body.rooms[symbol] = n
        body.out.define(symbol, body.out.element("i64", "%symbols", n))
    body.by_parts = runs_by_parts(function)
    body.out.lines += RANGE if body.by_parts else []
    body.statement(function.body)
    signature = (
        f"define internal i64 @{PROGRAM}(ptr noalias %arguments, ptr noalias %constants, ptr noalias %symbols, "
        "ptr noalias %arena, i64 %arena_bytes, ptr noalias %fault, ptr noalias %team, ptr %profile, ptr %stop, "
        "i64 %kernels) #0"
    )
    return "\n".join([f"{signature} {{", "entry:", *body.out.allocas, *body.out.lines, "  ret i64 0", "}", ""])


def _footer(target: Target) -> str:
    width, flags, called = target.vector_bits, [], ""
    attributes = f'noinline nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    attributes += f" {target.length_attribute}"
    if target.architecture == "x86_64" and width > STACK_BITS:
        flags = ["!llvm.module.flags = !{!6}", f'!6 = !{{i32 1, !"override-stack-alignment", i32 {width // 8}}}']
        called = ' "stackrealign"'
    return "\n".join(
        [
            f"attributes #0 = {{ {attributes} }}",
            f"attributes #1 = {{ {attributes}{called} }}",
            *flags,
            "!0 = distinct !{!0, !1, !2}",
            '!1 = !{!"llvm.loop.unroll.disable"}',
            '!2 = !{!"llvm.loop.vectorize.enable", i1 false}',
            '!3 = !{!"branch_weights", i32 1, i32 100000}',
            "!4 = distinct !{!4, !1, !2, !5}",
            f'!5 = !{{!"llvm.loop.align", i32 {LOOP_ALIGNMENT}}}',
        ]
    )
