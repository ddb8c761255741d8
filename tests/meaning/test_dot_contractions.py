"""Contractions of narrow numbers: exact sums of integers of every type and size on this machine, and in the evaluator
on others; 16-bit floats; which instruction is chosen; what inner loops are in machine code; quantized models."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

import tilewright as tw
from drawn import LONG, drawn
from tilewright.codegen.assemble import assembly
from tilewright.compiler import compile_module
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import lower_function, pipeline
from tilewright.core.passes import run_passes
from tilewright.core.records import choice_of
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.nodes import Select, const
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate as evaluate_graph
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.loops.edit import blocks, expressions, loops_around
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.graph.shift_signs import shift_signs
from tilewright.plan.choose import schedule
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.choice import Choice
from tilewright.plan.price.dots import choose_dot
from tilewright.plan.template import candidates
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target, native

Array = np.ndarray[Any, Any]

MATMUL = """
func matmul{3}(x: {0}[{4}, {6}], w: {1}[{6}, {5}], y: {2}[{4}, {5}]):
  for i in 0..{4}, j in 0..{5}, k in 0..{6}:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0
      y[vi, vj] += {2}(x[vi, vk]) * {2}(w[vk, vj])
"""
TURNED = """
func turned(x: u8[13, 19], w: i8[24, 13], b: i32[24], y: f32[19, 24]):
  alloc s: i32[19, 24] in arena
  for i in 0..19, j in 0..24, k in 0..13:
    block dot(vi = i, vj = j, reduce vk = k):
      init: s[vi, vj] = 0
      s[vi, vj] += i32(x[vk, vi]) * i32(w[vj, vk])
  for i in 0..19, j in 0..24:
    block out(vi = i, vj = j):
      y[vi, vj] = max(f32(s[vi, vj] - b[vj]) * 0.25, 0.0)
"""
BATCHED = """
func batched(x: i8[3, 17, 2, 9], w: u8[3, 2, 9, 20], y: i32[3, 17, 20]):
  for b in 0..3, i in 0..17, j in 0..20, g in 0..2, k in 0..9:
    block dot(vb = b, vi = i, vj = j, reduce vg = g, reduce vk = k):
      init: y[vb, vi, vj] = 0
      y[vb, vi, vj] += i32(x[vb, vi, vg, vk]) * i32(w[vb, vg, vk, vj])
"""

VNNI, WIDE, BFLOAT = "x86-64-v4 +avx512vnni", "x86-64-v4", "x86-64-v4 +avx512bf16"
ARM = "aarch64 +dotprod"
TARGETS = ["x86-64-v3", WIDE, VNNI, "x86-64-v3 +avxvnni", "x86-64-v3 +avxvnniint8", ARM, f"{ARM} +i8mm"]
TYPES = [("i8", "i8"), ("u8", "i8"), ("i8", "u8"), ("u8", "u8"), ("i16", "i8"), ("u8", "i16"), ("i16", "i16")]
SIZES = [(19, 45, 77), (16, 16, 16), (1, 40, 33), (1, 1, 1), (17, 1, 5), (5, 7, 3), (33, 50, 2), (20, 24, 1)]


def matmul(a: str, b: str, sums: str, m: int | str, n: int | str, k: int | str) -> Function:
    symbols = [str(d) for d in (m, n, k) if isinstance(d, str)]
    found = parse(MATMUL.format(a, b, sums, f"[{', '.join(symbols)}]" if symbols else "", m, n, k))
    assert isinstance(found, Function)
    return found


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Random numbers, half of them at the ends of the type's range."""
    random = np.random.default_rng(seed)
    t = DTYPES[dtype]
    if t.is_float:
        return np.asarray(random.standard_normal(shape)).astype(t.numpy)
    ends = random.choice([t.min, t.max], shape)
    return np.where(random.random(shape) < 0.5, ends, random.integers(t.min, t.max, shape)).astype(t.numpy)


def product(x: Array, w: Array) -> Array:
    return np.asarray(x.astype(np.int64) @ w.astype(np.int64)).astype(np.int32)


