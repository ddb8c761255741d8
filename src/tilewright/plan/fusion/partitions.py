"""Partitions: parts of a graph that are planned independently, and the decisions that each of them leaves open.

Nodes joined by references are one partition; so are reductions that may be combined (kernels.py) and that read the same
value. Most references of a partition need no decision: a value with one reader that may compute it is never stored. The
others are its *interesting points*:

    a value with several readers        to store it, or to compute it in the kernel of each
    a value that is stored anyway       to read it, or to compute it again
    a template switch                   h -> a in contract -> a -> row: a may belong to the kernel before or after it;
                                        likewise in contract -> a -> transpose, for a transpose is in no epilogue
    a value that a map broadcasts       a mask added to every row: to store it, or to compute it at every point

Partitions with more than MOST_POINTS of them are pruned: references that hardly any good plan uses are left out.

    stored anyway       the value is in memory for another reader, and computing it again is not cheaper
    apart               a map after a reduction, for readers that no kernel holds together; its value is stored in place
                        of the reduction's, which is as large. This separates the layers of a network with residual
                        connections
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.analysis.dataflow import Dataflow, Reference, is_free
from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.ops.reduce import rows_of
from tilewright.plan.fusion.templates import Memo

MOST_POINTS = 14
"""The most points whose assignments are enumerated: twice as many for each further one."""

KERNEL_NODES = 48
"""The most nodes of one kernel: larger ones take longer to compile without a gain."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes in program order, the references among them, the interesting ones of these, and the values that every plan
    stores."""

    nodes: tuple[Node, ...]
    references: tuple[Reference, ...]
    points: tuple[Reference, ...]
    stored: frozenset[Value]


def partitions(memo: Memo) -> list[Partition]:
    """The partitions of a graph function, in program order of their first nodes; of large ones, without references that
    hardly any good plan uses."""
    flow = memo.flow
    large = {r for part in split(memo, memo.references) if len(part.points) > MOST_POINTS for r in part.references}
    dear = {r for r in large if not _may_pay(r.value, flow)}
    stored = {r for r in dear if _is_stored(r.value, flow, large)}
    apart = _read_apart(memo, large - stored)
    left_out = stored | {r for r in dear if r.value in apart}
    return split(memo, within_size(memo, [r for r in memo.references if r not in left_out]))


def within_size(memo: Memo, references: Iterable[Reference]) -> list[Reference]:
    """The references, in program order, without those that would make kernels of more than KERNEL_NODES nodes."""
    kept: list[Reference] = []
    reach: dict[Node, frozenset[Node]] = {node: frozenset({node}) for node in memo.entries}
    for r in references:
        together = reach[r.reader] | reach[memo.flow.makers[r.value]]
        if len(together) <= KERNEL_NODES:
            reach[r.reader] = together
            kept.append(r)
    return kept


def split(memo: Memo, references: Sequence[Reference]) -> list[Partition]:
    """The partitions that these references make."""
    flow = memo.flow
    leader = {node: node for node in memo.entries}

    def find(node: Node) -> Node:
        while leader[node] is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    taken = set(references)
    joined = [(flow.makers[r.value], r.reader) for r in references if not is_free(flow.makers[r.value])]
    for one, other in (*joined, *_partners(memo, taken)):
        leader[find(one)] = find(other)
    nodes: defaultdict[Node, set[Node]] = defaultdict(set)
    among: defaultdict[Node, list[Reference]] = defaultdict(list)
    for node in memo.entries:
        nodes[find(node)].add(node)
    for r in references:
        among[find(r.reader)].append(r)
        nodes[find(r.reader)].add(flow.makers[r.value])
    stored = frozenset(
        v
        for node in memo.entries
        for v in node.outputs
        if _is_stored(v, flow, taken) or not (flow.readers_of(v) or is_free(node))
    )
    points = _points(memo, references, stored)
    found: list[Partition] = []
    for head, held in nodes.items():
        own = {v for node in held if node is head or not is_free(node) for v in node.outputs}
        inside = tuple(sorted(held, key=flow.place.__getitem__))
        open_ones = tuple([r for r in among[head] if r in points])
        found.append(Partition(inside, tuple(among[head]), open_ones, stored & own))
    return found


def _partners(memo: Memo, taken: Collection[Reference]) -> Iterator[tuple[Node, Node]]:
    """Pairs of reductions of one kind that read a common value, directly or over maps: each with an earlier one."""
    flow = memo.flow
    counts = Counter(flow.alike.values())
    first: dict[tuple[Hashable, Value], Node] = {}
    for node, key in flow.alike.items():
        waiting = [node] if counts[key] > 1 and node in memo.entries else []
        seen = {node}
        while waiting:
            reader = waiting.pop()
            for v in reader.inputs:
                if Reference(v, reader) in taken and flow.makers[v] not in seen:
                    seen.add(flow.makers[v])
                    waiting.append(flow.makers[v])
                if flow.elements(v) >= flow.elements(node.inputs[0]):
                    yield node, first.setdefault((key, v), node)


def _is_stored(value: Value, flow: Dataflow, taken: Collection[Reference]) -> bool:
    """Whether every plan stores a value: it is a result, or a reader cannot compute it."""
    return value in flow.results or any(Reference(value, n) not in taken for n in flow.readers_of(value))


def _spreads(r: Reference, flow: Dataflow) -> bool:
    """Whether a map broadcasts the value, except along rows, where it is computed once for each row."""
    if r.reader.op.pattern is not Pattern.MAP or not r.value.type.shape or flow.extent(r.value.type.shape[-1]) == 1:
        return False
    return flow.elements(r.value) < flow.elements(r.reader.outputs[0])


def _points(memo: Memo, references: Sequence[Reference], stored: Collection[Value]) -> set[Reference]:
    """The interesting ones of these references, of which the values are `stored` that every plan stores. A template
    switch is between the maps after one reduction and those before another that no kernel holds with it, or fuses two
    such reductions into one reader."""
    flow, readers = memo.flow, Counter(r.value for r in references)
    into, out_of = _edges(flow, references)
    below, above = _nearest(memo.entries, into, out_of), _nearest(reversed(memo.entries), out_of, out_of)

    def switches(r: Reference) -> bool:
        before, after = below[flow.makers[r.value]], above[r.reader]
        makers = set[Hashable]().union(*(below[m] for m in into[r.reader]))
        return bool((after and len(before | after) > 1) or (before and len(makers) > 1))

    return {
        r
        for r in references
        if not is_free(flow.makers[r.value])
        and (readers[r.value] > 1 or r.value in stored or r in memo.partly or _spreads(r, flow) or switches(r))
    }


Edges = Mapping[Node, list[Node]]


def _edges(flow: Dataflow, references: Iterable[Reference]) -> tuple[Edges, Edges]:
    """The makers of what each node may compute itself, and the readers that may compute what it makes."""
    into: defaultdict[Node, list[Node]] = defaultdict(list)
    out_of: defaultdict[Node, list[Node]] = defaultdict(list)
    for r in references:
        into[r.reader].append(flow.makers[r.value])
        out_of[flow.makers[r.value]].append(r.reader)
    return into, out_of


def _nearest(nodes: Iterable[Node], before: Edges, out_of: Edges) -> dict[Node, set[Hashable]]:
    """The nearest reductions, by their kinds, on all paths of references that end in a node, those `before` it; with
    readers before it, that begin in it. Those are of different kinds that one kernel cannot hold: all but reductions
    along the same rows. Maps are none, nor is a padding that is computed in a window's kernel."""
    found: dict[Node, set[Hashable]] = {}
    for node in nodes:
        if node.op.pattern is Pattern.MAP or (node.op.pattern is Pattern.OPAQUE and node in out_of):
            found[node] = set().union(*(found[n] for n in before.get(node, ())))
        else:
            found[node] = {rows_of(node) or node}
    return found


def _may_pay(value: Value, flow: Dataflow) -> bool:
    """Whether computing a stored value again is likely to be cheaper than reading it. It is not if its inputs are as
    large as the value: reading them takes as long, unless the reader needs them, too."""
    maker = flow.makers[value]
    return maker.op.pattern is Pattern.MAP and sum(map(flow.bytes, dict.fromkeys(maker.inputs))) < flow.bytes(value)


def _read_apart(memo: Memo, references: Iterable[Reference]) -> set[Value]:
    """Values behind a reduction whose readers no kernel holds together: each would compute them from its result."""
    into, out_of = _edges(memo.flow, references)
    below = _nearest(memo.entries, into, out_of)
    ends: dict[Node, frozenset[Node]] = {}
    for node in reversed(memo.entries):
        ends[node] = frozenset({node}).union(*(ends[n] for n in out_of.get(node, ())))
    readers: defaultdict[Value, list[frozenset[Node]]] = defaultdict(list)
    for r in references:
        readers[r.value].append(ends[r.reader])
    makers = memo.flow.makers
    return {v for v, found in readers.items() if below[makers[v]] and not frozenset.intersection(*found)}
