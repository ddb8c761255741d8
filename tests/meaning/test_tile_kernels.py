"""The inner loops of contractions, as machine code: one multiply-add for each accumulator and term, each element read
once, nothing kept on the stack."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import pytest
from chosen import candidates_of
from inner_loops import Loop, inner_loops

import tilewright as tw
from drawn import LONG, drawn
from planned import planned_kernels
from tilewright.analysis.contractions import find_contraction
from tilewright.codegen.assemble import assembly
from tilewright.codegen.module import generate
from tilewright.compiler.compiled import Compiled
from tilewright.compiler.legalise import LOOPS, legalise
from tilewright.compiler.pipeline import lower
from tilewright.core.passes import run_passes
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.nodes import Const
from tilewright.loops.edit import blocks, loops_around
from tilewright.loops.nodes import Function, LoopKind
from tilewright.lower.graph import strassen as rewriting
from tilewright.lower.loops.wrap import wrap
from tilewright.plan.gemm import choice as choosing
from tilewright.plan.gemm.choice import Choice
from tilewright.plan.gemm.schedule import Contractions
from tilewright.plan.gemm.shape import Product, measure
from tilewright.plan.price import contraction as price
from tilewright.plan.price.contraction import RegisterTile, Sums
from tilewright.schedule.blocks.inline import inline_all
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

FOREIGN = ("aarch64", "aarch64 +sve256", "aarch64 +sve512", "riscv64 +v", "riscv64 +zvl256b")
TARGETS = tuple(t for t in ("native", "x86-64-v3", "x86-64-v4", *FOREIGN) if Target.parse(t).has_fma)
MATMUL, SIDE_BY_SIDE = "ik,kj->ij", "xct,xco->xto"


@dataclass(frozen=True, slots=True)
class Case:
    """A contraction of x and w, under a relu; w is a constant where it has `constant` shape."""

    dtype: str
    x: str
    w: str
    spec: str
    y: str
    constant: bool = True
    sizes: str = ""


CASES = {
    "square": Case("f32", "512, 512", "512, 512", MATMUL, "512, 512"),
    "variable": Case("f32", "512, 512", "512, 512", MATMUL, "512, 512", constant=False),
    "odd": Case("f32", "127, 131", "131, 129", MATMUL, "127, 129"),
    "odd variable": Case("f32", "127, 131", "131, 129", MATMUL, "127, 129", constant=False),
    "any rows": Case("f32", "m, 768", "768, 768", MATMUL, "m, 768"),
    "any rows, long sums": Case("f32", "m, 2048", "2048, 64", MATMUL, "m, 64"),
    "one row": Case("f32", "1, 4096", "4096, 4096", MATMUL, "1, 4096"),
    "f64": Case("f64", "250, 256", "256, 256", MATMUL, "250, 256"),
    "3x3": Case(
        "f32",
        "1, 64, 58, 58",
        "64, 64, 3, 3",
        "n c i+a j+b, o c a b -> n o i j",
        "1, 64, 56, 56",
        sizes='("i", 56), ("j", 56)',
    ),
    "3x3 by 2": Case(
        "f32",
        "1, 64, 57, 57",
        "64, 64, 3, 3",
        "n c i*2+a j*2+b, o c a b -> n o i j",
        "1, 64, 28, 28",
        sizes='("i", 28), ("j", 28)',
    ),
    "rows side by side": Case("f32", "36, 128, 49", "36, 128, 128", SIDE_BY_SIDE, "36, 49, 128"),
    "rows side by side, odd": Case("f32", "9, 64, 53", "9, 64, 72", SIDE_BY_SIDE, "9, 53, 72"),
    "1x1": Case("f32", "1, 64, 28, 28", "128, 64", "n c i j, o c -> n o i j", "1, 128, 28, 28"),
}


def module(case: Case) -> tw.Module:
    """The graph of a case."""
    sizes = f", sizes=({case.sizes})" if case.sizes else ""
    dtype, constant = case.dtype, case.constant
    text = f"""