def dots(f: Function, target: str) -> Schedule:
    """The schedule, which must be there, verified and the same when it is replayed and read back."""
    s, _ = chosen(f, target)
    verify(s.func)
    assert same(parse(str(s.func)), s.func)
    return s


def chosen(f: Function, target: str) -> tuple[Schedule, Choice]:
    """The schedule and its choice, which must be one that adds up several products, or copies operands in f32."""
    s, decision = schedule(f, machine(target))
    assert decision.taken is not None and decision.template == "contraction" and not decision.refusals
    choice = choice_of(Choice, decision.taken.choice)
    assert choice.dot is not None
    return s, choice


def machine(target: str) -> Target:
    """A machine whose products of bf16 pairs, where it has any, are as fast as others."""
    found = Target.parse(target)
    pairs = {name: found.core.fma_cycles for name in found.core.dots if name.endswith("dot_bf16")}
    return found.with_core(dots=pairs) if pairs and target != "native" else found


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_integers_of_all_sizes(types: tuple[str, str]) -> None:
    for m, n, k in SIZES if types == ("u8", "i8") else SIZES[:2]:
        f = matmul(*types, "i32", m, n, k)
        x, w, y = numbers(types[0], (m, k)), numbers(types[1], (k, n), 1), np.zeros((m, n), np.int32)
        tw.build(schedule(f, native())[0].func)(x, w, y)
        np.testing.assert_array_equal(y, product(x, w))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("types", [("i8", "i8"), ("u8", "i8"), ("i8", "u8"), ("u8", "u8")], ids="-".join)
def test_integers_on_other_machines(types: tuple[str, str], target: str) -> None:
    """In the evaluator, from schedules for machines that are not here."""
    f = matmul(*types, "i32", 17, 20, 9)
    x, w, y = numbers(types[0], (17, 9)), numbers(types[1], (9, 20), 1), np.zeros((17, 20), np.int32)
    evaluate(schedule(f, Target.parse(target))[0].func, [x, w, y])
    np.testing.assert_array_equal(y, product(x, w))


@pytest.mark.parametrize("types", [("i8", "i8"), ("u8", "i8"), ("i16", "i16")], ids="-".join)
def test_the_longest_sums_are_exact(types: tuple[str, str]) -> None:
    """Products of the ends of the ranges: -128 * -128, 255 * 127; of i16, sums that wrap around."""
    depth = 4099
    kernel = tw.build(schedule(matmul(*types, "i32", 16, 16, depth), native())[0].func)
    for ends in [("min", "min"), ("max", "max"), ("max", "min")]:
        values = [getattr(DTYPES[t], end) for t, end in zip(types, ends, strict=True)]
        x = np.full((16, depth), values[0], DTYPES[types[0]].numpy)
        w = np.full((depth, 16), values[1], DTYPES[types[1]].numpy)
        y = np.zeros((16, 16), np.int32)
        kernel(x, w, y)
        np.testing.assert_array_equal(y, product(x, w))


def test_sizes_that_only_the_call_knows() -> None:
    kernel = tw.build(schedule(matmul("u8", "i8", "i32", "m", "n", "d"), native())[0].func)
    rows = tw.build(schedule(matmul("i8", "i8", "i32", "m", 45, 77), native())[0].func)
    for m, n, k in [(0, 3, 4), (1, 1, 1), (7, 45, 77), (13, 16, 8), (40, 33, 3), (3, 4, 0)]:
        x, w, y = numbers("u8", (m, k)), numbers("i8", (k, n), 1), np.ones((m, n), np.int32)
        kernel(x, w, y)
        np.testing.assert_array_equal(y, product(x, w))
        x, w, y = numbers("i8", (m, 77)), numbers("i8", (77, 45), 1), np.ones((m, 45), np.int32)
        rows(x, w, y)
        np.testing.assert_array_equal(y, product(x, w))


