"""Described instructions: their programs against plain arithmetic, the evaluator against machine code where this
machine has them, and the assembly for the machines that are not here. Prefetches, which change nothing."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.assemble import assembly
from tilewright.compiler.pipeline import lower_function
from tilewright.expr import dtypes
from tilewright.loops.edit import statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.instructions import match, meaning
from tilewright.loops.nodes import For, Function, Instruct, Prefetch, Store
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.flatten_buffers import flatten_buffers
from tilewright.lower.loops.lower_blocks import lower_blocks
from tilewright.lower.loops.select_instructions import select_instructions
from tilewright.lower.loops.simplify_indices import simplify_indices
from tilewright.report.errors import UserError
from tilewright.target import Target, native
from tilewright.target.instructions import INSTRUCTIONS, Instruction, Register

Array = np.ndarray[Any, Any]
ALL = [name for name, i in INSTRUCTIONS.items() if not i.has_tiles]
HERE = [name for name in ALL if INSTRUCTIONS[name].runs_on(native())]
LAYOUTS = list(itertools.product(range(3), range(3)))
"""How many leading dimensions of the registers a and b are filled by repeating."""
SOME_LAYOUTS = [(0, 0), (1, 0), (2, 1)]

MNEMONICS = {
    "x86.fma.fma_f32": "vfmadd231ps",
    "x86.fma.fma_f64": "vfmadd231pd",
    "x86.avx512f.fma_f32": "vfmadd231ps",
    "x86.avx512f.fma_f64": "vfmadd231pd",
    "aarch64.neon.fma_f32": "fmla",
    "aarch64.neon.fma_f64": "fmla",
    **{f"x86.{f}.dot_{t}": "vpmaddwd" for f in ("avx2", "avx512bw") for t in ("i16", "i16i8", "i8", "u8i8", "u8")},
    "x86.avxvnni.dot_u8i8": "vpdpbusd",
    "x86.avx512vnni.dot_u8i8": "vpdpbusd",
    "x86.avxvnniint8.dot_i8": "vpdpbssd",
    "x86.avxvnniint8.dot_u8": "vpdpbuud",
    "x86.avx512bf16.dot_bf16": "vdpbf16ps",
    "aarch64.dotprod.dot_i8": "sdot",
    "aarch64.dotprod.dot_u8": "udot",
    "aarch64.i8mm.dot_u8i8": "usdot",
    "aarch64.bf16.dot_bf16": "bfdot",
}


def target_of(instruction: Instruction) -> Target:
    """A machine that has the instruction."""
    base = "aarch64" if instruction.name.startswith("aarch64") else "x86-64-v3"
    return Target.parse(" ".join([base, *(f"+{f}" for f in instruction.requires[0])]))


def program(instruction: Instruction, layout: tuple[int, int] = (0, 0)) -> Function:
    """One use of the instruction as a nest, with registers filled as the layout says."""
    fixed = dict(zip("ab", layout, strict=True))
    params, nest = [], instruction.nest
    for r in instruction.registers:
        gone = min(fixed.get(r.name, 0), len(r.shape))
        params.append(str(Register(r.name, r.dtype, r.shape[gone:])))
        dims = ("l", "q")[: len(r.shape)]
        nest = nest.replace(f"{r.name}[{', '.join(dims)}]", f"{r.name}[{', '.join(dims[gone:])}]")
    (head, *rest) = nest.split("\n")
    first, _, inner = head.removeprefix("for ").removesuffix(":").partition(", ")
    lines = [f"func f({', '.join(params)}):", f"  instruct {instruction} = {first}:"]
    lines += [f"    for {inner}:"] if inner else []
    return parse("\n".join([*lines, *(f"    {'  ' * bool(inner)}{line.strip()}" for line in rest)]))


def selected(f: Function, target: Target) -> Function:
    """The function with the instruction as an expression: verified, and the same when its text is read back."""
    made = select_instructions(simplify_indices(flatten_buffers(lower_blocks(f))), target)
    verify(made)
    assert same(parse(str(made)), made), str(made)
    assert any(isinstance(s, Store) and isinstance(s.value, Instruct) for s in statements(made.body))
    assert not any(isinstance(s, For) for s in statements(made.body))
    return made


def arrays_for(f: Function, kind: str) -> list[Array]:
    """Random numbers, or the ends of the types' ranges: of floats numbers whose sums are far from exact."""
    random = np.random.default_rng(sum(map(ord, kind + str(f))))
    result = []
    for p in f.params:
        shape = [int(str(d)) for d in p.shape]
        if p.dtype.is_float:
            values = random.standard_normal(shape) * (10.0 ** random.integers(-3, 3, shape) if kind == "ends" else 1)
            result.append(np.asarray(values).astype(p.dtype.numpy))
        else:
            ends = [p.dtype.min, p.dtype.max, p.dtype.min, -1 if p.dtype.kind == "i" else 1]
            drawn = random.choice(ends, shape) if kind == "ends" else random.integers(p.dtype.min, p.dtype.max, shape)
            result.append(np.asarray(drawn).astype(p.dtype.numpy))
    return result


