"""Contractions whose terms are no products: squares of differences, sums under a minimum, counts; and those of two
parts of one tensor. Each choice of the template computes what the definition says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.meaning.chosen import candidates_of

import tilewright as tw
from tilewright.analysis.contractions import Contraction
from tilewright.expr.dtypes import f32
from tilewright.loops.nodes import Function
from tilewright.plan.choose import cheapest
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.price.contraction import Sums, least_cycles
from tilewright.target import Target, native

Array = np.ndarray[Any, Any]
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")

TERMS: dict[str, tuple[str, str, Callable[[Array, Array], Array]]] = {
    "products": ("0.0", "{y} + a[vi, vk] * b[vj, vk]", lambda a, b: (a * b).sum(-1)),
    "squares": ("0.0", "{y} + (a[vi, vk] - b[vj, vk]) * (a[vi, vk] - b[vj, vk])", lambda a, b: ((a - b) ** 2).sum(-1)),
    "absolute": ("0.0", "{y} + abs(a[vi, vk] - b[vj, vk])", lambda a, b: np.abs(a - b).sum(-1)),
    "least sums": ("f32(inf)", "min({y}, a[vi, vk] + b[vj, vk])", lambda a, b: (a + b).min(-1)),
    "greatest": ("f32(-inf)", "max({y}, min(a[vi, vk], b[vj, vk]))", lambda a, b: np.minimum(a, b).max(-1)),
    "counts": ("0.0", "{y} + select(a[vi, vk] > b[vj, vk], 1.0, 0.0)", lambda a, b: (a > b).sum(-1)),
}
"""What sums begin with, what they become with a term, and what they are; the second operand has columns outermost."""


def text_of(name: str, second: str = "b", sizes: tuple[str, str, str] = ("21", "37", "12"), symbols: str = "") -> str:
    begin, term, _ = TERMS[name]
    n, m, d = sizes
    given = f"a: f32[{n}, {d}]" + (f", b: f32[{m}, {d}]" if second == "b" else "")
    term = term.format(y="y[vi, vj]").replace("b[", f"{second}[")
    return f"""
