"""The same module computed in f64: what a model's f32 results should be, but for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, const
from tilewright.graph.nodes import Module, Node, Value
from tilewright.types.tensor import TensorType


def in_double_precision(module: Module) -> Module:
    """The module with every f32 tensor, constant and attribute made f64."""
    graph = module.graph
    values: dict[Value, Value] = {}

    def value_of(value: Value) -> Value:
        if value not in values:
            values[value] = Value(value.name, _widen(value.type))
        return values[value]

    nodes = tuple(
        Node(
            node.op,
            tuple(map(value_of, node.inputs)),
            type(node.attrs)(*map(_widen, node.attrs.field_values())),
            tuple(map(value_of, node.outputs)),
            node.binds,
            node.source,
        )
        for node in graph.nodes
    )
    wide = graph.replace(
        params=tuple(map(value_of, graph.params)), nodes=nodes, results=tuple(map(value_of, graph.results))
    )
    constants = {
        name: array.astype(np.float64) if array.dtype == np.float32 else array
        for name, array in module.constants.items()
    }
    return module.with_function(wide).with_constants(constants)


def _widen(field: Any) -> Any:
    match field:
        case dtypes.DType():
            return dtypes.f64 if field is dtypes.f32 else field
        case TensorType(dtype, shape):
            return TensorType(_widen(dtype), shape)
        case Const(value, dtype) if dtype is dtypes.f32:
            return const(value, dtypes.f64)
        case tuple():
            return tuple(map(_widen, field))
    return field
