"""Products by constants as seven products of halves: what they compute, how far they are off, where they are chosen."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from drawn import LONG
from tilewright.compiler import compile_module
from tilewright.compiler.pipeline import plan_kernels
from tilewright.expr.dtypes import f32
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.verify import verify
from tilewright.loops.nodes import Function
from tilewright.loops.text import show
from tilewright.lower.graph import split_by_rows as splitting
from tilewright.lower.graph import strassen as rewriting
from tilewright.lower.graph.reduce_precision import reduce_precision
from tilewright.lower.graph.strassen import half_columns, strassen
from tilewright.ops.accuracy import PRODUCT_ERROR, product_error
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.shape import recognise
from tilewright.plan.price import contraction
from tilewright.plan.price.contraction import Sums
from tilewright.plan.rewrite.strassen import halved_seconds, least_rows, pays
from tilewright.plan.template import candidates
from tilewright.runtime.plan_report import Choices
from tilewright.target import Target, native
from tilewright.target.host import current_host
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]
V4 = Target.parse("x86-64-v4")
SHARED = dataclasses.replace(V4, caches=(*V4.caches[:-1], dataclasses.replace(V4.caches[-1], bytes=32 << 20)))
"""A machine whose last cache is large."""
FEW_MANY = ("few", "many")
PLAIN = partial(contraction.least_seconds, target=SHARED)
HALVED = partial(halved_seconds, target=SHARED, stored=False)


def numbers(*shape: int, seed: int = 0, spread: float = 0.0) -> Array:
    """Normal numbers, times factors whose logarithms have this deviation."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp(spread * rng.standard_normal(shape))).astype(np.float32)


def product(x: Array, w: Array, spec: str = "mk,kn->mn", *, bias: Array | None = None, added: bool = False) -> Module:
    """A graph: x times the constant w; with a bias, a tanh and a power behind it; `added` a further input."""
    graph = GraphBuilder()
    value = graph.op("contract", graph.param("x", TensorType.of(f32, x.shape)), graph.constant("w", w), spec=spec)
    if bias is not None:
        value = graph.op("tanh", graph.op("add", value, graph.constant("b", bias)))
    if added:
        value = graph.op("add", graph.param("more", value.type), value)
    return graph.module({"y": value})


def operators(module: Module) -> list[str]:
    return [node.op.name for node in module.graph.nodes]


WAYS = ("differences taken", "differences stored")


