"""The plan of a graph function: the memo table, its partitions, the cheapest assignment of each, and its kernels.

Attentions hold more than templates grow to: two products with a softmax between them. They are recognised as a whole,
before references are explored, and planned if that is priced below the best plan of the same nodes by templates.
Partitions that are alike, such as the layers of a network, are solved once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tilewright.graph.edit import in_order
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.plan.attention.recognise import attentions
from tilewright.plan.fusion.dataflow import Dataflow, Reference, is_free, makes_kernels
from tilewright.plan.fusion.enumeration import UNFUSED, Selection, select
from tilewright.plan.fusion.kernels import Kernel, Kernels
from tilewright.plan.fusion.partitions import Partition, partitions, split, within_size
from tilewright.plan.fusion.templates import explore
from tilewright.plan.price.kernels import CostModel
from tilewright.target import Target

ATTENTION, WHOLE, PIECES = "attention", "whole", "by templates"
"""The name of the template and of its price, and that of the price of the best plan without it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A partition with its selection."""

    partition: Partition
    selection: Selection
    kernels: tuple[Kernel, ...]

    @property
    def is_whole(self) -> bool:
        """Whether its kernel was recognised as a whole: its nodes are in no memo table."""
        return WHOLE in self.selection.alternatives


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels in the order in which they run, and the partitions that they came from. Nodes in no kernel are views
    and shape nodes; some nodes are in several kernels."""

    kernels: tuple[Kernel, ...]
    parts: tuple[Part, ...] = ()

    def __str__(self) -> str:
        return "\n".join(f"{k.template}: {', '.join(v.name for n in k.nodes for v in n.outputs)}" for k in self.kernels)

    @property
    def aside(self) -> frozenset[Node]:
        """The nodes of kernels that were recognised as a whole."""
        return frozenset(n for part in self.parts if part.is_whole for n in part.partition.nodes)


def choose(function: GraphFunction, target: Target) -> Plan:
    """The plan of a graph function for a target."""
    whole = _whole(function, target)
    flow = Dataflow(function, Plan((), tuple(whole)).aside)
    parts = (*whole, *_by_templates(flow, CostModel(flow, target)))
    ordered = sorted((k for part in parts for k in part.kernels), key=lambda k: flow.place[k.root])
    return Plan(tuple(in_order(ordered, Kernel.reads, lambda k: k.outputs)), parts)


def unfused(function: GraphFunction, target: Target) -> Plan:
    """The plan with a kernel for each operator; maps without inputs are still recomputed where they are used."""
    flow = Dataflow(function)
    model = CostModel(flow, target)
    memo = explore(flow)
    free = within_size(memo, [r for r in memo.references if is_free(flow.makers[r.value])])
    kernels: list[Kernel] = []
    for partition in split(memo, free):
        made = Kernels(partition, flow, model).under(0, combined=False)
        assert made is not None, "an operator alone is always a kernel"
        kernels += made
    return Plan(tuple(sorted(kernels, key=lambda k: flow.place[k.root])))


def _by_templates(flow: Dataflow, model: CostModel) -> list[Part]:
    """The parts that the templates of the memo table find in a graph function, without the nodes set aside."""
    solved: dict[Hashable, Selection] = {}
    parts: list[Part] = []
    for partition in partitions(explore(flow)):
        kernels = Kernels(partition, flow, model)
        key = _shape(partition, flow)
        if key not in solved:
            solved[key] = select(partition, kernels, flow, model)
        made = kernels.under(solved[key].cut)
        assert made is not None, "the unfused plan is always one"
        parts.append(Part(partition, solved[key], tuple(made)))
    return parts


def _whole(function: GraphFunction, target: Target) -> list[Part]:
    """The kernels that are recognised as a whole, unless a plan of the same nodes by templates is cheaper. Those that
    are alike are priced once."""
    flow = Dataflow(function)
    model = CostModel(flow, target)
    solved: dict[Hashable, Selection] = {}
    parts: list[Part] = []
    for nodes in attentions(function):
        kernel = whole_kernel(nodes, flow, model)
        partition = Partition(nodes, (), (), frozenset(kernel.outputs))
        key = _shape(partition, flow)
        if key not in solved:
            pieces = Dataflow(_as_function(kernel, function))
            found = _by_templates(pieces, CostModel(pieces, target))
            alone = sum(model.kernel((n,), frozenset()).seconds for n in nodes if makes_kernels(n))
            prices = {UNFUSED: alone, PIECES: sum(part.selection.seconds for part in found)}
            seconds = kernel.cost.seconds
            priced = 1 + sum(part.selection.priced for part in found)
            solved[key] = Selection(0, seconds, {**prices, WHOLE: seconds}, priced)
        if solved[key].seconds <= min(solved[key].alternatives.values()):
            parts.append(Part(partition, solved[key], (kernel,)))
    return parts


def whole_kernel(nodes: tuple[Node, ...], flow: Dataflow, model: CostModel) -> Kernel:
    """The kernel of these nodes and the maps without inputs that they read."""
    read = {flow.makers[v] for n in nodes for v in n.inputs if v in flow.makers}
    held = tuple(sorted({*nodes, *filter(is_free, read)}, key=lambda n: flow.place[n]))
    inside = frozenset(Reference(v, n) for n in held for v in n.inputs if flow.makers.get(v) in held)
    return Kernel(held, inside, ATTENTION, model.kernel(held, inside))


def _as_function(kernel: Kernel, function: GraphFunction) -> GraphFunction:
    """A kernel as a graph function, whose parameters are the values that the kernel reads."""
    names = tuple(v.name for v in kernel.outputs)
    return function.replace(params=kernel.reads(), nodes=kernel.nodes, results=kernel.outputs, result_names=names)


def _shape(partition: Partition, flow: Dataflow) -> Hashable:
    """A key that two partitions share if one plan fits both: the same operators on values of the same types, joined in
    the same way."""
    numbers: dict[Value, int] = {}

    def known(value: Value) -> Hashable:
        first = value not in numbers
        number = numbers.setdefault(value, len(numbers))
        return (number, value.type, value in flow.constants, value in partition.stored) if first else number

    taken = set(partition.references)
    depths = sorted({flow.depths[v] for node in partition.nodes for v in node.outputs})
    return tuple(
        (
            node.op.name,
            node.attrs,
            tuple((known(v), Reference(v, node) in taken) for v in node.inputs),
            tuple((known(v), depths.index(flow.depths[v])) for v in node.outputs),
        )
        for node in partition.nodes
    )
