"""Gives every result memory of its own: a result that is a parameter, a constant, or the memory of another result under
another shape becomes a copy."""

from __future__ import annotations

from tilewright.graph.nodes import Module, Node, Value
from tilewright.graph.op import REGISTRY
from tilewright.types.tensor import TensorType


def own_results(module: Module) -> Module:
    """The module with results that can be written in place."""
    graph = module.graph
    maker = {v: node for node in graph.nodes for v in node.outputs}
    taken: set[Value] = set()
    copies: list[Node] = []
    results: list[Value] = []
    for value in graph.results:
        base = value
        while base in maker and maker[base].op.name == "reshape":
            (base,) = maker[base].inputs
        if base in taken or base not in maker or maker[base].op.name == "constant":
            copy = Value(value.name, TensorType(value.type.dtype, value.type.shape))
            attrs = REGISTRY["broadcast"].attributes(value.type.shape)  # type: ignore[call-arg]
            copies.append(Node(REGISTRY["broadcast"], (value,), attrs, (copy,)))
            results.append(copy)
        else:
            taken.add(base)
            results.append(value)
    if not copies:
        return module
    return module.with_function(graph.replace(nodes=(*graph.nodes, *copies), results=tuple(results)))
