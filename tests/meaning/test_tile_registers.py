"""Instructions on registers of two dimensions: their programs against plain arithmetic, the assembly for machines that
have them, and machine code where this one does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from drawn import LONG
from tilewright.codegen.assemble import assembly
from tilewright.compiler.pipeline import lower_function
from tilewright.expr import dtypes
from tilewright.graph.parse import parse_module
from tilewright.loops.evaluate import evaluate
from tilewright.loops.instructions import match, meaning
from tilewright.loops.nodes import For, Function
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.graph.reduce_precision import reduce_precision
from tilewright.lower.loops.flatten_buffers import flatten_buffers
from tilewright.lower.loops.lower_blocks import lower_blocks
from tilewright.lower.loops.select_instructions import select_instructions
from tilewright.lower.loops.simplify_indices import simplify_indices
from tilewright.plan.choose import schedule
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.price.contraction import RegisterTile
from tilewright.plan.template import candidates
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
  for ko in 0..{steps}:
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


def product(name: str, steps: int = 4) -> Function:
    """A product of 32 rows and columns by an instruction, in so many steps of a tile's terms."""
    a, b, acc = INSTRUCTIONS[name].registers
    depth = a.shape[-1]
    words = {"one": a.dtype, "other": b.dtype, "sums": acc.dtype, "zero": "0.0" if acc.dtype.is_float else "0"}
    fours, step = steps * 16, 16 * depth
    f = parse(PRODUCT.format(name=name, depth=depth, step=step, steps=steps, terms=steps * step, fours=fours, **words))
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
    return listing[min(listing.index(name) for name in ("k.product:", "k.product.body0:") if name in listing) :]


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
    f = product(name, steps=2)
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
    f = parse(text.format(name="x86.amx.dot_bf16", depth=2, step=32, steps=4, terms=128, fours=64, **words))
    with pytest.raises(UserError, match=why):
        verify(f, family=UserError)


def test_a_target_without_tiles() -> None:
    with pytest.raises(UserError, match=r"the target has no amx-tile"):
        tw.build(product("x86.amx.dot_bf16"), target="x86-64-v4")


MATMUL = """
func product(x: {one}[{rows}, {terms}], w: {other}[{terms}, {columns}], b: {sums}[{columns}], y: {sums}{shape}):
  alloc p: {sums}{shape} in arena
  for i in 0..{rows}, j in 0..{columns}, k in 0..{terms}:
    block dot(vi = i, vj = j, reduce vk = k):
      init: p[vi, vj] = 0
      p[vi, vj] += {sums}(x[vi, vk]) * {sums}(w[vk, vj])
  for i in 0..{rows}, j in 0..{columns}:
    block out(vi = i, vj = j):
      y[vi, vj] = max(p[vi, vj] + b[vj], {zero})
"""
"""A product of matrices as a template gets it, with an epilogue."""

IN_TILES = "contraction-in-tiles"
SIZES = [(32, 32, 64), (64, 48, 64), (37, 29, 70), (16, 17, 33), (3, 64, 64), (130, 16, 64)]
"""Rows, columns, terms: whole tiles, and edges of each."""


def matmul(one: str, other: str, sums: str, size: tuple[int, int, int]) -> Function:
    rows, columns, terms = size
    zero = "0.0" if sums == "f32" else "0"
    f = parse(
        MATMUL.format(
            one=one, other=other, sums=sums, rows=rows, columns=columns, terms=terms, zero=zero, shape=[rows, columns]
        ),
    )
    verify(f)
    return f


def in_tiles(f: Function) -> Function:
    """The function by the cheapest choice for tiles."""
    facts = Facts(f)
    made = next(c for c in candidates(facts, SAPPHIRE) if c.template.name == IN_TILES).schedule(facts, SAPPHIRE).func
    verify(made)
    return made


def operands_for(f: Function) -> tuple[list[Array], Array]:
    """Operands of small numbers, room for the result, and the result in wide arithmetic."""
    random = np.random.default_rng(1)
    made: list[Array] = []
    for p in f.params[:3]:
        shape = [int(str(d)) for d in p.shape]
        low = 0 if p.dtype.kind == "u" else -120
        drawn = random.standard_normal(shape) if p.dtype.is_float else random.integers(low, 120, shape)
        made.append(np.asarray(drawn).astype(p.dtype.numpy))
    x, w, b = (a.astype(np.float64) for a in made)
    expected = np.maximum(x @ w + b, 0)
    return [*made, np.zeros(expected.shape, f.params[3].dtype.numpy)], expected


BF16, *INTEGERS = [("bf16", "bf16", "f32"), ("u8", "i8", "i32"), ("i8", "i8", "i32")]
PRODUCTS = [(size, BF16) for size in SIZES] + [
    (size, types) for size in SIZES[:: 1 if LONG else 2] for types in INTEGERS
]
"""bf16 in all sizes; integers, which take the same steps, in whole tiles, in edges of all three, and in few rows."""


