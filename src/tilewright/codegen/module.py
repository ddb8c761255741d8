"""A module of loops functions becomes one LLVM module with one entry point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from tilewright.codegen.statements import FaultMessage, Statements, kernel_symbol, parameters
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Function, Publish
from tilewright.loops.text import constants_of
from tilewright.report.errors import UserError
from tilewright.target import Target

ENTRY = "tilewright_entry"


@dataclass(frozen=True, slots=True)
class Generated:
    """LLVM IR text, and the messages that the entry point's positive results stand for (1 is the first)."""

    text: str
    faults: tuple[FaultMessage, ...]


def generate(functions: Mapping[str, Function], entry: str, target: Target) -> Generated:
    """LLVM IR for the functions, `entry` being the one that the entry point runs."""
    faults: list[FaultMessage] = []
    parts: list[str] = []
    declarations: set[str] = set()
    for function in functions.values():
        body = Statements(faults, "!0")
        parts.append(_entry(function, body) if function.name == entry else _kernel(function, body))
        declarations |= body.declarations
        if body.converts_f16 and not target.has_f16c:
            raise _no_f16(function, target)
    head = [f'target triple = "{target.triple}"', f'target datalayout = "{target.data_layout}"', ""]
    text = "\n".join([*head, *sorted(declarations), "", *parts, _footer(target)])
    return Generated(text, tuple(faults))


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


def _entry(function: Function, body: Statements) -> str:
    """The entry function: its parameters and the constants it uses come out of the caller's arrays. Places of the
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
        f"define i64 @{ENTRY}(ptr noalias %arguments, ptr noalias %constants, ptr noalias %symbols, "
        "ptr noalias %arena, i64 %arena_bytes, ptr noalias %fault) #0"
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
