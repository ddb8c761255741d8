"""Every rule of expr/rules.py, and the simplifier as a whole, against the evaluator."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from strategies import COMPARISONS, index_expressions, pick
from tilewright.core.walk import preorder
from tilewright.expr import dtypes, nodes
from tilewright.expr.build import less, maximum, minimum, select
from tilewright.expr.evaluate import evaluate
from tilewright.expr.linear import MOST_BITS, affine_in, expression, plus, polynomial, times
from tilewright.expr.nodes import Const, Expr, FloorDiv, Mod, Var, const
from tilewright.expr.rules import RULES, Rule
from tilewright.expr.simplify import Facts, bounds_of_atom, simplify

I, J, N, M = (Var(name) for name in "ijnm")  # noqa: E741
S = Var("s", least=None)
VARIABLES = (I, J, N, M, S)

Values = dict[Var, int]
SIZES = st.integers(0, 12)


@st.composite
def ranged_values(draw: st.DrawFn) -> tuple[Facts, Values]:
    """Ranges for some variables (`i` may end below `n`), and values that agree with them."""
    values: Values = {N: draw(SIZES) + 1, M: draw(SIZES), S: draw(SIZES) - 6}
    ranges: dict[Var, tuple[Expr, Expr]] = {}
    values[I], values[J] = draw(SIZES), draw(SIZES)
    if pick(draw, (True, False)):
        ranges[I] = (const(0), N - 1)
        values[I] %= values[N]
    if pick(draw, (True, False)):
        low, length = draw(SIZES) - 6, draw(SIZES) + 1
        ranges[J] = (const(low), const(low + length - 1))
        values[J] = low + values[J] % length
    return Facts(ranges), values


def divides_by_zero(root: Expr, values: Values) -> bool:
    """The laws hold where no divisor is zero."""
    return any(isinstance(e, FloorDiv | Mod) and evaluate(e.b, values) == 0 for e in preorder(root))


CASES = [(cls, rule) for cls, rules in RULES.items() for rule in rules]


OPERANDS = index_expressions(VARIABLES, 1)


def node_of(draw: st.DrawFn, cls: type[Expr]) -> Expr:
    """A node of a class over small operands, chosen so that the laws have something to hold on to."""

    def truth() -> Expr:
        if pick(draw, (False, True, True)):
            return pick(draw, COMPARISONS)(draw(OPERANDS), draw(OPERANDS))
        return Const(pick(draw, (False, True)), dtypes.bool_)

    if cls in (nodes.And, nodes.Or):
        p = truth()
        return cls(p, pick(draw, (p, truth())))  # type: ignore[call-arg]
    if cls is nodes.Not:
        p = truth()
        return nodes.Not(pick(draw, (p, nodes.Not(p))))
    a, b = draw(OPERANDS), draw(OPERANDS)
    if cls is nodes.Select:
        return nodes.Select(truth(), a, pick(draw, (a, b)))
    if cls in (FloorDiv, Mod) and pick(draw, (False, True)):
        part = pick(draw, (2, 3))
        digits = nodes.Add(nodes.Mul(a, const(part)), pick(draw, (Mod(b, const(part)), const(1))))
        return cls(digits, const(part * pick(draw, (2, 3))))  # type: ignore[call-arg]
    if cls in (FloorDiv, Mod):
        d = pick(draw, (*map(const, (1, 2, 3, 4, 6, -1, -3)), N))
        multiple = nodes.Add(nodes.Mul(a, d), pick(draw, (b, const(0), const(1), const(2))))
        return cls(pick(draw, (a, multiple, FloorDiv(a, const(3)))), d)  # type: ignore[call-arg]
    if cls in (nodes.Lt, nodes.Le) and pick(draw, (False, True)):
        number = const(pick(draw, range(-9, 10)))
        bound = pick(draw, (nodes.Min, nodes.Max))(a, const(pick(draw, range(-9, 10))))
        return cls(*pick(draw, ((bound, number), (number, bound))))  # type: ignore[call-arg]
    if cls is nodes.Lt and pick(draw, (False, True)):
        sum_ = nodes.Add(nodes.Mul(a, const(pick(draw, (2, 3, 4, -6)))), const(pick(draw, (-2, -1, 0, 1, 3))))
        return nodes.Lt(sum_, const(pick(draw, range(-9, 10))))
    return cls(a, pick(draw, (b, *(nodes.Add(a, const(c)) for c in (-2, -1, 0, 1, 2)))))  # type: ignore[call-arg]


@pytest.mark.parametrize(("cls", "rule"), CASES, ids=[rule.__name__ for _, rule in CASES])
def test_rule(cls: type[Expr], rule: Rule) -> None:
    applied = 0

    @given(st.data())
    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
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
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_simplify_keeps_the_value(e: Expr, known: tuple[Facts, Values]) -> None:
    facts, values = known
    if divides_by_zero(e, values):
        return
    better = simplify(e, facts)
    assert evaluate(better, values) == evaluate(e, values), f"{e}  =>  {better}"
    assert simplify(better, facts) is better, f"not in normal form: {better}"


@given(index_expressions(VARIABLES, 3), ranged_values())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_proved_nonnegative_is(e: Expr, known: tuple[Facts, Values]) -> None:
    facts, values = known
    if not divides_by_zero(e, values) and facts.nonnegative(e):
        assert evaluate(e, values) >= 0, str(e)


@given(index_expressions(VARIABLES, 3), ranged_values())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_bounds_of_atoms_hold(e: Expr, known: tuple[Facts, Values]) -> None:
    facts, values = known
    if divides_by_zero(e, values) or e.dtype is not dtypes.index:
        return
    low, highs = bounds_of_atom(e, facts)
    value = evaluate(e, values)
    assert low is None or evaluate(low, values) <= value
    assert all(value <= evaluate(high, values) for high in highs)


@pytest.mark.parametrize(("divisor", "factor"), [(4, 1), (4, -3), (-5, 2), (1, 1)])
def test_quotients_and_remainders_come_together(divisor: int, factor: int) -> None:
    a = I * 7 - J
    parts = FloorDiv(a, const(divisor)) * (divisor * factor) + Mod(a, const(divisor)) * factor + N
    assert polynomial(parts) == polynomial(a * factor + N)
    apart = FloorDiv(a, const(divisor)) * (divisor * factor + 1) + Mod(a, const(divisor)) * factor
    assert polynomial(apart) != polynomial(a * factor)


@pytest.mark.parametrize("of_quotient", [lambda q: FloorDiv(q, const(3)), lambda q: FloorDiv(I * 7 - J, const(6))])
def test_digits_come_together(of_quotient: Callable[[Expr], Expr]) -> None:
    """A quotient of a quotient may be written as one quotient."""
    a = I * 7 - J
    q = FloorDiv(a, const(2))
    assert polynomial(of_quotient(q) * 6 + Mod(q, const(3)) * 2 + Mod(a, const(2))) == polynomial(a)
    assert polynomial(of_quotient(q) * 7 + Mod(q, const(3)) * 2 + Mod(a, const(2))) != polynomial(a)


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
    (J // 2 % 2, "j//2"),
    ((I * 4 + J) // 8, "i//2"),
    ((I * 4 + J) % 8, "j + i%2*4"),
    ((I * 4 + N * 8 + J) % 24, "j + (i + n*2) % 6 * 4"),
    ((I * 4 + J) % 6, "(i*4 + j) % 6"),
    ((I * 2 + J) % 8, "(i*2 + j) % 8"),
    ((I * 2 + J // 2) // 2, "i"),
    (J // 2 % 1 + J // 3 % 2, "j//3"),
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


def test_squares_of_squares_of_a_number_keep_few_digits() -> None:
    """The integer power of a known base is 64 squarings: its digits would double with each."""
    square: Expr = const(8)
    for _ in range(64):
        square = square * square
    assert all(abs(c) < 1 << MOST_BITS for c in polynomial(square + I).values())
    assert evaluate(simplify(square * I), {I: 1}) == evaluate(square, {})