func pairs{symbols}({given}, y: f32[{n}, {m}]):
  for i in 0..{n}, j in 0..{m}, k in 0..{d}:
    block y(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = {begin}
      y[vi, vj] = {term}
"""


def parsed(text: str) -> Function:
    function = tw.parse(text)
    assert isinstance(function, Function)
    return function


def numbers(n: int, m: int, d: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return rng.random((n, d), np.float32), rng.random((m, d), np.float32)


def ran(function: Function, target: Target, arrays: tuple[Array, ...], n: int, m: int) -> Array:
    y = np.full((n, m), np.nan, np.float32)
    tw.build(function, target=target, threads=1)(*arrays, y)
    return y


def runs_here(target: Target) -> bool:
    return set(target.features) <= set(native().features)


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("name", TERMS)
def test_each_choice_computes_its_terms(name: str, level: str) -> None:
    target = Target.parse(level)
    if not runs_here(target):
        pytest.skip(f"no {level} here")
    function, (a, b) = parsed(text_of(name)), numbers(21, 37, 12)
    facts, found = Facts(function), candidates_of(function, target)
    assert found
    wanted = TERMS[name][2](a[:, None].astype(np.float64), b[None].astype(np.float64))
    for candidate in found[:: max(len(found) // 8, 1)]:
        made = candidate.schedule(facts, target).func
        np.testing.assert_allclose(ran(made, target, (a, b), 21, 37), wanted, rtol=1e-5)


@pytest.mark.parametrize("name", TERMS)
def test_two_parts_of_one_tensor(name: str) -> None:
    """A tensor of rows against itself."""
    function, (a, _) = parsed(text_of(name, "a", ("33", "33", "8"))), numbers(33, 33, 8)
    made, decision = cheapest(Facts(function), native())
    assert decision.template == "contraction" and not decision.refusals
    wanted = TERMS[name][2](a[:, None].astype(np.float64), a[None].astype(np.float64))
    np.testing.assert_allclose(ran(made.func, native(), (a,), 33, 33), wanted, rtol=1e-5)


@pytest.mark.parametrize("name", TERMS)
def test_dynamic_sizes(name: str) -> None:
    function = parsed(text_of(name, sizes=("n", "m", "d"), symbols="[n, m, d]"))
    made, decision = cheapest(Facts(function), native())
    assert decision.template == "contraction" and not decision.refusals
    kernel = tw.build(made.func, threads=1)
    for n, m, d in ((1, 1, 1), (7, 40, 3), (33, 16, 20), (5, 0, 3)):
        a, b = numbers(n, m, d)
        y = np.full((n, m), np.nan, np.float32)
        kernel(a, b, y)
        wanted = TERMS[name][2](a[:, None].astype(np.float64), b[None].astype(np.float64))
        np.testing.assert_allclose(y, wanted, rtol=1e-5)


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "begin", "term", "reference"),
    [
        ("u8", "u8(255)", "min({y}, max({a}, {b}))", lambda a, b: np.maximum(a, b).min(-1)),
        ("i16", "i16(-999)", "max({y}, min({a}, {b}))", lambda a, b: np.minimum(a, b).max(-1)),
        ("bool", "false", "{y} or ({a} and {b})", lambda a, b: (a & b).any(-1)),
    ],
)
def test_narrow_sums_fill_vectors(
    dtype: str, begin: str, term: str, reference: Callable[[Array, Array], Array], level: str
) -> None:
    """A vector has as many of them as it has room for."""
    target = Target.parse(level)
    if not runs_here(target):
        pytest.skip(f"no {level} here")
    made = term.format(y="y[vi, vj]", a="a[vi, vk]", b="b[vk, vj]")
    function = parsed(
        f"""
func narrow(a: {dtype}[37, 20], b: {dtype}[20, 70], y: {dtype}[37, 70]):
  for i in 0..37, j in 0..70, k in 0..20:
    block y(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = {begin}
      y[vi, vj] = {made}
"""
    )
    numpy, rng = function.params[0].dtype.numpy, np.random.default_rng(0)
    a, b = (rng.integers(0, 100, shape).astype(numpy) for shape in ((37, 20), (20, 70)))
    if dtype == "bool":
        a, b = (rng.random(x.shape) < 0.2 for x in (a, b))
    (best, *_) = candidates_of(function, target)
    assert best.choice.tile.lanes == target.vector_bits // function.params[0].dtype.bits
    y = np.zeros((37, 70), numpy)
    tw.build(best.schedule(Facts(function), target).func, target=target, threads=1)(a, b, y)
    np.testing.assert_array_equal(y, reference(a[:, None], b.T[None]))


def test_a_gram_matrix_of_a_model() -> None:
    graph = tw.parse(
        """
graph main(x: f32[200, 24]) -> y:
  t: f32[24, 200] = transpose(x, perm=(1, 0))
  y: f32[24, 24] = contract(t, x, spec="mk,kn->mn")
"""
    )
    exe, (x, _) = tw.compile(graph, threads=1), numbers(200, 1, 24)
    assert [d.template for d in exe.decisions.values()] == ["contraction"]
    wanted = x.T.astype(np.float64) @ x
    np.testing.assert_allclose(exe(x)[0], wanted, rtol=1e-5)


def test_what_reads_sums_by_rows_is_a_piece_of_its_own() -> None:
    """The distance of each point to the nearest of others: a contraction, and a minimum over its rows."""
    text = text_of("squares").replace("y: f32", "z: f32[21], y: f32").replace(", y: f32[21, 37])", ")")
    head, body = text.strip().split("\n", 1)
    nearest = """
  for i in 0..21, j in 0..37:
    block z(vi = i, reduce vj = j):
      init: z[vi] = f32(inf)
      z[vi] = min(z[vi], y[vi, vj])
"""
    text = f"{head}\n  alloc y: f32[21, 37]\n{body}{nearest}"
    made, decision = cheapest(Facts(parsed(text)), native())
    assert decision.template == "pieces"
    (a, b), z = numbers(21, 37, 12), np.zeros(21, np.float32)
    tw.build(made.func, threads=1)(a, b, z)
    np.testing.assert_allclose(z, ((a[:, None] - b[None]) ** 2).sum(-1).min(1), rtol=1e-5)


FACTORS: dict[str, tuple[str, Callable[..., Array]]] = {
    "weights of rows": ("b[vj, vk] * w[vk] * a[vi, vk]", lambda a, b, w: (a * w) @ b.T),
    "a function": ("exp(a[vi, vk]) * b[vj, vk]", lambda a, b, w: np.exp(a) @ b.T),
    "of both": ("(a[vi, vk] - w[vk]) * (b[vj, vk] + 1.0)", lambda a, b, w: (a - w) @ (b + 1).T),
    "of one tensor": ("w[vk] * a[vi, vk] * a[vj, vk]", lambda a, b, w: (a * w) @ a.T),
}
"""Terms, and what their sums are."""


@pytest.mark.parametrize("name", FACTORS)
def test_factors_are_computed_once(name: str) -> None:
    """For all sums that they are part of; what is left is a contraction."""
    term, reference = FACTORS[name]
    text = text_of("products", sizes=("33", "33", "12")).replace("a[vi, vk] * b[vj, vk]", term)
    function = parsed(text.replace(", y: f32", ", w: f32[12], y: f32"))
    made, decision = cheapest(Facts(function), native())
    assert decision.template == "contraction" and not decision.refusals
    (a, b), w = numbers(33, 33, 12), np.linspace(0, 1, 12, dtype=np.float32)
    found = ran(made.func, native(), (a, b, w), 33, 33)
    np.testing.assert_allclose(found, reference(*(x.astype(np.float64) for x in (a, b, w))), rtol=1e-5, atol=1e-5)


def test_factors_of_each_sum_stay() -> None:
    """A row by a column: each factor is part of one sum."""
    text = text_of("products", sizes=("1", "33", "12")).replace("a[vi, vk] * b[vj, vk]", "a[vi, vk] * exp(b[vj, vk])")
    assert Facts(parsed(text)).contraction is None


def found_in(name: str, replaced: tuple[str, str] = ("", "")) -> Contraction | None:
    return Facts(parsed(text_of(name).replace(*replaced))).contraction


def test_instructions_of_a_term() -> None:
    """A subtraction and a multiply-add; a comparison, a choice and an addition."""
    counted = {name: found.instructions for name in TERMS if (found := found_in(name)) is not None}
    assert counted["products"] == 0 and counted["squares"] == 2 and counted["least sums"] == counted["greatest"] == 2
    assert counted["counts"] == 3


@pytest.mark.parametrize(
    "term",
    [
        "exp(a[vi, vk] - b[vj, vk])",
        "(a[vi, vk] + b[vj, vk]) * a[vi, vk] * b[vj, 0]",
        "a[vi, vk] / b[vj, vk]",
        "a[vi, vk] * f32(vk)",
        "a[vi, vk] + b[vj, vk] * f32(vj)",
    ],
)
def test_other_terms_are_none(term: str) -> None:
    text = text_of("products").replace("a[vi, vk] * b[vj, vk]", term)
    assert Facts(parsed(text)).contraction is None


def test_terms_of_more_instructions_are_dearer() -> None:
    target = Target.parse("x86-64-v3")
    price = [least_cycles(Sums(64, 64, 256, bits=f32.bits, instructions=n), target) for n in (0, 2, 3)]
    assert price[0] < price[1] < price[2]
