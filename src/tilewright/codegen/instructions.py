"""Instructions of the target as LLVM's intrinsics: registers are filled, then the lines of the description follow."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewright.codegen.emitter import Emitter
from tilewright.codegen.types import element_type, vector_of
from tilewright.loops.nodes import Instruct
from tilewright.target.instructions import Instruction, Register

_CALL = re.compile(r"call (?P<result><[^>]*>|\w+) (?P<symbol>@[\w.]+)\((?P<arguments>.*)\)")
_PLACE = re.compile(r" (?:\{\w+\}|\d+(?=,|$))")


def instruct(out: Emitter, node: Instruct) -> str:
    """The accumulator after an instruction whose registers have been computed."""
    names: dict[str, str] = {}
    for register, arg in zip(node.instruction.registers, node.args, strict=True):
        names[register.name] = _filled(out, register, out.value(arg), arg.lanes)
    return issue(out, node.instruction, names)


def issue(out: Emitter, instruction: Instruction, names: Mapping[str, str]) -> str:
    """The accumulator after an instruction on full registers, by their names."""
    results: list[str] = []
    for line in instruction.llvm:
        call = _CALL.match(line)
        if call is not None:
            types = _PLACE.sub("", call["arguments"])
            out.declarations.add(f"declare {call['result']} {call['symbol']}({types})")
        results.append(out.fresh(line.format(*results, **names)))
    return results[-1] if results else names[instruction.registers[0].name]


def _filled(out: Emitter, register: Register, value: str, lanes: int) -> str:
    """The register with these lanes repeated until it is full; repeated as one integer where they are as wide as
    one, so that a single instruction does it."""
    element, whole = element_type(register.dtype), register.lanes
    if lanes == whole:
        return value
    if lanes == 1:
        return out.splat(value, element, whole)
    bits, few, many = lanes * register.dtype.bits, vector_of(element, lanes), vector_of(element, whole)
    if bits in (16, 32, 64):
        one = out.fresh(f"bitcast {few} {value} to i{bits}")
        copies = out.splat(one, f"i{bits}", whole // lanes)
        return out.fresh(f"bitcast {vector_of(f'i{bits}', whole // lanes)} {copies} to {many}")
    places = ", ".join(f"i32 {n % lanes}" for n in range(whole))
    return out.fresh(f"shufflevector {few} {value}, {few} poison, <{whole} x i32> <{places}>")
