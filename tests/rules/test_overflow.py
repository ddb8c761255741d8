"""`fits`: where it holds, 64-bit arithmetic gives the number that whole numbers without an end give."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.expr.build import less, maximum, minimum, select
from tilewright.expr.evaluate import evaluate
from tilewright.expr.linear import exact
from tilewright.expr.nodes import Add, Const, Expr, FloorDiv, Mul, Select, Sub, Var, const
from tilewright.expr.overflow import fits
from tilewright.expr.simplify import simplify
from tilewright.report.errors import UserError

N, M, D = Var("n"), Var("m"), Var("d", least=None)
NUMBERS = st.sampled_from([0, 1, 2, 3, 7, 64, -1, -5, 2**31, 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63)])
SIZES = st.one_of(st.integers(0, 9), st.integers(0, 2**62), st.sampled_from([2**31, 2**32, 2**40, 2**62, 2**63 - 1]))


def build(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(children, children)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        pairs.map(lambda p: FloorDiv(p[0], p[1])),
        pairs.map(lambda p: minimum(*p)),
        pairs.map(lambda p: maximum(*p)),
        st.tuples(children, children, children).map(lambda t: select(less(t[0], 0), t[1], t[2])),
    )


EXPRESSIONS = st.recursive(st.one_of(st.sampled_from([N, M, D]), NUMBERS.map(const)), build, max_leaves=8)


def in_integers(e: Expr, values: dict[Var, int]) -> int:
    """The value in Python's integers; what `evaluate` gives wraps around."""
    match e:
        case Const(value, _):
            return int(value)
        case Var():
            return values[e]
        case Select(c, a, b):
            return in_integers(a if in_integers(c.children()[0], values) < 0 else b, values)  # type: ignore[arg-type]
    a, *rest = (in_integers(c, values) for c in e.children() if isinstance(c, Expr))
    b = rest[0] if rest else 0
    name = type(e).__name__
    results = {"Add": a + b, "Sub": a - b, "Mul": a * b, "Min": min(a, b), "Max": max(a, b), "Call": -a}
    return (a // b if b else 0) if name == "FloorDiv" else results[name]


@given(e=EXPRESSIONS, n=SIZES, m=SIZES, d=NUMBERS)
@settings(max_examples=400, deadline=None)
def test_what_fits_is_exact(e: Expr, n: int, m: int, d: int) -> None:
    values = {N: n, M: m, D: d}
    if evaluate(fits(e), values):
        assert int(evaluate(e, values)) == in_integers(e, values)


def test_the_least_number_by_minus_one_does_not_fit() -> None:
    least, e = -(2**63), FloorDiv(D, M - N)
    assert not evaluate(fits(e), {D: least, M: 1, N: 2}) and evaluate(fits(e), {D: least + 1, M: 1, N: 2})
    assert fits(FloorDiv(D, const(4))).children() == () and fits(FloorDiv(N, D)) is fits(const(3))


@given(n=st.integers(0, 2**20), m=st.integers(0, 2**20), d=st.integers(-(2**20), 2**20))
@settings(max_examples=50, deadline=None)
def test_sizes_of_real_programs_fit(n: int, m: int, d: int) -> None:
    for e in (n_by_m := N * M, FloorDiv(n_by_m * 4 + 63, const(64)) * 64, maximum(N - M + D, 0), N * 3 + M):
        assert evaluate(fits(e), {N: n, M: m, D: d})


def test_products_that_wrap_to_small_numbers_do_not_fit() -> None:
    assert not evaluate(fits(N * M), {N: 2**32, M: 2**32})
    assert not evaluate(fits(FloorDiv(const(12), N * M) * N * M), {N: 2**32, M: 2**32})
    assert fits(N).children() == () and fits(minimum(N, M)) is fits(const(3))


SUMS = st.recursive(
    st.one_of(st.sampled_from([N, D]), NUMBERS.map(const)),
    lambda children: st.tuples(st.sampled_from([Add, Sub, Mul]), children, children).map(lambda t: t[0](t[1], t[2])),
    max_leaves=6,
)


def folded(e: Expr) -> Expr:
    """The expression as Python's operators build it."""
    match e:
        case Add(a, b):
            return folded(a) + folded(b)
        case Sub(a, b):
            return folded(a) - folded(b)
        case Mul(a, b):
            return folded(a) * folded(b)
    return e


@given(e=SUMS, n=SIZES, d=NUMBERS)
@settings(max_examples=400, deadline=None)
def test_folding_and_the_normal_form_never_wrap_around(e: Expr, n: int, d: int) -> None:
    """Neither gives an expression that looks smaller: in integers without an end, they are what was written."""
    values = {N: n, D: d}
    normal = simplify(e)
    assert in_integers(folded(e), values) == in_integers(normal, values) == in_integers(e, values)
    assert simplify(normal) is normal is simplify(folded(e))
    assert int(evaluate(normal, values)) == int(evaluate(e, values))


@given(st.integers(-(2**200), 2**200))
def test_numbers_of_any_size_are_written_exactly(number: int) -> None:
    assert in_integers(exact(number), {}) == number
    assert isinstance(exact(number), Const) == (-(2**63) <= number < 2**63)
    assert evaluate(fits(exact(number)), {}) or abs(number) > 2**62


def test_sums_of_constants_are_folded_where_they_fit_alone() -> None:
    most = const(2**63 - 1)
    assert isinstance(most + -1, Const) and not isinstance(most + 1, Const)
    assert str(simplify(most + 5 + most)) == "4*4611686018427387904 + 3"
    with pytest.raises(UserError, match="is too large to compute with"):
        const(2**63)
