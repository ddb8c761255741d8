"""The plan of a graph function: the memo table, its partitions, the cheapest assignment of each, and its kernels.

Partitions that are alike, such as the layers of a network, are solved once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tilewright.graph.edit import in_order
from tilewright.graph.nodes import GraphFunction, Value
from tilewright.plan.attention.recognise import attentions
from tilewright.plan.fusion.dataflow import Dataflow, is_free
from tilewright.plan.fusion.enumeration import MOST_POINTS, UNFUSED, Selection, select
from tilewright.plan.fusion.kernel import Kernel
from tilewright.plan.fusion.kernels import Kernels
from tilewright.plan.fusion.memo import Memo, explore
from tilewright.plan.fusion.partitions import Partition, split
from tilewright.plan.fusion.prune import prune, within_size
from tilewright.plan.fusion.whole import PIECES, WHOLE, apart, as_function, whole_kernel
from tilewright.plan.price.kernels import CostModel
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Part:
    """A partition with its selection."""

    partition: Partition
    selection: Selection
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels in the order in which they run, and the partitions that they came from. Nodes in no kernel are views
    and shape nodes; some nodes are in several kernels."""

    kernels: tuple[Kernel, ...]
    parts: tuple[Part, ...] = ()

    def __str__(self) -> str:
        return "\n".join(f"{k.template}: {', '.join(v.name for n in k.nodes for v in n.outputs)}" for k in self.kernels)


def choose(function: GraphFunction, target: Target) -> Plan:
    """The plan of a graph function for a target."""
    whole = _whole(function, target)
    flow = Dataflow(function, frozenset(n for part in whole for n in part.partition.nodes))
    parts = [*whole, *_by_templates(flow, CostModel(flow, target))]
    ordered = sorted((k for part in parts for k in part.kernels), key=lambda k: flow.place[k.root])
    return Plan(tuple(in_order(ordered, Kernel.reads, lambda k: k.outputs)), tuple(parts))


def _by_templates(flow: Dataflow, model: CostModel) -> list[Part]:
    """The parts that the templates of the memo table find in a graph function, without the nodes set aside."""
    solved: dict[Hashable, Selection] = {}
    parts: list[Part] = []
    for partition in _partitions(explore(flow)):
        kernels = Kernels(partition, flow, model)
        key = _shape(partition, flow)
        if key in solved:
            selection = solved[key]
        else:
            selection = select(partition, kernels, flow, model)
            solved[key] = selection
        made = kernels.under(selection.cut)
        assert made is not None, "the unfused plan is always one"
        parts.append(Part(partition, selection, tuple(made)))
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
            alone = Dataflow(as_function(kernel, function))
            pieces = _by_templates(alone, CostModel(alone, target))
            prices = {UNFUSED: apart(nodes, model), PIECES: sum(part.selection.seconds for part in pieces)}
            seconds = kernel.cost.seconds
            priced = 1 + sum(part.selection.priced for part in pieces)
            solved[key] = Selection(0, seconds, {**prices, WHOLE: seconds}, priced)
        if solved[key].seconds <= min(solved[key].alternatives.values()):
            parts.append(Part(partition, solved[key], (kernel,)))
    return parts


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


def _partitions(memo: Memo) -> list[Partition]:
    """The partitions, in program order; partitions with many interesting points are pruned."""
    large = {r for part in split(memo, memo.references) if len(part.points) > MOST_POINTS for r in part.references}
    pruned = set(prune(memo, [r for r in memo.references if r in large]))
    return split(memo, within_size(memo, [r for r in memo.references if r not in large or r in pruned]))


def _shape(partition: Partition, flow: Dataflow) -> Hashable:
    """A key that two partitions share if one plan fits both: the same operators on values of the same types, joined in
    the same way."""
    numbers: dict[Value, int] = {}

    def known(value: Value) -> Hashable:
        first = value not in numbers
        number = numbers.setdefault(value, len(numbers))
        return (number, value.type, value in flow.constants, value in partition.stored) if first else number

    taken = frozenset((r.value, r.reader) for r in partition.references)
    depths = sorted({flow.depth(v) for node in partition.nodes for v in node.outputs})
    return tuple(
        (
            node.op.name,
            node.attrs,
            tuple((known(v), (v, node) in taken) for v in node.inputs),
            tuple((known(v), depths.index(flow.depth(v))) for v in node.outputs),
        )
        for node in partition.nodes
    )