@pytest.mark.parametrize("target", ["native", VNNI, ARM])
def test_turned_operands_and_an_epilogue(target: str) -> None:
    """Terms that lie apart are brought together; what follows runs on the tile."""
    f = parse(TURNED)
    assert isinstance(f, Function)
    x, w, b = numbers("u8", (13, 19)), numbers("i8", (24, 13), 1), numbers("i16", (24,)).astype(np.int32)
    y = np.zeros((19, 24), np.float32)
    found = schedule(f, Target.parse(target))[0].func
    assert "instruct" in str(found) or target == ARM
    tw.build(found)(x, w, b, y) if target == "native" else evaluate(found, [x, w, b, y])
    total = x.T.astype(np.int32) @ w.T.astype(np.int32)
    np.testing.assert_array_equal(y, np.maximum((total - b).astype(np.float32) * np.float32(0.25), 0))


def test_batches_and_several_reduced_axes() -> None:
    f = parse(BATCHED)
    assert isinstance(f, Function)
    x, w, y = numbers("i8", (3, 17, 2, 9)), numbers("u8", (3, 2, 9, 20), 1), np.zeros((3, 17, 20), np.int32)
    s = dots(f, "x86-64-v3")
    assert "instruct" in str(s.func)
    tw.build(schedule(f, native())[0].func)(x, w, y)
    np.testing.assert_array_equal(y, product(x.reshape(3, 17, 18), w.reshape(3, 18, 20)))


CHOICES = [
    ("x86-64-v2", "u8", "i8", None),
    ("x86-64-v3", "u8", "i8", "x86.avx2.dot_i16i8"),
    ("x86-64-v3", "i8", "u8", "x86.avx2.dot_i16"),
    ("x86-64-v3", "i16", "i16", "x86.avx2.dot_i16"),
    ("x86-64-v3", "u16", "i16", None),
    (WIDE, "i8", "i8", "x86.avx512bw.dot_i16i8"),
    (VNNI, "u8", "i8", "x86.avx512vnni.dot_u8i8"),
    (VNNI, "i8", "u8", "x86.avx512vnni.dot_u8i8"),
    (VNNI, "i16", "i8", "x86.avx512bw.dot_i16i8"),
    ("x86-64-v3 +avxvnni", "u8", "i8", "x86.avxvnni.dot_u8i8"),
    ("x86-64-v3 +avxvnniint8", "i8", "i8", "x86.avxvnniint8.dot_i8"),
    (ARM, "i8", "i8", "aarch64.dotprod.dot_i8"),
    (ARM, "u8", "u8", "aarch64.dotprod.dot_u8"),
    (ARM, "u8", "i8", None),
    (f"{ARM} +i8mm", "u8", "i8", "aarch64.i8mm.dot_u8i8"),
]


@pytest.mark.parametrize(("target", "broadcast", "vector", "name"), CHOICES)
def test_the_instruction_with_the_least_work(target: str, broadcast: str, vector: str, name: str | None) -> None:
    found = choose_dot(DTYPES[broadcast], DTYPES[vector], DTYPES["i32"], Target.parse(target))
    assert (None if found is None else found.instruction) == name


INNER = [
    ("x86-64-v3", "u8", "i8", "i32", "vpmaddwd"),
    (WIDE, "i8", "i8", "i32", "vpmaddwd"),
    (VNNI, "u8", "i8", "i32", "vpdpbusd"),
    ("x86-64-v3 +avxvnni", "u8", "i8", "i32", "vpdpbusd"),
    (BFLOAT, "bf16", "bf16", "f32", "vdpbf16ps"),
    ("x86-64-v3", "bf16", "bf16", "f32", "vfmadd231ps"),
    ("x86-64-v3", "f16", "f16", "f32", "vfmadd231ps"),
    (ARM, "i8", "i8", "i32", "sdot"),
    (ARM, "u8", "u8", "i32", "udot"),
    ("aarch64 +bf16", "bf16", "bf16", "f32", "bfdot"),
]


