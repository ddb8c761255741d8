"""Every rule of expr/rules.py, and the simplifier as a whole, against the evaluator."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from strategies import COMPARISONS, index_expressions
from tilewright.core.walk import preorder
from tilewright.expr import dtypes, nodes
from tilewright.expr.evaluate import evaluate
from tilewright.expr.linear import affine_in, expression, plus, polynomial, times
from tilewright.expr.nodes import Const, Expr, FloorDiv, Mod, Var, const, less, maximum, minimum, select
from tilewright.expr.rules import RULES, Rule
from tilewright.expr.simplify import Facts, bounds_of_atom, simplify

VARIABLES = tuple(Var(name) for name in "ijnm") + (Var("s", least=None),)
I, J, N, M, S = VARIABLES

Values = dict[Var, int]


@st.composite
def ranged_values(draw: st.DrawFn) -> tuple[Facts, Values]:
    """Ranges for some variables (`i` may end below `n`), and values that agree with them."""
    values: Values = {N: draw(st.integers(1, 12)), M: draw(st.integers(0, 12)), S: draw(st.integers(-12, 12))}
    ranges: dict[Var, tuple[Expr, Expr]] = {}
    if draw(st.booleans()):
        ranges[I] = (const(0), N - 1)
        values[I] = draw(st.integers(0, values[N] - 1))
    else:
        values[I] = draw(st.integers(0, 12))
    low, high = sorted((draw(st.integers(-6, 6)), draw(st.integers(-6, 6))))
    if draw(st.booleans()):
        ranges[J] = (const(low), const(high))
        values[J] = draw(st.integers(low, high))
    else:
        values[J] = draw(st.integers(0, 12))
    return Facts(ranges), values


def divides_by_zero(root: Expr, values: Values) -> bool:
    """The laws hold where no divisor is zero."""
    return any(isinstance(e, FloorDiv | Mod) and evaluate(e.b, values) == 0 for e in preorder(root))


CASES = [(cls, rule) for cls, rules in RULES.items() for rule in rules]
APPLIED: dict[Rule, int] = {}


def node_of(draw: st.DrawFn, cls: type[Expr]) -> Expr:
    """A node of a class over small operands, chosen so that the laws have something to hold on to."""
    operands = index_expressions(VARIABLES, 1)
    truth = st.one_of(
        st.booleans().map(lambda v: Const(v, dtypes.bool_)),
        st.builds(lambda c, a, b: c(a, b), st.sampled_from(COMPARISONS), operands, operands),
    )
    a, b, d = draw(operands), draw(operands), draw(st.one_of(st.integers(-6, 6).filter(bool).map(const), st.just(N)))
    p, q = draw(truth), draw(truth)
    if cls in (FloorDiv, Mod):
        multiple = nodes.Add(nodes.Mul(a, d), draw(st.one_of(operands, st.integers(0, 3).map(const))))
        return cls(draw(st.sampled_from([a, multiple, FloorDiv(a, draw(st.integers(1, 5)) and const(3))])), d)  # type: ignore[call-arg]
    if cls in (nodes.And, nodes.Or):
        return cls(p, draw(st.sampled_from([p, q])))  # type: ignore[call-arg]
    if cls is nodes.Not:
        return nodes.Not(draw(st.sampled_from([p, nodes.Not(p)])))
    if cls is nodes.Select:
        return nodes.Select(p, a, draw(st.sampled_from([a, b])))
    near = st.integers(-3, 3).map(lambda c: nodes.Add(a, const(c)))
    return cls(a, draw(st.one_of(near, st.just(b))))  # type: ignore[call-arg]


@pytest.mark.parametrize(("cls", "rule"), CASES, ids=[rule.__name__ for _, rule in CASES])
def test_rule(cls: type[Expr], rule: Rule) -> None:
    applied = 0

    @given(st.data())
    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    def holds(data: st.DataObject) -> None:
        nonlocal applied
        facts, values = data.draw(ranged_values())
        node = node_of(data.draw, cls)
        if divides_by_zero(node, values):
            return
        better = rule(node, facts)
        if better is None:
            return
        applied += 1
        assert better is not node
        assert better.dtype is node.dtype
        assert evaluate(better, values) == evaluate(node, values), f"{rule.__doc__}: {node}  =>  {better}"

    holds()
    assert applied >= 5, "the rule was hardly applied: the test proves nothing"


def test_every_rule_states_its_law() -> None:
    for _, rule in CASES:
        assert "=>" in (rule.__doc__ or ""), rule.__name__


@given(index_expressions(VARIABLES), ranged_values())
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_simplify_keeps_the_value(e: Expr, known: tuple[Facts, Values]) -> None:
    facts, values = known
    if divides_by_zero(e, values):
        return
    better = simplify(e, facts)
    assert evaluate(better, values) == evaluate(e, values), f"{e}  =>  {better}"
    assert simplify(better, facts) is better, f"not in normal form: {better}"


@given(index_expressions(VARIABLES, 3), ranged_values())
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_proved_nonnegative_is(e: Expr, known: tuple[Facts, Values]) -> None:
    facts, values = known
    if not divides_by_zero(e, values) and facts.nonnegative(e):
        assert evaluate(e, values) >= 0, str(e)


@given(index_expressions(VARIABLES, 3), ranged_values())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_bounds_of_atoms_hold(e: Expr, known: tuple[Facts, Values]) -> None:
    facts, values = known
    if divides_by_zero(e, values) or e.dtype is not dtypes.index:
        return
    low, highs = bounds_of_atom(e, facts.ranges)
    value = evaluate(e, values)
    assert low is None or evaluate(low, values) <= value
    assert all(value <= evaluate(high, values) for high in highs)


@given(index_expressions(VARIABLES, 3), index_expressions(VARIABLES, 3), ranged_values())
@settings(max_examples=200, deadline=None)
def test_polynomials_compute_what_they_stand_for(a: Expr, b: Expr, known: tuple[Facts, Values]) -> None:
    values = known[1]
    p, q = polynomial(a), polynomial(b)
    x, y = evaluate(a, values), evaluate(b, values)
    assert evaluate(expression(p), values) == x
    assert evaluate(expression(plus(p, q, -3)), values) == x - 3 * y
    assert evaluate(expression(times(p, q)), values) == x * y
    assert polynomial(expression(p)) == p
    parts = affine_in(p, I)
    if parts is not None:
        assert evaluate(expression(parts[0]) * I + expression(parts[1]), values) == x


SIMPLIFIED = [
    ((I * 4 + J) // 4, "i"),
    ((I * 4 + J) % 4, "j"),
    (minimum(N - 1, N), "n - 1"),
    (maximum(I, 0), "i"),
    ((I + J) * 2 - I, "i + j*2"),
    (I // 2 // 3, "i//6"),
    (select(less(J, 4), I, N), "i"),
    (nodes.Le(N, I + J), "n <= i + j"),
    (nodes.Lt(I + N, N), "false"),
    ((N * M * 4) // (M * 4), "n"),
    ((I * N + J) // N, "i + j//n"),
    (nodes.And(less(J, 4), less(I, N)), "i < n"),
]


@pytest.mark.parametrize(("e", "text"), SIMPLIFIED, ids=[str(e) for e, _ in SIMPLIFIED])
def test_simplified_text(e: Expr, text: str) -> None:
    assert str(simplify(e, Facts({J: (const(0), const(3))}))) == text