@pytest.fixture(params=[False, True], ids=WAYS)
def everywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Every product that halves fit is computed by them."""
    monkeypatch.setattr(rewriting, "pays", lambda *_: True)
    monkeypatch.setattr(rewriting, "keeps_all", lambda *_: request.param)
    return bool(request.param)


def require_bound(found: Array, x: Array, w: Array, target: Target = V4) -> None:
    """Each result is as close to the exact one as the bound says."""
    wanted = x.astype(np.float64) @ w
    largest = np.abs(x).max(-1)
    odd = x.shape[-2] % 2
    pairs = np.pad(largest, [(0, 0)] * (largest.ndim - 1) + [(0, odd)]).reshape(*largest.shape[:-1], -1, 2).max(-1)
    scale = np.repeat(pairs, 2, -1)[..., : x.shape[-2], None] * np.abs(w.astype(np.float64)).sum(0)
    assert found.shape == wanted.shape
    bound = product_error(w, half_columns(w.shape[1], target))
    assert bound <= PRODUCT_ERROR
    assert (np.abs(found - wanted) <= bound * scale).all()


def test_where_bf16_is_allowed_products_that_stay_f32_become_halves() -> None:
    """A machine without products of bf16 pairs, or with slow ones, rounds neither the product nor its halves."""
    module = product(numbers(128, 768), numbers(768, 768))
    machine = Target.parse("x86-64-v4 +avx512bf16")
    pairs, slow = (machine.with_core(dots={"x86.avx512bf16.dot_bf16": cycles}) for cycles in (0.5, 4.0))
    assert strassen(module, pairs, halves=True) is module
    for target in (V4, slow):
        halved = strassen(module, target, halves=True)
        assert operators(halved) == operators(strassen(module, target)) != operators(module)
        assert reduce_precision(halved, target) is halved
        assert reduce_precision(halved, pairs) is halved


@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [((8,), 8, 32), ((32,), 48, 64), ((33,), 31, 65), ((2, 3), 5, 7), ((1, 37), 64, 129)]
)
def test_compiled_within_the_bound(rows: tuple[int, ...], depth: int, columns: int, everywhere: bool) -> None:
    x, w = numbers(*rows, depth), numbers(depth, columns, seed=1)
    spec = "mk,kn->mn" if len(rows) == 1 else "amk,kn->amn"
    module = product(x, w, spec)
    rewritten = strassen(module, V4)
    assert operators(rewritten).count("contract") == 2
    assert ("sub" in operators(rewritten)) is not everywhere
    verify(rewritten)
    require_bound(evaluate(rewritten, [x])["y"], x, w)
    for target in (native(), Target.parse("x86-64-v3")):
        if target.is_runnable_on(current_host()):
            executable = compile_module(module, target)
            require_bound(executable(x)[0], x, w, target)
    made = {d.template for name, d in executable.decisions.items() if "strassen" in name}
    assert made <= {"strassen input", "strassen output", "nests"}


def test_turned_constants(everywhere: bool) -> None:
    x, w = numbers(34, 40), numbers(48, 40, seed=1)
    module = product(x, w, "mk,nk->mn")
    made = strassen(module, V4)
    assert "strassen_input" in operators(made)
    require_bound(evaluate(made, [x])["y"], x, np.ascontiguousarray(w.T))


def test_bias_tanh_and_sum_join_the_sums(everywhere: bool) -> None:
    x, w, bias, more = numbers(37, 48), numbers(48, 80, seed=1), numbers(80, seed=2), numbers(37, 80, seed=3)
    executable = compile_module(product(x, w, bias=bias, added=True))
    wanted = np.tanh(x.astype(np.float64) @ w + bias) + more
    np.testing.assert_allclose(executable(x, more)[0], wanted, rtol=0, atol=2e-5)
    (last,) = (d for name, d in executable.decisions.items() if "strassen_output" in name)
    assert last.template == "strassen output"
    assert any("tanh" in name and "strassen_output" in name for name in executable.kernels)


def test_rows_of_both_halves_are_summed_together(everywhere: bool) -> None:
    """Whatever else a kernel reads, and in whatever order, its loops run over the columns of a half."""
    x, w = numbers(37, 48), numbers(48, 96, seed=1)
    graph = GraphBuilder()
    more = graph.op("mul", *(graph.param(name, TensorType.of(f32, (37, 96))) for name in ("first", "second")))
    value = graph.op(
        "contract", graph.param("x", TensorType.of(f32, x.shape)), graph.constant("w", w), spec="mk,kn->mn"
    )
    total = graph.op("add", more, value)
    executable = compile_module(graph.module({"y": total}))
    name = next(name for name in executable.kernels if "strassen_output" in name)
    made = executable.after("vectorize").functions
    assert not any("ramp" in str(function) for called, function in made.items() if called.startswith(name))
    ones = np.ones((37, 96), np.float32)
    np.testing.assert_allclose(executable(ones, ones, x)[0], x.astype(np.float64) @ w + 1.0, atol=1e-4)


def test_one_input_of_several_products_is_summed_once(everywhere: bool) -> None:
    x = numbers(64, 48)
    graph = GraphBuilder()
    value = graph.param("x", TensorType.of(f32, x.shape))
    results = {}
    for n in range(3):
        w = graph.constant("w", numbers(48, 64, seed=n))
        results[f"y{n}"] = graph.op("contract", value, w, spec="mk,kn->mn")
    assert operators(strassen(graph.module(results), V4)).count("strassen_input") == 1


def test_differences_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants are packed once for the products that read them and those that read their differences."""
    monkeypatch.setattr(rewriting, "keeps_all", lambda *_: False)
    x, w = numbers(128, 768), numbers(768, 768, seed=1)
    executable = compile_module(product(x, w))
    assert sum("contract" in name for name in executable.kernels) == 2
    constants = executable.after("hoist").constants
    assert sum(array.nbytes for array in constants.values()) == w.nbytes
    require_bound(executable(x)[0], x, w, native())


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("stored", [False, True])
def test_products_are_priced_like_those_that_read_the_same_panels(
    machine: str, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where differences are stored, nobody takes any, and each product has the tile that is best for it."""
    monkeypatch.setattr(rewriting, "keeps_all", lambda *_: stored)
    monkeypatch.setattr(rewriting, "pays", lambda *_: True)
    target = Target.parse(machine)
    made = plan_kernels(strassen(product(numbers(128, 768), numbers(768, 768, seed=1)), target), target, Choices())
    kernels = [f for f in made.functions.values() if isinstance(f, Function) and "contract" in f.name]
    found = [recognise(Facts(f)) for f in kernels]
    assert [p.size.parts for p in found if p is not None] == ([1, 1] if stored else [2, 2])
    assert all("constant shared" in show(f) for f in kernels) is not stored
    assert len({candidates(Facts(f), target)[0].choice.tile.columns for f in kernels}) == 1


def test_infinities_reach_the_paired_row_alone(everywhere: bool) -> None:
    x, w = numbers(32, 32), numbers(32, 32, seed=1)
    x[6, 3] = np.inf
    (found,) = compile_module(product(x, w))(x)
    assert not np.isfinite(found[6:8]).all()
    assert np.isfinite(np.delete(found, (6, 7), 0)).all()


@pytest.mark.parametrize(
    "spec", ["mk,bkn->bmn", "bmk,bkn->bmn", "mk,kn->nm", "km,kn->mn", "mk,k->m", "mk,kn->m n k"], ids=str
)
def test_other_products_stay(spec: str, everywhere: bool) -> None:
    names = {"b": 3, "m": 32, "k": 48, "n": 64}
    left, right = (tuple(names[c] for c in word) for word in spec.replace(" ", "").split("->")[0].split(","))
    module = product(numbers(*left), numbers(*right), spec if " " not in spec else spec.replace(" ", ""))
    assert strassen(module, V4) is module


def test_two_inputs_stay(everywhere: bool) -> None:
    graph = GraphBuilder()
    x, w = (graph.param(name, TensorType.of(f32, (64, 64))) for name in "xw")
    module = graph.module({"y": graph.op("contract", x, w, spec="mk,kn->mn")})
    assert strassen(module, V4) is module


@pytest.mark.parametrize("bad", ["small", "zero", "infinite", "unknown"])
def test_inaccurate_constants_are_left_alone(bad: str, everywhere: bool) -> None:
    """A column that is small beside the one that it shares sums with would be off by as much as that one."""
    w = numbers(48, 64, seed=1)
    w[:, 5] *= {"small": 1e-4, "zero": 0.0, "infinite": np.inf, "unknown": np.nan}[bad]
    module = product(numbers(32, 48), w)
    assert strassen(module, V4) is module
    assert product_error(w, 32) > PRODUCT_ERROR


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    module = product(numbers(128, 768), numbers(768, 768))
    assert "strassen_input" in operators(strassen(module, V4))
    assert not any("strassen" in name for name in tw.compile(module, off=["strassen"]).kernels)
    monkeypatch.setenv("TILEWRIGHT_STRASSEN", "0")
    assert strassen(module, V4) is module


def any_rows(w: Array, *rest: str) -> Module:
    """A graph: x of a dynamic number of rows, times the constant w; `rest` are lines that make y of the product z."""
    k, n = w.shape
    lines = [
        f"graph main[m](x: f32[m, {k}]) -> y:",
        f"w: f32[{k}, {n}] = constant(name=@w)",
        f'z: f32[m, {n}] = contract(x, w, spec="mk,kn->mn")',
        *(rest or [f"y: f32[m, {n}] = relu(z)"]),
    ]
    return Module({"main": tw.parse("\n  ".join(lines))}, {"w": w})


@pytest.fixture(params=[False, True], ids=WAYS)
def from_five_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of any number of rows are computed by halves from five rows on."""
    monkeypatch.setattr(splitting, "least_rows", lambda *_: 5)
    monkeypatch.setattr(rewriting, "keeps_all", lambda *_: request.param)


@pytest.mark.usefixtures("from_five_rows")
@pytest.mark.parametrize(
    ("from_five_rows", "depth", "columns"),
    [
        pytest.param(stored, *sizes, id=f"{WAYS[stored]}-{sizes[0]}-{sizes[1]}")
        for stored in (False, True)
        for sizes in ((48, 64), (31, 65))
        if LONG or stored == (sizes[0] % 2 == 0)
    ],
    indirect=["from_five_rows"],
)
def test_a_call_decides_by_its_rows(depth: int, columns: int) -> None:
    w = numbers(depth, columns, seed=1)
    module = any_rows(w)
    rewritten = strassen(module, V4)
    verify(rewritten)
    assert operators(rewritten)[-1] == "if"
    few, many = (sum(n.op.name == "contract" for n in rewritten.functions[f"main.{name}"].nodes) for name in FEW_MANY)
    assert (few, many) == (1, 2)
    executable = compile_module(module)
    for rows in (0, 1, 2, 4, 5, 6, 7, 64, 131):
        x = numbers(rows, depth)
        wanted = np.maximum(x.astype(np.float64) @ w, 0)
        for found in (evaluate(rewritten, [x])["y"], executable(x)[0]):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-5)


