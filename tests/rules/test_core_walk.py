"""Walks visit each shared node once, in order, at any depth; the rewrite engine ends or says why not."""

from __future__ import annotations

import pytest

from tilewright.core.node import Interned, Node
from tilewright.core.rewrite import Rule, dispatch, rewrite, subject
from tilewright.core.walk import postorder, preorder, substitute, transform
from tilewright.report.errors import InternalError


class Expr(Interned):
    pass


class Var(Expr, interned=False):
    name: str


class Num(Expr):
    value: int


class Add(Expr):
    a: Expr
    b: Expr


class Mul(Expr):
    a: Expr
    b: Expr


class Neg(Expr):
    a: Expr


x, y = Var("x"), Var("y")


def chain(depth: int) -> Expr:
    node: Expr = x
    for _ in range(depth):
        node = Add(node, Num(0))
    return node


def fold(e: Add) -> Expr | None:
    """n + m  =>  the sum"""
    match e:
        case Add(Num(n), Num(m)):
            return Num(n + m)
    return None


def add_zero(e: Add) -> Expr | None:
    """x + 0  =>  x"""
    match e:
        case Add(a, Num(0)):
            return a
    return None


def distribute(e: Mul) -> Expr | None:
    """(x + y) * z  =>  x*z + y*z"""
    match e:
        case Mul(Add(a, b), c):
            return Add(Mul(a, c), Mul(b, c))
    return None


def times_zero(e: Mul | Neg) -> Expr | None:
    """x * 0  =>  0   and   -0  =>  0"""
    match e:
        case Mul(_, Num(0)) | Neg(Num(0)):
            return Num(0)
    return None


def swap(e: Add) -> Expr | None:
    """x + y  =>  y + x"""
    return Add(e.b, e.a)


def grow(e: Neg) -> Expr | None:
    """-x  =>  -(x + 1)"""
    return Neg(Add(e.a, Num(1)))


def wrap(e: Neg) -> Expr | None:
    """-x  =>  -x + 1"""
    return Add(e, Num(1))


def test_orders() -> None:
    shared = Add(x, y)
    root = Mul(shared, Add(shared, x))
    assert list(postorder(root)) == [x, y, shared, root.b, root]
    assert list(preorder(root)) == [root, shared, x, y, root.b]
    assert list(postorder([y, shared])) == [y, x, shared]
    assert list(preorder([y, shared])) == [y, shared, x]
    assert list(postorder([])) == []


def test_a_shared_graph_is_walked_once_for_each_node() -> None:
    node: Expr = x
    for _ in range(200):
        node = Add(node, node)
    assert len(list(postorder(node))) == 201
    assert len(list(preorder(node))) == 201
    seen: list[Node] = []
    transform(node, lambda n: (seen.append(n), n)[1])
    assert len(seen) == 201


def test_depth_costs_no_recursion() -> None:
    deep = chain(20_000)
    assert sum(1 for _ in postorder(deep)) == 20_002
    assert sum(1 for _ in preorder(deep)) == 20_002
    assert substitute(deep, {x: y}) is not deep
    assert rewrite(deep, (add_zero,)) is x


def test_transform_sees_rewritten_children_and_keeps_what_does_not_change() -> None:
    root = Mul(Add(Num(1), Num(2)), x)
    assert transform(root, lambda n: n) is root
    doubled = transform(root, lambda n: Num(n.value * 2) if isinstance(n, Num) else n)
    assert doubled is Mul(Add(Num(2), Num(4)), x)
    assert doubled.b is x


def test_transform_shares_work_by_its_memo() -> None:
    memo: dict[Node, Node] = {}
    seen: list[Node] = []

    def note(node: Node) -> Node:
        seen.append(node)
        return node

    transform(Add(x, y), note, memo)
    transform(Mul(Add(x, y), x), note, memo)
    assert seen == [x, y, Add(x, y), Mul(Add(x, y), x)]