graph main{"[m]" if "m" in case.x else ""}(x: {dtype}[{case.x}]{"" if constant else f", w: {dtype}[{case.w}]"}) -> y:
{f"  w: {dtype}[{case.w}] = constant(name=@w)" if constant else ""}
  h: {dtype}[{case.y}] = contract(x, w, spec="{case.spec}"{sizes})
  y: {dtype}[{case.y}] = relu(h)
"""
    shape = tuple(int(n) for n in case.w.split(","))
    return tw.Module({"main": tw.parse(text)}, {"w": np.zeros(shape, DTYPES[dtype].numpy)} if constant else {})


def compiled(name: str, target: str) -> tuple[Compiled, list[Loop]]:
    """A case as a model's compile makes it, and its inner loops."""
    machine = Target.parse(target)
    made = lower(module(CASES[name]), machine)
    return made, inner_loops(assembly(made.llvm, machine))


def written_out(function: Function) -> list[int]:
    """For each block that sums up: how often it stands in the innermost loop around it."""
    found = []
    for block in blocks(function.body):
        if block.reduce:
            loops = [s for s in loops_around(function.body, block) if s.kind is LoopKind.UNROLL]
            extents = [
                s.end.value - s.begin.value for s in loops if isinstance(s.end, Const) and isinstance(s.begin, Const)
            ]
            assert len(extents) == len(loops)
            found.append(prod(int(e) for e in extents))
    return found


SOME = {
    "x86-64-v3": ("square", "3x3"),
    "x86-64-v4": ("square", "odd variable", "any rows", "one row", "3x3 by 2", "rows side by side", "f64"),
    "aarch64": ("square", "odd variable", "any rows", "3x3", "f64"),
    "aarch64 +sve256": ("square", "any rows", "3x3"),
    "aarch64 +sve512": ("odd variable", "f64"),
    "riscv64 +v": ("square", "any rows", "3x3"),
    "riscv64 +zvl256b": ("odd variable", "f64"),
}
"""The cases for targets whose machine model is much like another one's: this machine runs all of them."""


@pytest.mark.parametrize(("target", "name"), [(t, n) for t in TARGETS for n in (CASES if LONG else SOME.get(t, CASES))])
def test_inner_loops_of_compiled_contractions(monkeypatch: pytest.MonkeyPatch, target: str, name: str) -> None:
    monkeypatch.setenv("TILEWRIGHT_WINOGRAD", "0")
    monkeypatch.setenv("TILEWRIGHT_STRASSEN", "0")
    made, loops = compiled(name, target)
    (scheduled,) = kernels(made, "schedule")
    (decision,) = made.choices.decisions.values()
    assert decision.taken is not None
    taken = decision.taken.choice
    ways = taken.get("ways", [taken])
    wanted = set(written_out(scheduled))
    assert {loop.multiply_adds for loop in loops} == wanted
    for loop in loops:
        assert loop.on_stack == [], loop
        packs = "stack" in str(scheduled)  # the first tile, as it reads a panel
        read = set[int]()
        for way in ways:
            tile = RegisterTile(**way["tile"])
            terms = way.get("terms") if len(ways) > 1 else max(wanted) // (tile.rows * tile.vectors)
            assert max(wanted) % (tile.rows * tile.vectors) == 0 or len(ways) > 1
            heights = {tile.rows, *(way.get("parts") or ())}
            # Fewer vectors in the last panel, fewer rows of those left over.
            shapes = [(r, *divmod(loop.multiply_adds, r * terms)) for r in heights]
            fitting = [(r, v) for r, v, rest in shapes if rest == 0 and v <= tile.vectors]
            read |= {n * terms for r, v in fitting for n in (r + v, r + v + v * packs)}
        if CASES[name].spec in (MATMUL, SIDE_BY_SIDE) and read:
            assert loop.reads in read, loop


