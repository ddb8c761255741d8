"""Kernels that are recognised as a whole, before references are explored: attentions.

They hold more than templates grow to: two products with a softmax between them. Such a kernel is planned if its price
is below that of the best plan of the same nodes by templates.
"""

from __future__ import annotations

from tilewright.graph.nodes import GraphFunction, Node
from tilewright.graph.op import Pattern
from tilewright.plan.fusion.dataflow import Dataflow, is_free
from tilewright.plan.fusion.kernel import Kernel
from tilewright.plan.fusion.memo import Reference
from tilewright.plan.price.kernels import CostModel

ATTENTION, WHOLE, PIECES = "attention", "whole", "by templates"
"""The name of the template and of its price, and that of the price of the best plan without it."""


def whole_kernel(nodes: tuple[Node, ...], flow: Dataflow, model: CostModel) -> Kernel:
    """The kernel of these nodes and the maps without inputs that they read."""
    read = [flow.makers[v] for n in nodes for v in n.inputs if v in flow.makers]
    free = [n for n in dict.fromkeys(read) if n not in nodes and is_free(n)]
    held = tuple(sorted((*nodes, *free), key=lambda n: flow.place[n]))
    inside = frozenset(Reference(v, n) for n in held for v in n.inputs if flow.makers.get(v) in held)
    return Kernel(held, inside, ATTENTION, model.kernel(held, inside))


def as_function(kernel: Kernel, function: GraphFunction) -> GraphFunction:
    """A kernel as a graph function, whose parameters are the values that the kernel reads."""
    names = tuple(v.name for v in kernel.outputs)
    return function.replace(params=kernel.reads(), nodes=kernel.nodes, results=kernel.outputs, result_names=names)


def apart(nodes: tuple[Node, ...], model: CostModel) -> float:
    """The predicted seconds with a kernel for each of these nodes, views excepted."""
    kernels = (model.kernel((n,), frozenset()) for n in nodes if n.op.pattern is not Pattern.VIEW)
    return sum(cost.seconds for cost in kernels)