def exact(instruction: Instruction, arrays: list[Array]) -> Array:
    """acc + the sum over q of a*b in wide arithmetic, wrapped to integers as the accumulator is."""
    wide = np.int64 if instruction.accumulator.dtype.is_int else np.float64
    whole = []
    for r, x in zip(instruction.registers, arrays, strict=True):
        whole.append(np.broadcast_to(x.astype(wide), r.shape))
    products = whole[0] * whole[1]
    return np.asarray(whole[2] + (products.sum(1) if products.ndim == 2 else products))


def close(instruction: Instruction, found: Array, arrays: list[Array]) -> None:
    """Integers are equal; floats differ by roundings of the terms."""
    expected = exact(instruction, arrays)
    if instruction.accumulator.dtype.is_int:
        np.testing.assert_array_equal(found, expected.astype(np.int32))
        return
    size = exact(instruction, [np.abs(a.astype(np.float64)) for a in arrays])
    assert (np.abs(found - expected) <= 4 * np.finfo(found.dtype).eps * size).all()


@pytest.mark.parametrize("name", ALL)
def test_the_description_is_a_program(name: str) -> None:
    instruction = INSTRUCTIONS[name]
    f = meaning(instruction)
    verify(f)
    assert isinstance(f.body, For)
    tiles = match(f.body, instruction).tiles
    assert [tiles[r.name].count for r in instruction.registers] == [r.lanes for r in instruction.registers]
    assert set(MNEMONICS) == set(ALL)


@pytest.mark.parametrize("kind", ["random", "ends"])
@pytest.mark.parametrize("name", ALL)
def test_the_evaluator_computes_the_description(name: str, kind: str) -> None:
    """As a nest and as an expression over vectors, for every way to fill the registers."""
    instruction = INSTRUCTIONS[name]
    for layout in LAYOUTS:
        f = program(instruction, layout)
        verify(f)
        assert same(parse(str(f)), f)
        arrays = arrays_for(f, kind)
        runs = [[a.copy() for a in arrays] for _ in range(2)]
        evaluate(f, runs[0])
        evaluate(selected(f, target_of(instruction)), [a.reshape(-1) for a in runs[1]])
        close(instruction, runs[0][-1], arrays)
        np.testing.assert_array_equal(runs[1][-1], runs[0][-1])


@pytest.mark.parametrize("kind", ["random", "ends"])
@pytest.mark.parametrize("name", HERE)
def test_this_machine_computes_the_description(name: str, kind: str) -> None:
    instruction = INSTRUCTIONS[name]
    for layout in SOME_LAYOUTS:
        f = program(instruction, layout)
        arrays = arrays_for(f, kind)
        found = [a.copy() for a in arrays]
        tw.build(f)(*found)
        close(instruction, found[-1], arrays)


@pytest.mark.parametrize("name", ALL)
def test_machines_that_have_it_run_the_instruction(name: str) -> None:
    instruction = INSTRUCTIONS[name]
    target = target_of(instruction)
    for layout in SOME_LAYOUTS:
        listing = assembly(lower_function(program(instruction, layout), target).llvm, target)
        words = re.findall(r"^\s+(?:\{\w+\}\s+)?([a-z]\w*)", listing, re.MULTILINE)
        found = [w for w in words if re.sub(r"(?<=vfmadd)\d+", "231", w) == MNEMONICS[name]]
        assert len(found) == 1, listing


