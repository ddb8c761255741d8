"""Gives every result, and every state of a loop, memory of its own.

A result that is a parameter, a constant, or a view of another result becomes a copy; so does one of a known size that
is a view of what has a size which the call computes. A loop keeps each state in the memory of its initial value: that
value becomes a copy, too, unless a kernel makes it for this loop alone. So does a `while` with the truth value that
says whether to go on. A state whose size changes from step to step has memory that grows with it: its initial value is
copied there.
"""

from __future__ import annotations

from collections import Counter

from tilewright.expr.nodes import Var
from tilewright.graph.edit import over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY
from tilewright.graph.symbolic import While, ahead, states_of
from tilewright.types.tensor import TensorType


def own_results(module: Module) -> Module:
    """The module with results and states that can be written in place."""
    return over_graphs(module, _own)


def _own(module: Module, graph: GraphFunction) -> Module:
    nodes = _with_own_states(graph)
    maker = {v: node for node in nodes for v in node.outputs}
    taken: set[Value] = set()
    copies: list[Node] = []
    results: dict[int, Value] = {}
    numbered = list(enumerate(graph.results))
    for n, value in numbered if graph.name == module.entry else reversed(numbered):
        base = value
        while base in maker and maker[base].op.name == "reshape":
            (base,) = maker[base].inputs
        late = _symbols(base) - _symbols(value) - set(graph.symbols)
        if base in taken or base not in maker or maker[base].op.name == "constant" or late:
            copies.append(_copy(value))
            results[n] = copies[-1].outputs[0]
        else:
            taken.add(base)
            results[n] = value
    if not copies and nodes == graph.nodes:
        return module
    owned = tuple([results[n] for n, _ in numbered])
    return module.with_function(graph.replace(nodes=(*nodes, *copies), results=owned))


def _symbols(value: Value) -> set[Var]:
    """The symbols of a value's size."""
    return {v for d in value.type.shape for v in d.variables if isinstance(v, Var)}


def _with_own_states(graph: GraphFunction) -> tuple[Node, ...]:
    """The nodes, with copies of initial states that are not a loop's own."""
    uses = Counter(v for node in graph.nodes for v in node.inputs) + Counter(graph.results)
    owned = {v for node in graph.nodes if node.op.name not in ("constant", "reshape") for v in node.outputs}
    made: list[Node] = []
    for node in graph.nodes:
        first, states = ahead(node.attrs), states_of(node.attrs)
        if states or isinstance(node.attrs, While):
            inputs, moves = list(node.inputs), [first + n for n in node.sized_here()]
            for n in range(first + states):
                if inputs[n] not in owned or uses[inputs[n]] > 1 or n in moves:
                    made.append(_copy(inputs[n]))
                    inputs[n] = made[-1].outputs[0]
            node = node if tuple(inputs) == node.inputs else node.replace(inputs=tuple(inputs))
        made.append(node)
    return tuple(made) if len(made) > len(graph.nodes) else graph.nodes


def _copy(value: Value) -> Node:
    copy = Value(value.name, TensorType(value.type.dtype, value.type.shape))
    attrs = REGISTRY["broadcast"].attributes(value.type.shape)  # type: ignore[call-arg]
    return Node(REGISTRY["broadcast"], (value,), attrs, (copy,))