@pytest.mark.parametrize(("target", "rows", "packs"), drawn(TARGETS, (128, 197), (False, True)))
def test_differences_of_constants_are_taken_in_registers(
    monkeypatch: pytest.MonkeyPatch, target: str, rows: int, packs: bool
) -> None:
    """Products of halves that meet a difference read one more vector for each vector of a tile; or the first tile does,
    and stores what the others read."""
    machine = Target.parse(target)
    text = f"""
graph main(x: f32[{rows}, 384]) -> y:
  w: f32[384, 768] = constant(name=@w)
  y: f32[{rows}, 768] = contract(x, w, spec="{MATMUL}")
"""
    w = np.random.default_rng(0).standard_normal((384, 768)).astype(np.float32)
    monkeypatch.setattr(rewriting, "keeps_all", lambda *_: False)
    monkeypatch.setattr(rewriting, "pays", lambda *_: True)
    planned = planned_kernels(tw.Module({"main": tw.parse(text)}, {"w": w}), machine)
    plain = next(inline_all(kernel).function for kernel in planned if "sub" in kernel.name)
    found = find_contraction(plain)
    assert found is not None
    assert found.vector.minus is not None
    fitting = [c for c in candidates_of(plain, machine) if c.choice.first_packs == packs]
    choice = min(fitting, key=lambda c: c.seconds).choice
    tile = choice.tile
    made, whole = scheduled(plain, choice), set[int]()
    for loop in loops_of([made], machine)[made.name]:
        terms, rest = divmod(loop.multiply_adds, tile.rows * tile.vectors)
        assert rest == 0 or terms == 0
        assert loop.on_stack == [], loop
        if rest == 0 and loop.multiply_adds:
            whole.add(loop.reads - terms * (tile.rows + tile.vectors))
    assert min(whole) == (0 if packs else tile.vectors * choice.terms), whole
    assert packs == (len(whole) > 1), "the first tile moves more than the others"


def scheduled(function: Function, choice: Choice) -> Function:
    """A contraction by the steps of a choice."""
    found = find_contraction(function)
    assert found is not None
    return Contractions().apply(Schedule(function), Product(found, measure(found)), choice).func


def kernels(made: Compiled, stage: str) -> list[Function]:
    """The kernels after a pass."""
    return [f for f in made.record.after(stage).program.functions.values() if isinstance(f, Function)]


def tile_kernel(tile: RegisterTile, dtype: str, rows: str | int, target: Target | None = None) -> Function:
    """A matrix product of whole tiles by the steps of contractions, several terms at once as for a target."""
    columns = 2 * tile.columns
    name, symbols = f"t{tile.rows}x{tile.vectors}", "[m]" if rows == "m" else ""
    shapes = {"x": f"{rows}, 64", "w": f"64, {columns}", "y": f"{rows}, {columns}"}
    function = tw.parse(f"""
func {name}{symbols}({", ".join(f"{b}: {dtype}[{shape}]" for b, shape in shapes.items())}):
  for i in 0..{rows}, j in 0..{columns}, k in 0..64:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0.0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
""")
    assert isinstance(function, Function)
    terms = choosing.written_out(tile, target) if target is not None else 1
    choice = Choice(tile, 8, None, pack_vector=False, pack_broadcast=False, terms=terms)
    return scheduled(function, choice)


def loops_of(functions: list[Function], target: Target) -> dict[str, list[Loop]]:
    """The inner loops of functions, by their names."""
    final = run_passes(wrap(*functions), legalise(target), level=LOOPS, verify=False)
    made = {name: f for name, f in final.functions.items() if isinstance(f, Function)}
    listing = assembly(generate(made, final.entry, target).text, target)
    found: dict[str, list[Loop]] = {f.name: [] for f in functions}
    for loop in inner_loops(listing):
        found[loop.function.split(".")[1]].append(loop)
    return found


def tiles(target: Target, bits: int) -> list[RegisterTile]:
    """The tiles that a schedule may choose: of each number of vectors the tallest, which need the most registers, and
    the smallest; all of them in long runs."""
    every = price.tiles(Sums(1, 1 << 16, 1, bits=bits), target)
    if LONG:
        return every
    heights = {v: [t.rows for t in every if t.vectors == v] for v in {t.vectors for t in every}}
    return [t for t in every if t.rows == max(heights[t.vectors]) or (t.rows <= 2 and t.vectors <= 2)]