@pytest.mark.usefixtures("from_five_rows")
def test_infinities_reach_no_other_row_of_few() -> None:
    x, w = numbers(4, 32), numbers(32, 32, seed=1)
    x[2, 3] = np.inf
    (found,) = compile_module(any_rows(w))(x)
    assert not np.isfinite(found[2]).all() and np.isfinite(np.delete(found, 2, 0)).all()


def test_both_functions_share_their_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "keeps_all", lambda *_: False)
    w = numbers(768, 768, seed=1)
    executable = compile_module(any_rows(w))
    assert sum(array.nbytes for array in executable.after("hoist").constants.values()) == w.nbytes
    assert any("strassen" in name for name in executable.kernels)


@pytest.mark.usefixtures("from_five_rows")
def test_products_that_would_be_inaccurate_stay_in_both_functions() -> None:
    w, v = numbers(64, 96, seed=1), numbers(96, 32, seed=2)
    v[:, 5] = 0
    module = any_rows(w, "v: f32[96, 32] = constant(name=@v)", 'y: f32[m, 32] = contract(z, v, spec="mk,kn->mn")')
    module = Module(module.functions, {"w": w, "v": v})
    made = strassen(module, V4)
    few, many = (sum(n.op.name == "contract" for n in made.functions[f"main.{name}"].nodes) for name in FEW_MANY)
    assert (few, many) == (2, 3)
    executable = compile_module(module)
    for rows in (3, 8):
        x = numbers(rows, 64)
        np.testing.assert_allclose(executable(x)[0], x.astype(np.float64) @ w @ v, atol=1e-3)
    assert strassen(any_rows(v), V4).graph.nodes[-1].op.name != "if"


