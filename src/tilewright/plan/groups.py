"""The plan: a partition of a graph's nodes into kernels.

A first, simple planner with four rules, applied from the results backwards:

1. A map whose every consumer sits in one kernel joins that kernel, unless the consumer reads its input many times over
   (a contraction, a window), where computing it again for each read costs more than storing it once.
2. A reduction whose one consumer kernel is made only of maps over the same points joins as its anchor: the maps become
   its epilogue.
3. Reductions over the same trailing axes share a kernel with what lies between them (softmax, layer norm): a row at a
   time, each pass over it finding it in cache.
4. Everything else is a kernel of its own. Views and shape nodes are none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tilewright.expr.nodes import Expr
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.op import Pattern
from tilewright.ops.reduce import ReduceAttributes
from tilewright.plan.attention import attentions

REREAD = frozenset(
    {
        "contract",
        "window_reduce",
        "winograd_input",
        "winograd_output",
        "top_k",
        "cumulative",
        "scatter_elements",
        "scatter_nd",
        "compact",
    }
)
"""Operators that read an input element more than once, or in an order of their own."""

CHEAP = frozenset({"full", "iota", "index_values"})
"""Maps that read nothing: they are computed wherever they are used, by every consumer."""

KERNEL_NODES = 48
"""The most nodes in one kernel: beyond it compile time grows without a gain."""


@dataclass(slots=True)
class Group:
    """Nodes that become one kernel, in program order. `root` is the last; `anchors` its reductions. Nobody joins a
    group that is closed."""

    root: Node
    nodes: list[Node] = field(default_factory=list)
    anchors: list[Node] = field(default_factory=list)
    closed: bool = False


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
    makers = {value: node for node in function.nodes for value in node.outputs}
    results = set(function.results)
    group_of: dict[Node, Group] = {}
    order: list[Group] = []
    for nodes in attentions(function):
        anchors = [n for n in nodes if n.op.pattern is Pattern.REDUCE]
        order.append(Group(nodes[-1], list(nodes), anchors, closed=True))
        group_of.update(dict.fromkeys(nodes, order[-1]))
    for node in reversed(function.nodes):
        if node in group_of or node.op.pattern in (Pattern.VIEW, Pattern.SHAPE):
            continue
        group = None
        if not any(out in results for out in node.outputs):
            group = _joins(node, makers, consumers, group_of)
        if group is None:
            group = Group(node)
            order.append(group)
        if node.op.pattern is Pattern.REDUCE:
            group.anchors.append(node)
        group.nodes.insert(0, node)
        group_of[node] = group
    kept = [g for g in order if not _only_cheap(g, results)]
    return Plan(tuple(_duplicate_cheap(kept, group_of, consumers, function)))


def _joins(
    node: Node, makers: dict[Value, Node], consumers: dict[Value, list[Node]], group_of: dict[Node, Group]
) -> Group | None:
    """The group that a node may join: that of all its consumers, by rules 1 and 2."""
    users = [u for out in node.outputs for u in consumers[out]]
    if len(node.outputs) != 1 or not users or any(u not in group_of for u in users):
        return None
    group = group_of[users[0]]
    if group.closed or any(group_of[u] is not group for u in users) or len(group.nodes) >= KERNEL_NODES:
        return None
    if node.op.name == "pad" and _pads_window(node, users):
        return group
    if node.op.pattern is Pattern.MAP:
        if any(u.op.name in REREAD for u in users):
            return None
        return None if group.root.op.pattern is Pattern.OPAQUE and _ends_reduction(node, makers, consumers) else group
    if node.op.pattern is not Pattern.REDUCE or any(u.op.name in REREAD for u in users):
        return None
    if not group.anchors and _is_epilogue(node, group):
        return group
    return group if _is_row(node, group) else None


def _pads_window(node: Node, users: list[Node]) -> bool:
    """Whether a padding is for one window alone: it runs in the window's kernel, a part at a time where that goes."""
    return len(users) == 1 and users[0].op.name == "contract" and users[0].inputs.count(node.outputs[0]) == 1


def _ends_reduction(node: Node, makers: dict[Value, Node], consumers: dict[Value, list[Node]]) -> bool:
    """Whether a map could be the epilogue of a reduction: a better place than inside a kernel that moves data."""
    while node.op.elementwise:
        shape = node.outputs[0].type.shape
        sources = [makers[v] for v in node.inputs if v in makers and v.type.shape == shape and len(consumers[v]) == 1]
        if any(s.op.pattern is Pattern.REDUCE for s in sources):
            return True
        if not sources:
            return False
        node = sources[0]
    return False


def rows_of(node: Node) -> tuple[Expr, ...] | None:
    """The leading dimensions of a reduction over trailing axes: its rows. None for any other node."""
    if not isinstance(node.attrs, ReduceAttributes) or not node.attrs.axes:
        return None
    shape = node.inputs[0].type.shape
    kept = len(shape) - len(node.attrs.axes)
    trailing = sorted(node.attrs.axes) == list(range(kept, len(shape)))
    return shape[:kept] if trailing and kept else None


def _is_row(node: Node, group: Group) -> bool:
    """Whether a reduction has the rows that the group works on: those of its reductions, or of its root."""
    rows = rows_of(node)
    if rows is None:
        return False
    if group.anchors:
        return all(rows_of(a) == rows for a in group.anchors)
    (out,) = group.root.outputs[:1]
    return group.root.op.pattern is Pattern.MAP and out.type.shape[: len(rows)] == rows


def _is_epilogue(anchor: Node, group: Group) -> bool:
    """Whether everything that depends on the anchor in its group is a map over the anchor's own points."""
    (out,) = anchor.outputs
    reached = {out}
    for node in group.nodes:
        if any(v in reached for v in node.inputs):
            same = all(o.type.shape == out.type.shape for o in node.outputs)
            if node.op.pattern is not Pattern.MAP or not same or not node.op.elementwise:
                return False
            reached.update(node.outputs)
    return group.root.outputs[0] in reached


def _only_cheap(group: Group, results: set[Value]) -> bool:
    """Whether a group is one cheap map that no one needs in memory."""
    return len(group.nodes) == 1 and group.root.op.name in CHEAP and not any(o in results for o in group.root.outputs)


def _duplicate_cheap(
    groups: list[Group], group_of: dict[Node, Group], consumers: dict[Value, list[Node]], function: GraphFunction
) -> list[Group]:
    """The groups in program order; cheap maps that several kernels read are put into each of them. One that a view or
    shape node reads, or a kernel that rereads, keeps a kernel of its own."""
    cheap = {n.outputs[0]: n for n in function.nodes if n.op.name in CHEAP}
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
    needed = [group_of[maker] for maker in in_memory if group_of[maker] not in groups]
    position = {node: n for n, node in enumerate(function.nodes)}
    made = [*groups, *needed]
    for group in made:
        group.nodes.sort(key=lambda n: position[n])
    return sorted(made, key=lambda g: position[g.root])