@pytest.mark.parametrize(
    ("target", "dtype", "rows"),
    [
        *((t, "f32", "m") for t in TARGETS[1:]),
        ("x86-64-v3", "f64", "m"),
        ("x86-64-v3", "f32", 256),
        ("x86-64-v4", "f64", 256),
    ],
)
def test_no_tile_that_may_be_chosen_spills(target: str, dtype: str, rows: str | int) -> None:
    machine = Target.parse(target)
    chosen = tiles(machine, DTYPES[dtype].bits)
    kernels = [tile_kernel(t, dtype, rows, machine) for t in chosen]
    found = loops_of(kernels, machine)
    for tile, kernel in zip(chosen, kernels, strict=True):
        (loop,) = found[kernel.name]
        assert [loop.multiply_adds] == written_out(kernel)
        terms, rest = divmod(loop.multiply_adds, tile.rows * tile.vectors)
        assert rest == 0
        assert loop.reads == terms * (tile.rows + tile.vectors), loop
        assert loop.on_stack == [], loop


@pytest.mark.parametrize(
    ("target", "rows", "vectors"),
    [("x86-64-v3", 8, 2), ("x86-64-v4", 10, 4), ("aarch64", 12, 3), ("aarch64 +sve256", 9, 3), ("riscv64 +v", 11, 3)],
)
def test_a_tile_that_does_not_fit_is_seen_to_spill(target: str, rows: int, vectors: int) -> None:
    machine = Target.parse(target)
    tile = RegisterTile(rows, vectors, machine.vector_bits // 32)
    assert tile not in price.tiles(Sums(1, 1 << 16, 1), machine)
    kernel = tile_kernel(tile, "f32", 256)
    (loop,) = loops_of([kernel], machine)[kernel.name]
    assert [loop.multiply_adds] == written_out(kernel)
    assert loop.on_stack
    assert loop.reads * rows * vectors > (rows + vectors) * loop.multiply_adds


LISTING = """
frame:
	movq	%rsp, %rbp
.LBB0_1:
	vmovups	32(%rdi), %ymm1
.LBB0_2:
	{0}
	vfmadd231ps	(%rsi), %ymm1, %ymm0
	jne	.LBB0_2
	jmp	.LBB0_1
"""


@pytest.mark.parametrize(
    ("line", "spilled"),
    [
        ("vmovups	%ymm3, 64(%rsp)", True),
        ("vmovaps	-96(%rbp), %ymm2", True),
        ("movq	8(%rsp), %rax", True),
        ("vbroadcastss	64(%rsp,%rax,4), %ymm2", False),
        ("vmovups	(%rax), %ymm2", False),
        ("vxorps	%ymm2, %ymm2, %ymm2", False),
        ("str	q0, [sp, #16]", True),
        ("ldp	q0, q1, [sp]", True),
        ("ldr	q0, [sp, x8]", False),
        ("ldr	q0, [x8], #16", False),
        ("str	z0, [sp, #1, mul vl]", True),
        ("ldr	z0, [x8, #1, mul vl]", False),
        ("ld1rw	{ z4.s }, p0/z, [x1]", False),
        ("flw	fa5, 12(sp)", True),
        ("vs1r.v	v8, (a0)", True),
        ("vl1r.v	v8, (a0)", True),
        ("vle32.v	v8, (a0)", False),
        ("flw	fa5, 12(a0)", False),
    ],
)
def test_what_lies_on_the_stack_is_told_from_what_is_indexed(line: str, spilled: bool) -> None:
    (loop,) = inner_loops(LISTING.format(line))
    assert loop.multiply_adds == 1
    assert (loop.on_stack == [f"\t{line}"]) is spilled
    assert bool(loop.on_stack) is spilled


@pytest.mark.parametrize(
    ("wrote", "is_sum"), [("vfmadd231ps	(%rsi), %ymm1, %ymm0", True), ("vbroadcastss	(%rsi), %ymm0", False)]
)
def test_sums_on_the_stack_are_told_from_elements(wrote: str, is_sum: bool) -> None:
    store = "vmovups	%ymm0, 64(%rsp)"
    listing = LISTING.replace(
        "	vfmadd231ps	(%rsi), %ymm1, %ymm0\n", "	vfmadd231ps	(%rsi), %ymm1, %ymm3\n" + f"\t{wrote}\n"
    )
    for line in (store, ""):
        (loop,) = inner_loops(listing.format(line))
        assert loop.sums_on_stack == [f"\t{store}"] * (is_sum and bool(line))