@pytest.mark.parametrize(("size", "types"), PRODUCTS)
def test_products_of_any_size_run_in_tiles(size: tuple[int, int, int], types: tuple[str, str, str]) -> None:
    f = matmul(*types, size)
    made = in_tiles(f)
    arrays, expected = operands_for(f)
    evaluate(made, arrays)
    np.testing.assert_allclose(arrays[-1], expected, atol=1e-4 if types[2] == "f32" else 0)
    kernel = kernel_of(assembly(lower_function(made, SAPPHIRE).llvm, SAPPHIRE))
    assert "tdp" in kernel and kernel.count("ldtilecfg") == kernel.count("tilerelease") == 1
    assert not re.search(r"%tmm\d+, \d*\(%rsp\)", kernel), "no tile is spilled"
    if all(INSTRUCTIONS[name].runs_on(native()) for name in DOTS):
        found, _ = operands_for(f)
        tw.build(made)(*found)
        np.testing.assert_allclose(found[-1], expected, atol=1e-4 if types[2] == "f32" else 0)


def test_two_by_three_tiles_of_sums_take_seven_loads() -> None:
    """Of a large product, a step of 32 terms is seven loads and six products, and a store that keeps stores awake."""
    made = in_tiles(matmul("bf16", "bf16", "f32", (128, 768, 768)))
    kernel = kernel_of(assembly(lower_function(made, SAPPHIRE).llvm, SAPPHIRE))
    inner = [text for _, text in re.findall(r"^(\.LBB\S+):\n((?:\t.*\n)+?)\tj\w+\s+\1\n", kernel, re.MULTILINE)]
    (loop,) = [text for text in inner if "tdpbf16ps" in text]
    words = re.findall(r"^\t(t\w+)", loop, re.MULTILINE)
    assert sorted(words) == ["tdpbf16ps"] * 6 + ["tileloadd"] * 7 + ["tilestored", "tilezero"], loop


def test_sums_of_blocks_of_terms_are_taken_up_again() -> None:
    f = matmul("bf16", "bf16", "f32", (64, 64, 128))
    facts = Facts(f)
    found = next(c for c in candidates(facts, SAPPHIRE) if c.template.name == IN_TILES)
    tile = RegisterTile(32, 2, 16)
    made = replace(found, choice=replace(found.choice, tile=tile, block_tiles=2, block_terms=3, rows_stay=True))
    s = made.schedule(facts, SAPPHIRE).func
    verify(s)
    arrays, expected = operands_for(f)
    evaluate(s, arrays)
    np.testing.assert_allclose(arrays[-1], expected, atol=1e-3)
    kernel = kernel_of(assembly(lower_function(s, SAPPHIRE).llvm, SAPPHIRE))
    counts = {w: kernel.count(f"\t{w}\t") for w in ("tileloadd", "tilestored", "tdpbf16ps", "tilezero")}
    assert counts == {"tileloadd": 8, "tilestored": 4 + 1, "tdpbf16ps": 4, "tilezero": 1}  # one keeps stores awake


def test_tiles_are_taken_where_a_machine_has_them_and_they_are_faster() -> None:
    f = matmul("bf16", "bf16", "f32", (128, 256, 256))
    assert schedule(f, SAPPHIRE)[1].template == IN_TILES
    slow = SAPPHIRE.with_core(dots=dict.fromkeys(DOTS, 4000.0))
    assert schedule(f, slow)[1].template == "contraction"
    for text in ("x86-64-v3", "x86-64-v4 +avx512bf16", "x86-64-v4 +amx-tile", "aarch64 +bf16"):
        target = Target.parse(text)
        assert not [c for c in candidates(Facts(f), target) if c.template.name == IN_TILES]
        assert schedule(f, target)[1].template != IN_TILES


def test_pairs_at_half_the_rate_round_nothing_and_tiles_do() -> None:
    """As on Sapphire Rapids, where a product of bf16 pairs takes four multiply-adds of the same width."""
    half_rate = {"x86.avx512bf16.dot_bf16": 2.0}
    pairs = Target.parse("x86-64-v4 +avx512bf16").with_core(fma_cycles=0.5, dots=half_rate)
    tiles = SAPPHIRE.with_core(fma_cycles=0.5, dots=half_rate)
    text = """
graph main(x: f32[128, 256]) -> y:
  w: f32[256, 512] = constant(name=@w)
  y: f32[128, 512] = contract(x, w, spec="ik,kj->ij")
"""
    module = parse_module(text).with_constants({"w": np.ones((256, 512), np.float32)})
    rounded = {target: "bf16" in str(reduce_precision(module, target)) for target in (pairs, tiles)}
    assert rounded == {pairs: False, tiles: True}


def test_the_next_panel_of_a_constant_is_prefetched_between_products() -> None:
    text = """
graph main(x: f32[128, 256]) -> y:
  w: f32[256, 512] = constant(name=@w)
  y: f32[128, 512] = contract(x, w, spec="ik,kj->ij")
"""
    random = np.random.default_rng(0)
    module = parse_module(text).with_constants({"w": random.standard_normal((256, 512)).astype(np.float32)})
    exe = tw.compile(module, target=SAPPHIRE, precision="bf16")
    (taken,) = [d.taken for d in exe.decisions.values() if d.template == IN_TILES]
    assert taken.choice is not None and taken.choice["prefetch"]
    listing = exe.show(after="assembly")
    inner = [t for _, t in re.findall(r"^(\.LBB\S+):\n((?:\t.*\n)+?)\tj\w+\s+\1\n", listing, re.MULTILINE)]
    (loop,) = [t for t in inner if "tdpbf16ps" in t]
    words = re.findall(r"^\t((?:t|prefetch)\w+)", loop, re.MULTILINE)
    assert (words.count("tdpbf16ps"), words.count("tileloadd")) == (6, 7), loop
    assert 0 < words.count("prefetcht2") <= 32, loop
