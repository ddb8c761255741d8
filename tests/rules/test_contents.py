"""What nodes know of what is in them from the start is what a walk over their fields finds."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

from hypothesis import given

from strategies import functions
from tilewright.core.node import Node
from tilewright.expr.nodes import Expr, Var
from tilewright.loops.edit import expressions, loads_of, path_to, statements
from tilewright.loops.nodes import COMPOUND, Axis, Function, Load, Stmt

NAMED = {"var", "buffer", "source", "arguments", "params"}
"""The fields of statements and loads that name what stands elsewhere."""


def held(node: Node) -> list[Node]:
    """The children of a node, by its fields."""

    def inside(value: Any) -> list[Node]:
        if isinstance(value, tuple):
            return [found for part in value for found in inside(part)]
        return [value] if isinstance(value, Node) else []

    fields = zip(type(node)._fields, node.field_values(), strict=True)
    return [found for name, value in fields if name not in NAMED for found in inside(value)]


def everything(root: Node) -> list[Node]:
    """A node and all below it, with repetitions."""
    return [root, *(found for part in held(root) for found in everything(part))]


def known_by_walks(node: Expr | Stmt) -> tuple[set[Var], int]:
    """The variables of a node and the bits of the classes in it."""
    found = [e for e in everything(node) if isinstance(e, Expr)]
    return {e for e in found if isinstance(e, Var)}, reduce(or_, [type(e).bit for e in found], 0)


@given(functions())
def test_contents(function: Function) -> None:
    for e in expressions(function.body):
        assert (e.variables, e.kinds) == known_by_walks(e), str(e)
        assert set(loads_of(e)) == {load for load in everything(e) if isinstance(load, Load)}
    for s in statements(function.body):
        assert (s.variables(), s.kinds()) == known_by_walks(s)
        assert [*s.inside()] == [n for n in everything(s)[1:] if isinstance(n, Stmt)]
        assert bool(s.inside()) <= (type(s) in COMPOUND)
        assert [*s.held()] == [n for n in held(s) if isinstance(n, Stmt)]
        assert [*s.own()] == [n.binding if isinstance(n, Axis) else n for n in held(s) if not isinstance(n, Stmt)]
        path = path_to(function.body, s)
        assert (path[0], path[-1]) == (function.body, s)
        assert all(inner in outer.held() for outer, inner in pairwise(path))


@given(functions())
def test_children_and_rebuilding(function: Function) -> None:
    for node in everything(function.body):
        assert [*node.children()] == held(node)
        assert node.rebuild(tuple(node.children())) is node
        again = node.refilled(node.children())
        assert again.field_values() == node.field_values()
        assert (again is node) is isinstance(node, Expr) or isinstance(node, Var)
        if isinstance(node, Axis | Stmt):
            assert again is not node


def test_every_class_has_a_bit() -> None:
    found, waiting = [], [Expr]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        found += [] if kind is Expr else [kind.bit]
    assert len(set(found)) == len(found) > 30
    assert all(bit.bit_count() == 1 for bit in found)
