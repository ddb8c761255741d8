"""A module in double precision: the same graphs with every floating-point tensor and attribute of type f64. Narrow
types stay: their numbers are rounded as integers are. What reads bits stays, too, between casts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, const
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY
from tilewright.types.tensor import TensorType


@dataclass(frozen=True, slots=True)
class Widened:
    """`module` is in double precision, but for its constants, which stay as they are; `narrow` has, for each of its
    nodes but those that read bits and the casts around them, the one that it was made of."""

    module: Module
    narrow: dict[Node, Node]


def widen(module: Module) -> Widened:
    """The graph functions of a module in double precision."""
    narrow: dict[Node, Node] = {}
    for function in module.functions.values():
        if isinstance(function, GraphFunction):
            module = module.with_function(_widen_function(function, narrow))
    return Widened(module, narrow)


def _widen_function(function: GraphFunction, narrow: dict[Node, Node]) -> GraphFunction:
    values: dict[Value, Value] = {}

    def value_of(value: Value) -> Value:
        if value not in values:
            values[value] = Value(value.name, _widen(value.type))
        return values[value]

    made: list[Node] = []
    for node in function.nodes:
        if node.op.reads_bits:
            made += _between_casts(node, value_of)
            continue
        attrs = type(node.attrs)(*map(_widen, node.attrs.field_values()))
        inputs, outputs = (tuple(map(value_of, part)) for part in (node.inputs, node.outputs))
        made.append(Node(node.op, inputs, attrs, outputs, node.binds, node.source))
        narrow[made[-1]] = node
    params, results = (tuple(map(value_of, part)) for part in (function.params, function.results))
    return function.replace(params=params, nodes=tuple(made), results=results)


def _between_casts(node: Node, value_of: Callable[[Value], Value]) -> list[Node]:
    """A node with inputs and outputs of its own types, and the casts from and to those in double precision."""
    own = {v: Value(v.name, v.type) if _widen(v.type) != v.type else value_of(v) for v in (*node.inputs, *node.outputs)}
    inputs, outputs = (tuple([own[v] for v in part]) for part in (node.inputs, node.outputs))
    same = Node(node.op, inputs, node.attrs, outputs, node.binds, node.source)
    before = [_cast(value_of(v), own[v]) for v in node.inputs if own[v] is not value_of(v)]
    behind = [_cast(own[v], value_of(v)) for v in node.outputs if own[v] is not value_of(v)]
    return [*before, same, *behind]


def _cast(value: Value, result: Value) -> Node:
    op = REGISTRY["cast"]
    record: Any = op.attributes
    return Node(op, (value,), record(result.type.dtype), (result,))


def _widen(field: Any) -> Any:
    """A type, an attribute, or a tuple of them."""
    match field:
        case dtypes.DType():
            return dtypes.f64 if field.kind == "f" else field
        case TensorType(dtype, shape):
            return TensorType(_widen(dtype), shape)
        case Const(value, dtype) if dtype.kind == "f":
            return const(value, dtypes.f64)
        case tuple():
            return tuple(map(_widen, field))
    return field
