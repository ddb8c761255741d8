"""A module of loops functions becomes one LLVM module with one entry point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from tilewright.codegen.names import forked_call, kernel_symbol
from tilewright.codegen.parallel import emit_range, emit_share
from tilewright.codegen.pool import DECLARE_LEAVE, LEAVE, TEAM
from tilewright.codegen.statements import FaultMessage, Statements, parameters
from tilewright.loops.edit import statements
from tilewright.loops.nodes import For, Function, Publish
from tilewright.loops.text import constants_of
from tilewright.report.errors import UserError
from tilewright.target import Target

ENTRY = "tilewright_entry"
PROGRAM = "program"


@dataclass(frozen=True, slots=True)
class Generated:
    """LLVM IR text, and the messages that the entry point's positive results stand for (1 is the first)."""

    text: str
    faults: tuple[FaultMessage, ...]


def generate(functions: Mapping[str, Function], entry: str, target: Target) -> Generated:
    """LLVM IR for the functions, `entry` being the one that the entry point runs."""
    faults: list[FaultMessage] = []
    parts: list[str] = []
    forked = _handed_out(functions)
    declarations: set[str] = {DECLARE_LEAVE} if forked else set()
    for function in functions.values():
        body = Statements(faults, "!0")
        if function.name == entry:
            parts.append(_entry(function, body))
        elif function.name in forked:
            turns = forked[function.name]
            parts += [emit_range(function, body, turns), emit_share(function, turns)]
        else:
            parts.append(_kernel(function, body))
        declarations |= body.declarations
        if body.converts_f16 and not target.has_f16c:
            raise _no_f16(function, target)
    head = [f'target triple = "{target.triple}"', f'target datalayout = "{target.data_layout}"', ""]
    text = "\n".join([*head, *sorted(declarations), "", *parts, _call_in(bool(forked)), _footer(target)])
    return Generated(text, tuple(faults))


def _handed_out(functions: Mapping[str, Function]) -> dict[str, bool]:
    """The names of the functions that parallel loops hand to the pool, and whether these may run backward: nothing else
    calls them."""
    loops = (s for f in functions.values() for s in statements(f.body) if isinstance(s, For))
    calls = ((forked_call(loop), loop) for loop in loops)
    return {call.callee: loop.backward is not None for call, loop in calls if call is not None}


def _no_f16(function: Function, target: Target) -> UserError:
    """LLVM would call a library for the conversion, which no process has to have."""
    return UserError(
        f"cannot compile f16 for the target {target}",
        where=", ".join(function.source) or f"the function {function.name}",
        why="it has no instructions that convert between f16 and f32 (F16C)",
        mend="compile for x86-64-v3 or later, or keep the data in bf16 or f32",
    )


def _kernel(function: Function, body: Statements) -> str:
    for n, buffer in enumerate(function.params):
        body.pointers[buffer] = f"%b{n}"
    for n, symbol in enumerate(function.symbols):
        body.define(symbol, f"%s{n}")
    body.statement(function.body)
    signature = f"define internal i64 @{kernel_symbol(function.name)}({', '.join(parameters(function))}) #0"
    return "\n".join([f"{signature} {{", "entry:", *body.allocas, *body.lines, "  ret i64 0", "}", ""])


def _call_in(forks: bool) -> str:
    """The entry point: makes the call's team, runs the program, and lets the workers go."""
    lines = [
        f"define i64 @{ENTRY}(ptr noalias %arguments, ptr noalias %constants, ptr noalias %symbols, "
        "ptr noalias %arena, i64 %arena_bytes, ptr noalias %fault, i64 %threads) #0 {",
        f"  %team = alloca {TEAM}, align 64",
        f"  store {TEAM} zeroinitializer, ptr %team, align 8",
        "  store i64 %threads, ptr %team, align 8",
        f"  %status = call i64 @{PROGRAM}(ptr %arguments, ptr %constants, ptr %symbols, ptr %arena, "
        "i64 %arena_bytes, ptr %fault, ptr %team)",
    ]
    lines += [f"  call void @{LEAVE}(ptr %team)"] if forks else []
    return "\n".join([*lines, "  ret i64 %status", "}", ""])


def _entry(function: Function, body: Statements) -> str:
    """The program itself: its parameters and the constants it uses come out of the caller's arrays. Places of the
    caller's pointers that the function publishes results in are no parameters'."""
    published = {s.argument for s in statements(function.body) if isinstance(s, Publish)}
    free = (n for n in count() if n not in published)
    for buffer in function.params:
        body.pointers[buffer] = _element(body, "ptr", "%arguments", next(free))
    for n, buffer in enumerate(constants_of(function)):
        body.pointers[buffer] = _element(body, "ptr", "%constants", n)
    for n, symbol in enumerate(function.symbols):
        body.define(symbol, _element(body, "i64", "%symbols", n))
    body.statement(function.body)
    signature = (
        f"define internal i64 @{PROGRAM}(ptr noalias %arguments, ptr noalias %constants, ptr noalias %symbols, "
        "ptr noalias %arena, i64 %arena_bytes, ptr noalias %fault, ptr noalias %team) #0"
    )
    return "\n".join([f"{signature} {{", "entry:", *body.allocas, *body.lines, "  ret i64 0", "}", ""])


def _element(body: Statements, type_: str, table: str, n: int) -> str:
    return body.fresh(
        f"load {type_}, ptr {body.fresh(f'getelementptr inbounds {type_}, ptr {table}, i64 {n}')}, align 8"
    )


def _footer(target: Target) -> str:
    width = target.vector_bits
    attributes = f'noinline nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    return "\n".join(
        [
            f"attributes #0 = {{ {attributes} }}",
            "!0 = distinct !{!0, !1, !2}",
            '!1 = !{!"llvm.loop.unroll.disable"}',
            '!2 = !{!"llvm.loop.vectorize.enable", i1 false}',
            '!3 = !{!"branch_weights", i32 1, i32 100000}',
        ]
    )
