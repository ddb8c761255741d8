"""Kernels run right before the first node that reads what they make, where that is more than what they read of other
kernels, and no more memory is in use meanwhile.

    k: f32[n, 64] = call(p, a, callee="concat", …)             k: f32[n, 64] = call(p, a, callee="concat", …)
    v: f32[n, 64] = call(q, b, callee="concat", …)       =>    s: f32[n] = call(k, x, callee="contract", …)
    s: f32[n] = call(k, x, callee="contract", …)               v: f32[n, 64] = call(q, b, callee="concat", …)
    y: f32[64] = call(s, v, callee="contract_2", …)            y: f32[64] = call(s, v, callee="contract_2", …)

A result that is read at once is still in a cache; so is what a kernel reads that runs right after those that made it.
A kernel that makes less than what nobody reads after it stays where it is, too: until it has run, that memory is in
use.
"""

from __future__ import annotations

import math

from tilewright.analysis.sizes import Sizes
from tilewright.graph.edit import in_order, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import Pattern
from tilewright.graph.symbolic import Call, Constant


def run_late(module: Module) -> Module:
    """The module with the calls of each graph in this order."""
    return over_graphs(module, _late)


def _late(module: Module, graph: GraphFunction) -> Module:
    wait = _waiting(graph)
    nodes = [*(n for n in graph.nodes if n not in wait), *(n for n in graph.nodes if n in wait)]
    ordered = tuple(in_order(nodes, lambda n: n.inputs[::-1], lambda n: n.outputs))
    return module if ordered == graph.nodes else module.with_function(graph.replace(nodes=ordered))


def _waiting(graph: GraphFunction) -> set[Node]:
    """The calls that make, for nodes that read it, more than they read of what the function computes, and at least as
    much as becomes free when they have run."""
    memory: dict[Value, Value] = {}
    last: dict[Value, Node] = {}
    for node in graph.nodes:
        if node.op.pattern is Pattern.VIEW:
            memory[node.outputs[0]] = memory.get(node.inputs[0], node.inputs[0])
        else:
            last.update((memory.get(value, value), node) for value in node.inputs)
    sizes = Sizes().within(graph)
    given, results = {*graph.params}, {memory.get(v, v) for v in graph.results}
    constants = {v for node in graph.nodes if isinstance(node.attrs, Constant) for v in node.outputs}

    def is_waiting(node: Node) -> bool:
        read = {memory.get(v, v) for v in node.inputs} - constants
        computed = sum(_bytes(v, sizes) for v in read - given)
        freed = sum(_bytes(v, sizes) for v in read - results if last[v] is node)
        made = sum(_bytes(v, sizes) for v in node.outputs)
        return any(v in last for v in node.outputs) and computed < made and freed <= made

    return {node for node in graph.nodes if isinstance(node.attrs, Call) and is_waiting(node)}


def _bytes(value: Value, sizes: Sizes) -> int:
    """The bytes of a value, as far as its dimensions are known or assumed."""
    return math.prod(map(sizes.value, value.type.shape)) * value.type.dtype.bytes