@pytest.mark.parametrize(("target", "a", "b", "sums", "word"), INNER)
def test_the_inner_loop(target: str, a: str, b: str, sums: str, word: str) -> None:
    """Products, what they load, and the loop itself: no tile goes to the stack, nothing is converted twice."""
    f = matmul(a, b, sums, 72, 192, 77)
    dots(f, target)
    s, choice = chosen(f, target)
    listing = assembly(lower_function(s.func, machine(target)).llvm, machine(target))
    pattern = r"^(\.LBB\S+):.*\n((?:(?!\.LBB).*\n)*?)\t(?:j\w+|b\.?\w*|cbn?z.*)\s+.*?\1\n"
    inner = [body for _, body in re.findall(pattern, listing, re.MULTILINE) if word in body]
    assert inner, listing
    loop = max(inner, key=lambda body: body.count(f"{word}\t"))
    assert loop.count(f"{word}\t") == choice.tile.rows * choice.tile.vectors * choice.terms, loop
    assert not re.search(r"\(%[re]sp\)|\[sp", loop), loop
    conversions = len(re.findall(r"vpmovsxbw|vpmovzxbw|vcvtph2ps|vpslld|sshll", loop))
    assert conversions == (choice.tile.vectors if word == "vpmaddwd" else 0)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_halves(kind: str) -> None:
    """Of all sizes: copies in f32 here, the machine's own products of bf16 in the evaluator."""
    for m, n, k in [(1, 8, 3), (16, 16, 16), (33, 45, 77), (20, 24, 1), (40, 1, 5)]:
        f = matmul(kind, kind, "f32", m, n, k)
        x, w = numbers(kind, (m, k)), numbers(kind, (k, n), 1)
        expected = x.astype(np.float64) @ w.astype(np.float64)
        close = 8 * k * 2.0**-24 * (np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64)))
        found = np.zeros((m, n), np.float32)
        tw.build(schedule(f, native())[0].func)(x, w, found)
        assert (np.abs(found - expected) <= close).all()
        if m * n * k < 6000:
            evaluate(schedule(f, machine(BFLOAT))[0].func, [x, w, found])
            assert (np.abs(found - expected) <= close).all()


BYTES, PAIRS = (("u8", "i8", "i32"), VNNI), (("bf16", "bf16", "f32"), BFLOAT)
LAST = [
    *((PAIRS, n) for n in (48, 112, 117, 131, 145) if LONG or n in (48, 117, 145)),
    *((BYTES, n) for n in (48, 112, 117, 131, 145) if LONG or n in (112, 117, 131)),
]
"""Columns that fill vectors, and that do not, by turns for both kinds of factors."""