@pytest.mark.parametrize(
    ("target", "lanes", "mnemonic"),
    [
        ("x86-64-v4 +avx512vnni", 16, r"vpdpbusd\t.*zmm"),
        ("x86-64-v4 +avx512vnni", 8, r"vpdpbusd\t.*ymm"),
        ("x86-64-v3 +avxvnni", 8, r"vpdpbusd\t.*ymm"),
        ("aarch64 +i8mm", 4, r"usdot\tv"),
        ("x86-64-v3", 8, None),
        ("x86-64-v3 +avxvnni", 4, None),
        ("aarch64 +dotprod", 4, None),
    ],
)
def test_sums_of_bytes_are_an_instruction_of_as_many_lanes(target: str, lanes: int, mnemonic: str | None) -> None:
    machine = Target.parse(target)
    shown = assembly(lower_function(byte_sums(lanes), machine).llvm, machine)
    found = re.search(mnemonic or r"vpdpbusd|usdot", shown)
    assert (found is not None) is (mnemonic is not None), shown


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_sums_of_bytes_are_the_same_in_all_lanes(lanes: int) -> None:
    function, rng = byte_sums(lanes), np.random.default_rng(lanes)
    given = [rng.integers(0, 1 << 32, 3 * lanes, np.uint32) for _ in range(3)]
    wanted = [*given, np.zeros(3 * lanes, np.uint32)]
    evaluate(function, wanted)
    found = [*given, np.zeros_like(wanted[-1])]
    tw.build(function)(*found)
    np.testing.assert_array_equal(found[-1], wanted[-1])


def byte_sums(lanes: int) -> Function:
    """A sum of four products of bytes in each lane."""
    return parse(f"""
func sums(t: u32[{3 * lanes}], a: u32[{3 * lanes}], b: u32[{3 * lanes}], y: u32[{3 * lanes}]):
  for i in 0..3:
    vectorize l in 0..{lanes}:
      y[i*{lanes} + l] = dot_bytes(t[i*{lanes} + l], a[i*{lanes} + l], b[i*{lanes} + l])
""")


def test_a_target_without_the_instruction() -> None:
    f = program(INSTRUCTIONS["x86.avx512vnni.dot_u8i8"])
    with pytest.raises(UserError) as raised:
        tw.build(f, target="x86-64-v2")
    assert str(raised.value) == (
        "cannot compile x86.avx512vnni.dot_u8i8 for the target x86-64-v2\n"
        "   1 | func f(a: u8[64], b: i8[64], acc: i32[16]):\n"
        "   2 |   instruct x86.avx512vnni.dot_u8i8 = l in 0..16:\n"
        "     |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "why:  the target has no avx512vnni\n"
        'fix:  target="x86-64-v2 +avx512vnni"'
    )
    with pytest.raises(UserError, match=r"the target has no dotprod\nfix:  tensorize with one of x86\.avx2\.dot_i16, "):
        tw.build(program(INSTRUCTIONS["aarch64.dotprod.dot_i8"]), target="x86-64-v3")


TILE = """
func tile(x: i16[6, 64], w: i16[32, 16, 2], y: i32[6, 16]):
  alloc t: i32[6, 16] in register
  unroll i in 0..6:
    vectorize j in 0..16: t[i, j] = 0
  for ko in 0..32:
    unroll i in 0..6, jv in 0..2:
      instruct x86.avx2.dot_i16 = l in 0..8:
        for q in 0..2:
          block dot(vi = i, vj = jv*8 + l, reduce vk = ko*2 + q):
            t[vi, vj] += i32(x[vi, vk]) * i32(w[vk // 2, vj, vk % 2])
  unroll i in 0..6, jv in 0..2:
    vectorize l in 0..8: y[i, jv*8 + l] = t[i, jv*8 + l]
"""


def test_a_tile_of_pairs_stays_in_registers() -> None:
    """The inner loop is 12 products, 12 sums and 8 loads, and nothing goes to the stack."""
    f, target = parse(TILE), Target.parse("x86-64-v3")
    listing = assembly(lower_function(f, target).llvm, target)
    kernel = listing[listing.index("k.tile:") :]
    (loop,) = re.findall(r"^(\.LBB\S+):\n((?:\t.*\n)+?)\tj\w+\s+\1\n", kernel, re.MULTILINE)
    words = re.findall(r"^\t(\w+)", loop[1], re.MULTILINE)
    counts = {w: words.count(w) for w in ("vpmaddwd", "vpaddd", "vpbroadcastd", "vmovdqu")}
    assert counts == {"vpmaddwd": 12, "vpaddd": 12, "vpbroadcastd": 6, "vmovdqu": 2}, loop[1]
    assert not re.search(r"%ymm\d+, -?\d*\(%rsp\)", kernel)
    if "x86.avx2.dot_i16" in HERE:
        random = np.random.default_rng(0)
        x, w = (random.integers(-(1 << 15), 1 << 15, s).astype(np.int16) for s in ((6, 64), (32, 16, 2)))
        y = np.zeros((6, 16), np.int32)
        tw.build(f)(x, w, y)
        expected = x.astype(np.int64) @ w.transpose(0, 2, 1).reshape(64, 16).astype(np.int64)
        np.testing.assert_array_equal(y, expected.astype(np.int32))


