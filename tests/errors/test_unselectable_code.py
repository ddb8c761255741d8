"""Code that LLVM has no instructions for: an error, where LLVM ends the process that it runs in."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

import tilewright as tw
from tilewright.codegen.assemble import assemble, is_tried
from tilewright.expr import dtypes
from tilewright.loops.nodes import Function
from tilewright.report.errors import InternalError, UserError
from tilewright.target import Target
from tilewright.target.instructions import Instruction, Register, register, unregister

STRANGE = Target.parse("riscv64 +zvl512b")
FINE = "define float @f(float %x) {\n  %y = fadd float %x, 1.0\n  ret float %y\n}\n"
ALIEN = (
    "declare void @llvm.aarch64.hint(i32)\ndefine void @f() {\n  call void @llvm.aarch64.hint(i32 1)\n  ret void\n}\n"
)


def module(text: str) -> str:
    return f'target triple = "{STRANGE.triple}"\ntarget datalayout = "{STRANGE.data_layout}"\n{text}'


def test_only_models_and_this_machine_are_trusted() -> None:
    assert is_tried(Target.parse("native")) and is_tried(Target.parse("riscv64")) and is_tried(Target.parse("aarch64"))
    assert not is_tried(STRANGE) and not is_tried(Target.parse("aarch64 +sve512"))


def test_what_cannot_be_selected_is_an_error_again_and_again() -> None:
    expected = assemble(module(FINE), STRANGE)
    for _ in range(2):
        with pytest.raises(UserError) as fault:
            assemble(module(ALIEN), STRANGE)
        assert "cannot make code for the target riscv64 +zvl512b" in str(fault.value)
        assert "asks of it: LLVM ERROR: " in str(fault.value)
        assert assemble(module(FINE), STRANGE) == expected, "further code is made as before"


def test_code_is_the_same_as_of_this_process() -> None:
    machine = STRANGE.create_machine()
    assert assemble(module(FINE), STRANGE) == machine.emit_object(llvm.parse_assembly(module(FINE)))


def test_invalid_code_is_the_same_error() -> None:
    with pytest.raises(InternalError, match="LLVM refused the code we generated"):
        assemble(module("define float @f(float %x) {\n  ret i32 1\n}\n"), STRANGE)


def test_a_program_that_names_another_machines_instruction() -> None:
    """Through all of the compiler: an instruction that was registered for a machine that does not have it."""
    registers = tuple(Register(name, dtypes.f32, (4,)) for name in ("a", "b", "acc"))
    call = "call <4 x float> @llvm.aarch64.neon.fmulx.v4f32(<4 x float> {a}, <4 x float> {b})"
    nest = "for l in 0..4:\n  acc[l] += a[l] * b[l]"
    lines = (call, "fadd <4 x float> {acc}, {0}")
    register(Instruction("test.alien", (("v",),), registers, nest, lines))
    program = tw.parse("""
func main(x: f32[4], y: f32[4], z: f32[4]):
  instruct test.alien = l in 0..4:
    z[l] += x[l] * y[l]
""")
    assert isinstance(program, Function)
    try:
        with pytest.raises(UserError, match="cannot make code for the target"):
            tw.build(program, target="riscv64 +zvl512b")
    finally:
        unregister("test.alien")