def test_substitute_does_not_search_what_it_puts_in() -> None:
    assert substitute(Add(x, Mul(x, y)), {x: Neg(x)}) is Add(Neg(x), Mul(Neg(x), y))
    assert substitute(Add(x, y), {x: y, y: x}) is Add(y, x)
    replacements = {Add(x, y): Num(3)}
    assert substitute(Mul(Add(x, y), x), replacements) is Mul(Num(3), x)
    assert replacements == {Add(x, y): Num(3)}
    root = Add(x, y)
    assert substitute(root, {Num(9): x}) is root


def test_rules_apply_until_none_does() -> None:
    rules: tuple[Rule, ...] = (fold, add_zero, distribute, times_zero)
    root = Mul(Add(Add(x, Num(0)), Add(Num(1), Num(-1))), Add(y, Num(0)))
    assert rewrite(root, rules) is Mul(x, y)
    assert rewrite(Mul(Add(x, y), Neg(Num(0))), rules) is Num(0)
    assert rewrite(Mul(Add(x, Add(y, x)), y), rules) is Add(Mul(x, y), Add(Mul(y, y), Mul(x, y)))
    normal = Mul(x, y)
    assert rewrite(normal, rules) is normal


def test_each_step_can_be_watched() -> None:
    steps: list[tuple[str, Node, Node]] = []
    rewrite(Add(Num(1), Num(0)), (add_zero, fold), watch=lambda r, a, b: steps.append((r.__name__, a, b)))
    assert steps == [("add_zero", Add(Num(1), Num(0)), Num(1))]


def test_the_memo_holds_normal_forms() -> None:
    memo: dict[Node, Node] = {}
    root = Add(Add(x, Num(0)), Num(0))
    assert rewrite(root, (add_zero,), memo) is x
    assert memo[root] is x
    assert memo[Add(x, Num(0))] is x
    assert rewrite(root, (add_zero,), {root: y}) is y


def test_rules_are_dispatched_by_the_class_they_name() -> None:
    def any_node(e: Expr) -> Expr | None:
        """law"""
        return None

    rules = (fold, times_zero, any_node)
    assert subject(times_zero) == (Mul, Neg)
    assert dispatch(rules, Add)[:1] == (fold,)
    assert dispatch(rules, Neg) == (times_zero, any_node)
    assert dispatch(rules, Var) == (any_node,)


CIRCLE = """\
internal error: rewriting does not end: swap
  swap: x + y  =>  y + x
why:  a node came back to itself: Add(Var('x'), Var('y'))
This is a defect in Tilewright, not in your program."""


def test_rules_that_go_round_in_a_circle_are_named() -> None:
    with pytest.raises(InternalError) as caught:
        rewrite(Mul(Add(x, y), y), (add_zero, swap))
    assert str(caught.value) == CIRCLE


def test_a_rule_whose_result_holds_its_subject_is_a_circle() -> None:
    with pytest.raises(InternalError, match="rewriting does not end: wrap"):
        rewrite(Neg(x), (wrap,))


def test_rules_that_grow_without_end_meet_the_limit() -> None:
    with pytest.raises(InternalError, match="rewriting does not end: grow") as caught:
        rewrite(Neg(x), (grow,), limit=50)
    assert caught.value.why is not None
    assert caught.value.why.startswith("after 51 steps: Neg(Add(Add(Add(…), Num(…)), Num(1)))")
    with pytest.raises(InternalError, match="does not end"):
        rewrite(Neg(x), (grow,))


def test_a_large_program_may_take_many_steps() -> None:
    assert rewrite(chain(15_000), (add_zero,)) is x


def test_functions_that_are_no_rules_are_refused() -> None:
    def lawless(e: Add) -> Expr | None:
        return None

    def two(e: Add, f: Add) -> Expr | None:
        """law"""
        return None

    def foreign(e: int) -> Expr | None:
        """law"""
        return None

    for rule, message in ((lawless, "states no law"), (two, "two is no rule"), (foreign, "int'> is no node class")):
        with pytest.raises(InternalError, match=message):
            rewrite(x, (rule,))  # type: ignore[arg-type]
