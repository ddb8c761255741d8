"""A graph function with other expressions for its symbols: what a body is in the function around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import substitute
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Compare, Const, Expr, Var, const
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.symbolic import Require
from tilewright.types.tensor import TensorType


def instance(function: GraphFunction, symbols: Sequence[Expr]) -> GraphFunction:
    """The function with values of its own, in which `symbols` stand for the first of its symbols. Those left, and those
    that its nodes bind, are others, too."""
    left = [Var(s.name, s.dtype, s.least) for s in function.symbols[len(symbols) :]]
    known: dict[Expr, CoreNode] = dict(zip(function.symbols, (*symbols, *left), strict=True))
    values: dict[Value, Value] = {}

    def of(value: Value) -> Value:
        if value not in values:
            values[value] = value.replace(type=substituted(value.type, known))
        return values[value]

    params = tuple([of(p) for p in function.params])
    nodes = []
    for node in function.nodes:
        binds = tuple([Var(s.name, s.dtype, s.least) for s in node.binds])
        known.update(zip(node.binds, binds, strict=True))
        attrs = type(node.attrs)(*[substituted(v, known) for v in node.attrs.field_values()])
        if isinstance(node.attrs, Require) and isinstance(attrs, Require) and isinstance(attrs.cond, Const):
            attrs = attrs.replace(message=_told(node.attrs, known))
        inputs, outputs = (tuple([of(v) for v in each]) for each in (node.inputs, node.outputs))
        nodes.append(Node(node.op, inputs, attrs, outputs, binds, node.source))
    results = tuple([of(v) for v in function.results])
    return function.replace(symbols=tuple(left), params=params, nodes=tuple(nodes), results=results)


def _told(attrs: Require, known: dict[Expr, CoreNode]) -> str:
    """The message of a condition that is decided: with the numbers of its sides."""
    sides = [substituted(e, known) for e in attrs.cond.children()] if isinstance(attrs.cond, Compare) else []
    return re.sub(r"\{([01])\}", lambda m: str(sides[int(m[1])]) if sides else m[0], attrs.message)


def substituted(value: Any, known: dict[Expr, CoreNode]) -> Any:
    """A field of an attribute record, or a type, with expressions for the symbols that are known. An expression without
    symbols is a number then: types and operators take anything else for a dynamic size."""
    if isinstance(value, Expr):
        found = substitute(value, known)
        assert isinstance(found, Expr)
        return found if found.variables else const(evaluate(found, {}), found.dtype)
    if isinstance(value, TensorType):
        return TensorType.of(value.dtype, [substituted(d, known) for d in value.shape])
    if isinstance(value, tuple):
        return tuple([substituted(v, known) for v in value])
    return value