@pytest.mark.parametrize(("types", "target", "columns"), [(*kind, n) for kind, n in LAST])
def test_only_the_last_vector_is_packed_by_a_look_at_each_column(
    types: tuple[str, str, str], target: str, columns: int
) -> None:
    m, k = 64, 12
    s = dots(matmul(*types, m, columns, k), target)
    packs = [b for b in blocks(s.func.body) if b.name.startswith("w.cache")]
    looked = [b for b in packs if any(isinstance(e, Select) for e in expressions(b))]
    around = [loops_around(s.func.body, b)[-2] for b in looked]
    assert columns % 16 == 0 or any(loop.end - loop.begin is const(1) for loop in around)
    assert packs[0] not in looked
    x, w, y = (
        numbers(types[0], (m, k)),
        numbers(types[1], (k, columns), 1),
        np.zeros((m, columns), DTYPES[types[2]].numpy),
    )
    evaluate(s.func, [x, w, y])
    np.testing.assert_allclose(y, x.astype(np.float64) @ w.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_infinities_beyond_no_end() -> None:
    """Terms that fill up an instruction are zero times zero: an infinity next to them does not become NaN."""
    f = matmul("bf16", "bf16", "f32", 16, 16, 3)
    x, w, y = (
        np.full((16, 3), np.inf, ml_dtypes.bfloat16),
        np.ones((3, 16), ml_dtypes.bfloat16),
        np.zeros((16, 16), "f4"),
    )
    pairs = [c for c in candidates(Facts(f), machine(BFLOAT)) if c.template.name == "contraction" and c.choice.dot]
    assert pairs
    for each in (pairs[0], pairs[-1]):
        evaluate(each.schedule(Facts(f), machine(BFLOAT)).func, [x, w, y])
        np.testing.assert_array_equal(y, np.full((16, 16), np.inf))


def model(operator: str, inputs: list[str], feeds: dict[str, Array], weights: dict[str, Array], result: Array) -> bytes:
    def port(name: str, array: Array) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        [helper.make_node(operator, inputs, ["y"])],
        "model",
        [port(name, array) for name, array in feeds.items()],
        [port("y", result)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(content.SerializeToString())


def planned(content: bytes, target: str) -> Module:
    """The module up to the plan, as it is for a target."""
    passes = pipeline(Target.parse(target))
    names = [p.name for p in passes]
    return run_passes(read(content), passes[: names.index("plan") + 1], level=GRAPH)


@pytest.mark.parametrize(
    ("types", "rowwise", "constant"),
    drawn([("u8", "i8"), ("u8", "u8"), ("i8", "i8")], [False, True], [True, False]),
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_matmul_integer_with_zero_points(types: tuple[str, str], rowwise: bool, constant: bool) -> None:
    """Zero points are taken off sums where the weights are known; products stay products of bytes or 16-bit numbers."""
    a, b = numbers(types[0], (33, 45)), numbers(types[1], (45, 40), 1)
    az = numbers(types[0], (33,) if rowwise else (), 2)
    bz = numbers(types[1], (40,) if rowwise else (), 3)
    rows = az.astype(np.int32)[:, None] if rowwise else az.astype(np.int32)
    expected = product(a.astype(np.int32) - rows, b.astype(np.int32) - bz.astype(np.int32))
    feeds, weights = (
        ({"a": a, "az": az}, {"b": b, "bz": bz}) if constant else ({"a": a, "b": b, "az": az, "bz": bz}, {})
    )
    content = model("MatMulInteger", ["a", "b", "az", "bz"], feeds, weights, expected)
    (y,) = tw.compile(content)(**feeds)
    np.testing.assert_array_equal(y, expected)
    contracting = [f for f in planned(content, "x86-64-v3").functions.values() if "contract" in f.name]
    assert contracting
    for f in contracting:
        assert isinstance(f, Function)
        s, _ = schedule(f, Target.parse("x86-64-v3"))
        assert "instruct x86.avx2.dot_i16" in str(s.func)


SIGNED = [
    ("ik,kj->ij", (17, 9), (9, 20)),
    ("nik,kj->nij", (2, 5, 9), (9, 20)),
    ("n c i+a, o c a -> n o i", (2, 3, 9), (4, 3, 3)),
]


@pytest.mark.parametrize(("spec", "x_shape", "w_shape"), SIGNED)
def test_signed_bytes_for_machines_that_take_unsigned_ones(
    spec: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...]
) -> None:
    sizes = f', sizes=(("i", {x_shape[-1] - w_shape[-1] + 1}),)' if "+" in spec else ""
    shapes = [", ".join(map(str, s)) for s in (x_shape, w_shape)]
    x, w = numbers("i8", x_shape), numbers("i8", w_shape, 1)
    if "+" in spec:
        out = (x_shape[0], w_shape[0], x_shape[-1] - w_shape[-1] + 1)
    else:
        out = (*x_shape[:-1], w_shape[-1])
    text = f"""
graph main(x: i8[{shapes[0]}]) -> y:
  w: i8[{shapes[1]}] = constant(name=@w)
  y: i32[{", ".join(map(str, out))}] = contract(x, w, spec="{spec}", dtype=i32{sizes})
"""
    module = parse_module(text).with_constants({"w": w})
    after = shift_signs(module, Target.parse(VNNI))
    assert "u8[" in str(after)
    assert all(
        shift_signs(module, Target.parse(t)) is module for t in ("x86-64-v3", WIDE, ARM, "x86-64-v3 +avxvnniint8")
    )
    (expected,), (found,) = (evaluate_graph(m, [x]).values() for m in (module, after))
    np.testing.assert_array_equal(found, expected)
    (compiled,) = compile_module(after)(x=x)
    np.testing.assert_array_equal(compiled, expected)
