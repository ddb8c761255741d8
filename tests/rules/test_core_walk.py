"""Walks visit each shared node once, in order, at any depth."""

from __future__ import annotations

from tilewright.core.node import Interned, Node
from tilewright.core.walk import postorder, preorder, substitute, transform


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


def swap(e: Add) -> Expr | None:
    """x + y  =>  y + x"""
    return Add(e.b, e.a)


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


CIRCLE = """\
internal error: rewriting does not end: swap
  swap: x + y  =>  y + x
why:  a node came back to itself: Add(Var('x'), Var('y'))
This is a defect in Tilewright, not in your program."""
