"""The plan: a partition of a graph's nodes into kernels.

A first, simple planner with three rules, applied from the results backwards:

1. A map whose every consumer sits in one kernel joins that kernel, unless the consumer reads its input many times over
   (a contraction, a window), where computing it again for each read costs more than storing it once.
2. A reduction whose one consumer kernel is made only of maps over the same points joins as its anchor: the maps become
   its epilogue.
3. Everything else is a kernel of its own. Views and shape nodes are none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.op import Pattern

REREAD = frozenset({"contract", "window_reduce", "top_k", "cumulative", "scatter_elements", "scatter_nd", "compact"})
"""Operators that read an input element more than once, or in an order of their own."""

CHEAP = frozenset({"full", "iota", "index_values"})
"""Maps that read nothing: they are computed wherever they are used, by every consumer."""

KERNEL_NODES = 48
"""The most nodes in one kernel: beyond it compile time grows without a gain."""


@dataclass(slots=True)
class Group:
    """Nodes that become one kernel, in program order. `root` is the last; `anchor` its reduction, if it has one."""

    root: Node
    nodes: list[Node] = field(default_factory=list)
    anchor: Node | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels in the order they run. Nodes in no group are views and shape nodes, or copies of cheap maps."""

    groups: tuple[Group, ...]

    def group_of(self) -> dict[Node, Group]:
        return {node: group for group in self.groups for node in group.nodes}


def choose(function: GraphFunction) -> Plan:
    """The plan of a graph function."""
    consumers: dict[Value, list[Node]] = defaultdict(list)
    for node in function.nodes:
        for value in node.inputs:
            consumers[value].append(node)
    results = set(function.results)
    group_of: dict[Node, Group] = {}
    order: list[Group] = []
    for node in reversed(function.nodes):
        if node.op.pattern in (Pattern.VIEW, Pattern.SHAPE):
            continue
        group = None
        if not any(out in results for out in node.outputs):
            group = _joins(node, consumers, group_of)
        if group is None:
            group = Group(node)
            order.append(group)
        if node.op.pattern is Pattern.REDUCE:
            group.anchor = node
        group.nodes.insert(0, node)
        group_of[node] = group
    kept = [g for g in order if not _only_cheap(g, results)]
    return Plan(tuple(_duplicate_cheap(kept, group_of, consumers, function)))


def _joins(node: Node, consumers: dict[Value, list[Node]], group_of: dict[Node, Group]) -> Group | None:
    """The group that a node may join: that of all its consumers, by rules 1 and 2."""
    users = [u for out in node.outputs for u in consumers[out]]
    if len(node.outputs) != 1 or not users or any(u not in group_of for u in users):
        return None
    group = group_of[users[0]]
    if any(group_of[u] is not group for u in users) or len(group.nodes) >= KERNEL_NODES:
        return None
    if node.op.pattern is Pattern.MAP:
        return group if not any(u.op.name in REREAD for u in users) else None
    if node.op.pattern is Pattern.REDUCE and group.anchor is None and _is_epilogue(node, group, consumers):
        return group
    return None


def _is_epilogue(anchor: Node, group: Group, consumers: dict[Value, list[Node]]) -> bool:
    """Whether everything that depends on the anchor in its group is a map over the anchor's own points."""
    (out,) = anchor.outputs
    reached = {out}
    for node in group.nodes:
        if any(v in reached for v in node.inputs):
            same = all(o.type.shape == out.type.shape for o in node.outputs)
            if node.op.pattern is not Pattern.MAP or not same or not is_elementwise(node):
                return False
            reached.update(node.outputs)
    return group.root.outputs[0] in reached


def is_elementwise(node: Node) -> bool:
    """Whether a map computes each point from the same point of those inputs that have its shape."""
    return getattr(node.op, "elementwise", False)


def _only_cheap(group: Group, results: set[Value]) -> bool:
    """Whether a group is one cheap map that no one needs in memory."""
    return len(group.nodes) == 1 and group.root.op.name in CHEAP and not any(o in results for o in group.root.outputs)


def _duplicate_cheap(
    groups: list[Group], group_of: dict[Node, Group], consumers: dict[Value, list[Node]], function: GraphFunction
) -> list[Group]:
    """The groups in program order; cheap maps that several kernels read are put into each of them. One that a view or
    shape node reads, or a kernel that rereads, keeps a kernel of its own."""
    cheap = {n.outputs[0]: n for n in function.nodes if n.op.name in CHEAP}
    needed: list[Group] = []
    in_memory: set[Node] = set()
    for node in function.nodes:
        for value in node.inputs:
            maker = cheap.get(value)
            if maker is None or group_of[maker].root is not maker:
                continue
            if node not in group_of or node.op.name in REREAD:
                in_memory.add(maker)
            elif maker not in group_of[node].nodes:
                group_of[node].nodes.insert(0, maker)
    for maker in in_memory:
        if group_of[maker] not in groups:
            needed.append(group_of[maker])
    position = {node: n for n, node in enumerate(function.nodes)}
    made = [*groups, *needed]
    for group in made:
        group.nodes.sort(key=lambda n: position[n])
    return sorted(made, key=lambda g: position[g.root])