MATMUL = """
func matmul(x: {0}[12, 64], w: {0}[64, 48], y: i32[12, 48]):
  alloc sums: i32[12, 48] in arena
  for i in 0..12, j in 0..48, k in 0..64:
    block dot(vi = i, vj = j, reduce vk = k):
      init: sums[vi, vj] = 0
      sums[vi, vj] += i32(x[vi, vk]) * i32(w[vk, vj])
  for i in 0..12, j in 0..48:
    block out(vi = i, vj = j):
      y[vi, vj] = sums[vi, vj]
"""


@pytest.mark.parametrize("kind", ["i16", "i8"])
def test_an_integer_matmul_in_tiles(kind: str) -> None:
    """From the plain definition to tiles of exact products of pairs, through primitives alone."""
    before = parse(MATMUL.format(kind))
    s = tw.Schedule(before)
    s.cache_read("dot", "w")
    s.transform_layout("w.cache", "k, j -> j // 16, k // 2, j % 16, k % 2")
    i, j, k = s.get_loops("dot")
    (io, ii), (jo, ji), (ko, q) = s.split(i, 6), s.split(j, 16), s.split(k, 2)
    jv, lane = s.split(ji, 8)
    s.reorder(jo, io, ko, ii, jv, lane, q)
    s.reverse_compute_at("out", io)
    s.compact("sums")
    s.set_scope("sums", "register")
    s.tensorize(lane, f"x86.avx2.dot_{kind}")
    s.unroll(ii)
    s.unroll(jv)
    row, column = s.get_loops("out")[-2:]
    s.unroll(row)
    s.vectorize(column)
    verify(s.func)
    random = np.random.default_rng(0)
    end = 1 << (int(kind[1:]) - 1)
    x, w = (random.choice([-end, end - 1, -1, 3], shape).astype(f"int{kind[1:]}") for shape in ((12, 64), (64, 48)))
    expected = (x.astype(np.int64) @ w.astype(np.int64)).astype(np.int32)
    y = np.zeros((12, 48), np.int32)
    evaluate(s.func, [x, w, y])
    np.testing.assert_array_equal(y, expected)
    target = Target.parse("x86-64-v3")
    listing = assembly(lower_function(s.func, target).llvm, target)
    assert listing.count("vpmaddwd\t") == 12
    if "x86.avx2.dot_i16" in HERE:
        y[...] = 0
        tw.build(s.func)(x, w, y)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "func f(a: i16[16], b: i16[16], c: i32[8]):\n  c[0:8] = x86.avx2.dot_i16(a[0:4], b[0:16], c[0:8])",
            "a of x86.avx2.dot_i16 is i16x4; it takes i16x16 or 2 or 1",
        ),
        (
            "func f(a: i8[16], b: i16[16], c: i32[8]):\n  c[0:8] = x86.avx2.dot_i16(a[0:2], b[0:16], c[0:8])",
            "a of x86.avx2.dot_i16 is i8x2; it takes i16x16 or 2 or 1",
        ),
        (
            "func f(a: i16[16], b: i16[16], c: i32[8]):\n  c[0:8] = x86.avx2.dot_i16(a[0:2], b[0:16], c[0])",
            "acc of x86.avx2.dot_i16 is i32x1; it takes i32x8",
        ),
        (
            "func f(a: f32[8], b: f32[8], c: f32[8]):\n  instruct x86.fma.fma_f32 = l in 0..8: c[l] += a[l] + b[l]",
            "x86.fma.fma_f32 does not do what loop l holds",
        ),
        (
            "func f(a: f32[8], c: f32[8]):\n  view b: f32[8] = c\n"
            "  instruct x86.fma.fma_f32 = l in 0..8: c[l] += a[l] * b[l]",
            "b and c are views of the same memory",
        ),
        (
            "func f(a: f32[8], n: i64[1]):\n  prefetch a[n[0]]",
            "an index of a reads memory",
        ),
        (
            "func f(a: f32[8]):\n  alloc t: f32[8] in register\n  prefetch t[0]",
            "t is in registers",
        ),
        (
            "func f(x: f32[8, 8], y: f32[8]):\n  for i in 0..8, k in 0..8:\n    block o(vi = i, reduce vo = k):\n"
            "      block b(v = vi, reduce vk = vo):\n        init: y[v] = 0\n        y[v] += x[v, vk]",
            "the init of block b would run once for each vo",
        ),
    ],
)
def test_what_no_program_may_say(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        verify(parse(text), family=UserError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func f(c: f32[8]):\n  c[0:8] = x86.fma.fma_f32(c[0:8])", "x86.fma.fma_f32 takes 3 arguments, not 1"),
        ("func f(c: f32[8]):\n  c[0:8] = x86.fma.fma_f33(c[0:8])", "unknown function x86.fma.fma_f33"),
        ("func f(c: f32[8]):\n  instruct fma = l in 0..8: c[l] = 0", "unknown instruction fma"),
        ("func f(c: f32[8]):\n  prefetch 1", "only an element of a buffer can be prefetched"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        parse(text)


def test_registers_take_literals() -> None:
    """A number in the place of a register has the register's type."""
    f = parse("func f(c: f64[4]):\n  c[0:4] = x86.fma.fma_f64(2.0, broadcast(0.1, 4), c[0:4])")
    assert isinstance(f.body, Store)
    assert isinstance(f.body.value, Instruct)
    assert [a.dtype for a in f.body.value.args] == [dtypes.f64] * 3
    assert same(parse(str(f)), f)
    c = np.ones(4)
    evaluate(f, [c])
    np.testing.assert_array_equal(c, np.full(4, 1.2))


PREFETCH = """
func f[n](x: f32[n, 4], y: f32[n, 4]):
  for i in 0..n:
    prefetch x[i + 1000000, 0]
    prefetch y[i - 1000000, 0]
    vectorize j in 0..4:
      prefetch x[i + 1, j]
      if i > 1:
        y[i, j] = x[i, j] * 2
"""


def test_prefetches_change_nothing() -> None:
    f = parse(PREFETCH)
    verify(f)
    assert same(parse(str(f)), f)
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    runs = [np.zeros_like(x) for _ in range(2)]
    evaluate(f, [x, runs[0]])
    kernel = tw.build(f)
    kernel(x, runs[1])
    np.testing.assert_array_equal(runs[0][2:], x[2:] * 2)
    np.testing.assert_array_equal(runs[1], runs[0])
    final = kernel.module.functions["f"]
    assert isinstance(final, Function)
    assert sum(isinstance(s, Prefetch) for s in statements(final.body)) == 2
    assert len(re.findall(r"^\s+prefetcht0", kernel.show("assembly"), re.MULTILINE)) == 2 or not x86()


def test_a_prefetch_may_leave_out_the_first_cache() -> None:
    f = parse(PREFETCH.replace("prefetch x[i + 1000000, 0]", "prefetch x[i + 1000000, 0] into 2"))
    verify(f)
    assert str(f).count(" into 2\n") == 1 and same(parse(str(f)), f)
    found = re.findall(r"^\s+(prefetcht\d)", tw.build(f).show("assembly"), re.MULTILINE)
    assert sorted(found) == ["prefetcht0", "prefetcht2"] or not x86()
    with pytest.raises(UserError, match="nothing is prefetched into 7"):
        parse(PREFETCH.replace("prefetch x[i + 1, j]", "prefetch x[i + 1, j] into 7"))
    s = tw.Schedule(
        parse("func f(x: f32[5], y: f32[5]):\n  for i in 0..5:\n    block b(vi = i):\n      y[vi] = x[vi]\n")
    )
    with pytest.raises(UserError, match="nothing is prefetched into 3"):
        s.prefetch("x", "i", level=3)
    s.prefetch("x", "i", level=2)
    assert "prefetch x[i + 1] into 2" in str(s.func)


def x86() -> bool:
    return native().architecture == "x86_64"
