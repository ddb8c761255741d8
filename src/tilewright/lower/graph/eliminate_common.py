"""Computes once what is computed several times: nodes of the same operator, inputs and attributes become one.

    a: f32[n] = exp(x)                     a: f32[n] = exp(x)
    b: f32[n] = exp(x)              =>     c: f32[n] = add(a, a)
    c: f32[n] = add(a, b)

Nodes that bind symbols stay: the symbols of two such nodes are two, even where their values agree.
"""

from __future__ import annotations

from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import Op
from tilewright.graph.symbolic import Require

Key = tuple[Op, tuple[Value, ...], object]


def eliminate_common(module: Module) -> Module:
    """The module without repeated nodes."""
    return over_graphs(module, _eliminate)


def _eliminate(module: Module, function: GraphFunction) -> Module:
    edit = Edit(module, function)
    first: dict[Key, Node] = {}
    for node in function.nodes:
        key = _key(edit, node)
        known = None if node.binds else first.get(key)
        if known is None or not edit.replace(node, known.outputs):
            first.setdefault(key, edit.keep(node))
    return edit.finish()


def _key(edit: Edit, node: Node) -> Key:
    """A key that nodes share if they compute the same. Requirements are the same if their conditions are."""
    attrs = node.attrs
    return node.op, edit.inputs(node), attrs.cond if isinstance(attrs, Require) else attrs