OTHER_WORK = ("t: f32[m, 64] = relu(z)", 'y: f32[m, m] = contract(t, t, spec="mk,nk->mn")')
SIZES_FROM_DATA = (
    "b: f32[m] = reduce(z, kind=sum, axes=(1,))",
    "c: i64[m] = cast(b, dtype=i64)",
    "t: i64[] = reduce(c, kind=max, axes=(0,))",
    'l = size(t, low=0, high=m, what="rows")',
    "y: f32[l, 64] = slice(z, starts=(0, 0), sizes=(l, 64), steps=(1, 1))",
)


@pytest.mark.parametrize("rest", [OTHER_WORK, SIZES_FROM_DATA], ids=["more other work", "sizes from data"])
def test_functions_that_are_not_split(rest: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "least_rows", lambda *_: 5)
    w = numbers(64, 64, seed=1)
    assert operators(strassen(any_rows(w), V4))[-1] == "if"
    module = any_rows(w, *rest)
    verify(module)
    assert strassen(module, V4) is module


def test_least_rows() -> None:
    """From so many rows on the products pay, all together, and with one less they do not."""
    shapes = [Sums(1, 768, 768), Sums(1, 3072, 768), Sums(1, 768, 3072)]
    found = least_rows(shapes, 1 << 14, SHARED, False)
    assert found is not None and 16 < found < 256
    for rows, pay in ((found - 1, False), (found, True)):
        each = [dataclasses.replace(s, rows=rows) for s in shapes]
        plain, halved = (sum(f(s) for s in each) for f in (PLAIN, HALVED))
        assert (plain >= contraction.MARGIN * halved) is pay
    assert least_rows(shapes, found - 1, SHARED, False) is None
    assert least_rows([Sums(1, 768, 8)], 1 << 14, SHARED, False) is None


@pytest.mark.parametrize(
    ("sums", "stored", "expected"),
    [
        (Sums(128, 768, 768, 1), False, True),
        (Sums(128, 3072, 768, 1), False, True),
        (Sums(197, 768, 3072, 1), False, True),
        (Sums(784, 768, 192, 1), False, False),
        (Sums(128, 50257, 768, 1), False, True),
        (Sums(1024, 1024, 1024, 1), True, True),
        (Sums(2048, 2048, 2048, 1), False, True),
        (Sums(32, 1024, 1024, 1), True, True),
        (Sums(32, 1024, 1024, 1), False, False),
        (Sums(16, 768, 768, 1), True, False),
        (Sums(3136, 96, 96, 1), True, False),
        (Sums(128, 768, 768, 4), False, True),
    ],
)
def test_choice(sums: Sums, stored: bool, expected: bool) -> None:
    assert pays(sums, SHARED, stored) is expected


def test_constants_are_read_while_products_are_computed() -> None:
    """Where memory is so slow that reading the constant takes longest, halves, which read it more often, do not pay."""
    sums = Sums(128, 768, 768, 1)
    slow = V4.with_peaks(memory_asked_gbs=2.0)
    assert (pays(sums, V4, False), pays(sums, slow, False)) == (True, False)


@pytest.mark.parametrize(("columns", "half"), [(768, 384), (1000, 512), (50257, 25152), (30, 16)])
def test_halves_are_whole_vectors(columns: int, half: int) -> None:
    assert half_columns(columns, V4) == half
