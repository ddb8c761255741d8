"""Instructions on registers of two dimensions: their programs against plain arithmetic, the assembly for machines that
have them, and machine code where this one does."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.assemble import assembly
from tilewright.compiler.pipeline import lower_function
from tilewright.expr import dtypes
from tilewright.loops.evaluate import evaluate
from tilewright.loops.instructions import match, meaning
from tilewright.loops.nodes import For, Function
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.flatten_buffers import flatten_buffers
from tilewright.lower.loops.lower_blocks import lower_blocks
from tilewright.lower.loops.select_instructions import select_instructions
from tilewright.lower.loops.simplify_indices import simplify_indices
from tilewright.report.errors import UserError
from tilewright.target import Target, native
from tilewright.target.instructions import INSTRUCTIONS, Instruction

Array = np.ndarray[Any, Any]
TILES = [name for name, i in INSTRUCTIONS.items() if i.has_tiles]
DOTS = [name for name in TILES if ".dot_" in name]
SAPPHIRE = Target.parse("x86-64-v4 +amx-bf16 +amx-int8 +avx512bf16 +avx512vnni")
MNEMONICS = {
    "x86.amx.dot_bf16": "tdpbf16ps",
    "x86.amx.dot_u8": "tdpbuud",
    "x86.amx.dot_u8i8": "tdpbusd",
    "x86.amx.dot_i8u8": "tdpbsud",
    "x86.amx.dot_i8": "tdpbssd",
}
PRODUCT = """
func product(x: {one}[32, {terms}], w: {other}[{fours}, 40, {depth}], y: {sums}[32, 48]):
  alloc t: {sums}[2, 2, 16, 16] in register
  unroll i in 0..2, j in 0..2:
    instruct x86.amx.zero_{sums} = m in 0..16:
      for n in 0..16: t[i, j, m, n] = {zero}
  for ko in 0..4:
    unroll i in 0..2, j in 0..2:
      instruct {name} = m in 0..16:
        for n in 0..16, k in 0..16, q in 0..{depth}:
          block dot(vm = i*16 + m, vn = j*16 + n, reduce vk = ko*{step} + k*{depth} + q):
            t[vm // 16, vn // 16, vm % 16, vn % 16] += {sums}(x[vm, vk]) * {sums}(w[vk // {depth}, vn, vk % {depth}])
  unroll i in 0..2, j in 0..2:
    instruct x86.amx.move_{sums} = m in 0..16:
      for n in 0..16: y[i*16 + m, j*16 + n] = t[i, j, m, n]
"""
"""32 rows and columns in four tiles. No operand lies tile by tile: its rows are longer."""


def product(name: str) -> Function:
    """A product of 32 rows and columns by an instruction."""
    a, b, acc = INSTRUCTIONS[name].registers
    depth = a.shape[-1]
    words = {"one": a.dtype, "other": b.dtype, "sums": acc.dtype, "zero": "0.0" if acc.dtype.is_float else "0"}
    f = parse(PRODUCT.format(name=name, depth=depth, step=16 * depth, terms=64 * depth, fours=64, **words))
    verify(f)
    return f


def arrays_for(f: Function) -> tuple[list[Array], Array]:
    """Operands of the whole range of their types, and the product in wide arithmetic."""
    random = np.random.default_rng(0)
    made: list[Array] = []
    for p in f.params[:2]:
        shape = [int(str(d)) for d in p.shape]
        if p.dtype.is_float:
            made.append(random.standard_normal(shape).astype(p.dtype.numpy))
        else:
            made.append(random.integers(int(p.dtype.min), int(p.dtype.max) + 1, shape).astype(p.dtype.numpy))
    x, w = made
    wide = w.astype(np.float64).transpose(0, 2, 1).reshape(x.shape[1], -1)[:, :32]
    y = np.full((32, 48), 7, f.params[2].dtype.numpy)
    return [x, w, y], x.astype(np.float64) @ wide


def check(found: Array, expected: Array) -> None:
    """Integers are equal, floats nearly; what lies beside the tiles stays as it was."""
    np.testing.assert_allclose(found[:, :32], expected, atol=1e-4 if found.dtype == np.float32 else 0)
    assert (found[:, 32:] == 7).all()


def selected(f: Function) -> Function:
    """The function over vectors: verified, and the same when its text is read back."""
    made = select_instructions(simplify_indices(flatten_buffers(lower_blocks(f))), SAPPHIRE)
    verify(made)
    assert same(parse(str(made)), made), str(made)
    return made


def kernel_of(listing: str) -> str:
    return listing[listing.index("k.product:") : listing.index(".size\tk.product")]


@pytest.mark.parametrize("name", TILES)
def test_the_description_is_a_program(name: str) -> None:
    instruction = INSTRUCTIONS[name]
    f = meaning(instruction)
    verify(f)
    assert isinstance(f.body, For)
    assert set(match(f.body, instruction).tiles) == {r.name for r in instruction.registers}
    assert set(MNEMONICS) == set(DOTS)
    for register in instruction.registers:
        assert register.lanes * register.dtype.bytes == 1024 and register.row * register.dtype.bytes == 64


@pytest.mark.parametrize("name", DOTS)
def test_the_evaluator_computes_products_of_tiles(name: str) -> None:
    """As nests and as expressions over vectors."""
    f = product(name)
    arrays, expected = arrays_for(f)
    runs = [[a.copy() for a in arrays] for _ in range(2)]
    evaluate(f, runs[0])
    check(runs[0][-1], expected)
    evaluate(selected(f), [a.reshape(-1) for a in runs[1]])
    np.testing.assert_array_equal(runs[1][-1], runs[0][-1])


@pytest.mark.parametrize("name", DOTS)
def test_four_tiles_of_sums_stay_in_registers(name: str) -> None:
    """A step is four loads and four products; tiles are configured once, cleared and stored outside of the loop, and
    released."""
    kernel = kernel_of(assembly(lower_function(product(name), SAPPHIRE).llvm, SAPPHIRE))
    (loop,) = re.findall(r"^(\.LBB\S+):\n((?:\t.*\n)+?)\tj\w+\s+\1\n", kernel, re.MULTILINE)
    words = re.findall(r"^\t(\w+)", loop[1], re.MULTILINE)
    tiles = {w: words.count(w) for w in set(words) if w.startswith(("tile", "tdp"))}
    assert tiles == {"tileloadd": 4, MNEMONICS[name]: 4}, kernel
    whole = re.findall(r"^\t(\w*tile\w*)", kernel, re.MULTILINE)
    counts = {w: whole.count(w) for w in ("ldtilecfg", "tilezero", "tilestored", "tilerelease")}
    assert counts == {"ldtilecfg": 1, "tilezero": 4, "tilestored": 4, "tilerelease": 1}, kernel
    assert not re.search(r"%tmm\d+, \S*\(%rsp|\(%rsp\S*, %tmm", kernel), "no tile is spilled"


def runs_here(instruction: Instruction) -> bool:
    return instruction.runs_on(native())


@pytest.mark.parametrize("name", DOTS)
def test_this_machine_computes_products_of_tiles(name: str) -> None:
    if not runs_here(INSTRUCTIONS[name]):
        pytest.skip("this machine has no such tiles")
    f = product(name)
    (x, w, y), expected = arrays_for(f)
    tw.build(f)(x, w, y)
    check(y, expected)


PLAIN = """
func product(x: bf16[32, 64], w: bf16[64, 32], y: f32[32, 32]):
  alloc sums: f32[32, 32] in arena
  for i in 0..32, j in 0..32, k in 0..64:
    block dot(vi = i, vj = j, reduce vk = k):
      init: sums[vi, vj] = 0.0
      sums[vi, vj] += f32(x[vi, vk]) * f32(w[vk, vj])
  for i in 0..32, j in 0..32:
    block out(vi = i, vj = j):
      y[vi, vj] = max(sums[vi, vj], 0.0)
"""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("= {zero}", "= 1.0", r"expected f32\(0\.0\)|expected 0\.0, found 1\.0"),
        ("x[vm, vk]", "x[vm, vk // 2]", "expected a step of m, n, k, q to move"),
    ],
)
def test_other_programs_are_refused(old: str, new: str, why: str) -> None:
    text = PRODUCT.replace(old, new)
    words = {"one": dtypes.bf16, "other": dtypes.bf16, "sums": dtypes.f32, "zero": "0.0"}
    f = parse(text.format(name="x86.amx.dot_bf16", depth=2, step=32, terms=128, fours=64, **words))
    with pytest.raises(UserError, match=why):
        verify(f, family=UserError)


def test_a_target_without_tiles() -> None:
    with pytest.raises(UserError, match=r"the target has no amx-tile"):
        tw.build(product("x86.amx.dot_bf16"), target="x86-64-v4")
