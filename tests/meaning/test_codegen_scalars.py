"""Machine code computes what the evaluator of expressions says: operators, functions and casts, at their edges."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

import numpy as np
import pytest
from machine import Array, Machine, elementwise, legal

import tilewright as tw
from tilewright.codegen.assemble import assembly
from tilewright.codegen.module import generate
from tilewright.core.walk import substitute
from tilewright.expr import build, dtypes, nodes
from tilewright.expr.dtypes import DTYPES, DType
from tilewright.expr.evaluate import evaluate
from tilewright.expr.intrinsics import INTRINSICS
from tilewright.expr.nodes import (
    And,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Not,
    Or,
    Select,
    Var,
    const,
)
from tilewright.expr.verify import ill_typed
from tilewright.graph.evaluate import evaluate as evaluate_graph
from tilewright.loops.nodes import Buffer, For, Function, Load, LoopKind, Store, seq
from tilewright.target import Target

BINARY = [c for c in vars(nodes).values() if isinstance(c, type) and issubclass(c, nodes.Binary | nodes.Compare)]
OPERATORS = [c for c in BINARY if c not in (nodes.Binary, nodes.Compare)]
EXACT = [
    *("neg", "abs", "sign", "invert", "popcount", "floor", "ceil", "trunc", "round", "sqrt"),
    *("isnan", "isinf", "copysign", "fma", "dot_bytes", "bits", "from_bits"),
]
COMPUTED = [d for d in DTYPES.values() if d.code is None]
ROUGH_ZEROS = (nodes.Min, nodes.Max)
"""Operators whose zero may have either sign when both operands are zeros."""


def edges(dtype: DType) -> Array:
    """The values at which operators of this type change their ways."""
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_int:
        low, high = int(dtype.min), int(dtype.max)
        values = [0, 1, 2, 3, 7, dtype.bits - 1, dtype.bits, dtype.bits + 1, high, high - 1, high // 3, low, low + 1]
        values += [-1, -2, -7] if dtype.kind == "i" else [high // 2, high // 2 + 1]
        return np.array(values, dtype.numpy)
    steps = {16: (1, 3, 0x3FF, 0x400, 0x7BFF), 32: (1, 3, 0x7FFFFF, 0x800000, 0x7F7FFFFF)}
    steps[64] = (1, 3, (1 << 52) - 1, 1 << 52, 0x7FEFFFFFFFFFFFFF)
    near = np.array(steps[dtype.bits], f"u{dtype.bytes}").view(dtype.numpy)
    usual = [
        0.0,
        0.5,
        1.0,
        1.5,
        2.5,
        3.0,
        0.1,
        127.5,
        255.5,
        300.0,
        32767.5,
        65504.0,
        65520.0,
        2.0**31,
        2.0**32,
        2.0**63,
    ]
    with np.errstate(all="ignore"):
        positive = np.concatenate([near, np.array([*usual, 2.0**64, 1.0 + 2.0**-11, np.inf]).astype(dtype.numpy)])
        return np.concatenate([positive, -positive, np.array([np.nan]).astype(dtype.numpy)])


@dataclass(frozen=True)
class Case:
    """An expression over variables, and whether its zeros may have either sign."""

    name: str
    value: Expr
    rough: bool = False


def check(cases: list[Case], variables: list[Var], arrays: list[Array], lanes: int) -> None:
    """Computes all cases in one loop of machine code and compares each with the evaluator."""
    count = -(-len(arrays[0]) // lanes) * lanes
    arrays = [np.resize(a, count) for a in arrays]
    inputs = [Buffer(v.name, v.dtype, (const(count),)) for v in variables]
    outputs = [Buffer(f"y{n}", c.value.dtype, (const(count),)) for n, c in enumerate(cases)]
    i, j = Var("i"), Var("j")
    place = (i * lanes + j,)
    loads: dict[nodes.Expr, nodes.Expr] = {v: Load(b, place) for v, b in zip(variables, inputs, strict=True)}
    stores = seq(*[Store(y, place, substitute(c.value, loads)) for y, c in zip(outputs, cases, strict=True)])
    inner = For(j, const(0), const(lanes), LoopKind.VECTORIZE if lanes > 1 else LoopKind.SERIAL, stores)
    loop = For(i, const(0), const(count // lanes), LoopKind.SERIAL, inner)
    results = [np.zeros(count, c.value.dtype.numpy) for c in cases]
    Machine(legal(Function("f", (), (*inputs, *outputs), loop)))(*arrays, *results)
    values = dict(zip(variables, arrays, strict=True))
    wrong = []
    for case, result in zip(cases, results, strict=True):
        wanted = np.broadcast_to(np.asarray(evaluate(case.value, values)), count).astype(case.value.dtype.numpy)
        bad = np.flatnonzero(~same(result, wanted, case.rough))
        if bad.size:
            shown = ", ".join(str(a[bad[0]]) for a in arrays)
            wrong.append(f"{case.name}({shown}) = {result[bad[0]]}, not {wanted[bad[0]]} ({bad.size} of {count})")
    assert not wrong, "\n".join(wrong)


def same(a: Array, b: Array, rough: bool) -> Array:
    """Equal bit by bit; all NaN are the same, and zeros where `rough` says so."""
    if a.dtype.kind in "biu":
        return np.asarray(a == b)
    whole = a.view(f"u{a.itemsize}") == b.view(f"u{a.itemsize}")
    return whole | (np.isnan(a) & np.isnan(b)) | (rough & (a == b))


def pairs(dtype: DType) -> list[Array]:
    values = edges(dtype)
    both = list(itertools.product(range(len(values)), repeat=2))
    return [values[[a for a, _ in both]], values[[b for _, b in both]]]


@pytest.mark.parametrize("lanes", [1, 4, 8])
@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_operators(dtype: DType, lanes: int) -> None:
    a, b = Var("a", dtype, None), Var("b", dtype, None)
    built = [Case(c.__name__, c(a, b), c in ROUGH_ZEROS) for c in OPERATORS]
    cases = [c for c in built if ill_typed(c.value) is None]
    assert len(cases) >= 9
    cases.append(Case("select", Select(nodes.Lt(a, b), a, b)))
    check(cases, [a, b], pairs(dtype), lanes)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_operators_with_a_constant(dtype: DType, lanes: int) -> None:
    """Constant operands take shorter ways: divisions without guards, minima without a test for NaN."""
    a = Var("a", dtype, None)
    cases = []
    for operator, number in itertools.product(OPERATORS, (0, 1, 3, dtype.max, dtype.min)):
        c = const(number, dtype)
        values = [v for v in (operator(a, c), operator(c, a)) if ill_typed(v) is None]
        cases += [Case(str(v), v, operator in ROUGH_ZEROS) for v in values]
    check(cases, [a], [edges(dtype)], lanes)


@pytest.mark.parametrize("lanes", [1, 4, 8])
@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_functions(dtype: DType, lanes: int) -> None:
    a, b, c = (Var(n, dtype, None) for n in "abc")
    calls = [Call(INTRINSICS[n], (a, b, c)[: INTRINSICS[n].arity]) for n in EXACT]
    typed = [e for e in calls if ill_typed(e) is None and not (e.fn.result == "float" and dtype.bits == 8)]
    cases = [Case(e.fn.name, e, rough=e.fn.name == "sign") for e in typed]
    first, second = pairs(dtype)
    third = np.resize(edges(dtype)[::-1], len(first))
    if cases:
        check(cases, [a, b, c], [first, second, third], lanes)
    else:
        assert dtype.is_bool


@pytest.mark.parametrize("lanes", [1, 4, 8])
@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_casts(dtype: DType, lanes: int) -> None:
    a = Var("a", dtype, None)
    cases = [Case(f"{to}", Cast(a, to)) for to in DTYPES.values() if to is not dtype]
    check(cases, [a], [edges(dtype)], lanes)


@pytest.mark.parametrize("to", [dtypes.f16, dtypes.bf16], ids=str)
def test_casts_to_halves_round_once(to: DType) -> None:
    """Around the middles between neighbouring halves, where rounding twice gives another result."""
    halves = np.arange(0, 0x7C00, 37, dtype=np.uint16).view(to.numpy).astype(np.float64)
    following = np.arange(1, 0x7C01, 37, dtype=np.uint16).view(to.numpy).astype(np.float64)
    middle = (halves + following) / 2
    values = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, 0), middle * (1 + 2.0**-30)])
    values = values[np.isfinite(values)]
    for dtype in (dtypes.f64, dtypes.f32):
        a = Var("a", dtype, None)
        check([Case(str(to), Cast(a, to))], [a], [values.astype(dtype.numpy)], 8)


@pytest.mark.parametrize("lanes", [1, 8])
def test_truth_values(lanes: int) -> None:
    a, b = Var("a", dtypes.bool_), Var("b", dtypes.bool_)
    cases = [Case("and", And(a, b)), Case("or", Or(a, b)), Case("not", Not(a)), Case("select", Select(a, b, Not(b)))]
    check(cases, [a, b], pairs(dtypes.bool_), lanes)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", [d for d in COMPUTED if d.is_int], ids=str)
def test_integer_powers(dtype: DType, lanes: int) -> None:
    a, b = Var("a", dtype, None), Var("b", dtype, None)
    power = INTRINSICS["pow"]
    cases = [Case("pow", Call(power, (a, b)))]
    cases += [Case(f"pow{n}", Call(power, (a, Const(n, dtype)))) for n in (0, 1, 2, 5)]
    check(cases, [a, b], pairs(dtype), lanes)


def test_integer_powers_are_those_of_python() -> None:
    a, b = Var("a", dtypes.i32, None), Var("b", dtypes.i32, None)
    base, exponent = (np.array(v, np.int32) for v in zip(*itertools.product(range(-9, 10), range(-3, 9)), strict=True))
    value = evaluate(Call(INTRINSICS["pow"], (a, b)), {a: base, b: exponent})
    for x, y, got in zip(base.tolist(), exponent.tolist(), value.tolist(), strict=True):
        assert got == (x**y if y >= 0 else int(x**y) if abs(x) == 1 else 0)


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.i64, dtypes.bool_], ids=str)
def test_broadcast_of_a_scalar(dtype: DType) -> None:
    x, y = Buffer("x", dtype, (const(3),)), Buffer("y", dtype, (const(3), const(8)))
    i = Var("i")
    store = Store(y, (i, nodes.Ramp(const(0), const(1), 8)), Broadcast(Load(x, (i,)), 8))
    function = Function("f", (), (x, y), For(i, const(0), const(3), LoopKind.SERIAL, store))
    given, got = edges(dtype)[:3], np.zeros((3, 8), dtype.numpy)
    given = np.resize(given, 3)
    Machine(function)(given, got)
    assert np.array_equal(got, np.repeat(given[:, None], 8, 1), equal_nan=dtype.is_float)


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_extrema_of_scalars_do_not_branch(target: str, dtype: DType) -> None:
    """The sign of a number that nobody stored, in a row beyond an edge, decides nothing."""
    x, y = (Buffer(name, dtype, (const(1),)) for name in "xy")
    zero = (const(0),)
    one = Function("f", (), (x, y), Store(y, zero, build.maximum(Load(x, zero), Load(y, zero))), outputs=1)
    machine = Target.parse(target)
    text = assembly(generate({"f": one}, "f", machine).text, machine)
    assert re.search(r"\tv?(maxs[sd]|fmax)\b", text) and not re.search(r"\t(js|jns|sets|setns)\b", text)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize(("target", "most"), [("x86-64-v4", 2), ("x86-64-v3", 3)])
def test_extrema_of_vectors_are_an_instruction_and_what_keeps_nan(name: str, target: str, most: int) -> None:
    combine, machine = {"max": build.maximum, "min": build.minimum}[name], Target.parse(target)
    lanes = machine.lanes(dtypes.f32)
    function = legal(elementwise(combine, [dtypes.f32, dtypes.f32], dtypes.f32, 16 * lanes, lanes))
    text = assembly(generate({function.name: function}, function.name, machine).text, machine)
    found = [line.split()[0] for line in text.splitlines() if re.match(r"\t(v(max|min|cmp|blend|or)|kor)", line)]
    assert f"v{name}ps" in found
    assert len(found) <= most


ENDS = (0.0, -0.0, 1.5, -1.5, 2.0**31 - 128, 2.0**31, -(2.0**31), -(2.0**31) - 256, 2.0**32 - 256, 2.0**32, 2.0**63)
BEYOND = (-(2.0**63), -(2.0**64), 2.0**64, 3e38, -3e38, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("target", ["native", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("to", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_vectors_of_floats_become_integers_that_saturate(source: str, to: str, target: str) -> None:
    """At the ends of integers and beyond them, as the evaluator has it."""
    x = np.resize(np.array([*ENDS, *BEYOND]), 64).astype(DTYPES[source].numpy)
    graph = tw.parse(f"graph main(x: {source}[64]) -> y:\n  y: {to}[64] = cast(x, dtype={to})\n")
    (found,) = tw.compile(graph, target=target)(x)
    np.testing.assert_array_equal(found, evaluate_graph(tw.Module({"main": graph}), [x])["y"])


def test_casts_to_integers_stay_in_vectors() -> None:
    graph = tw.parse("graph main(x: f32[64]) -> y:\n  y: i32[64] = cast(x, dtype=i32)\n")
    text = tw.compile(graph, target="x86-64-v4").show(after="assembly")
    assert "vcvttps2dq" in text
    assert "vcvttss2si" not in text
