"""Partitions: parts of a graph that are planned independently, and the decisions that each of them leaves open.

Nodes joined by references are one partition. Most of its references need no decision: a value with one reader that may
compute it is never stored. The others are its *interesting points*:

    a value with several readers        to store it, or to compute it in the kernel of each
    a value that is stored anyway       to read it, or to compute it again
    a template switch                   h -> a in contract -> a -> row: a may belong to the kernel before or after it;
                                        likewise in contract -> a -> transpose, for a transpose is in no epilogue
    a value that a map broadcasts       a mask added to every row: to store it, or to compute it at every point

Reductions that may be combined (multi_aggregate.py) and that read the same value are in one partition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.plan.fusion.dataflow import Dataflow, is_free
from tilewright.plan.fusion.memo import Memo, Reference
from tilewright.plan.fusion.multi_aggregate import alike
from tilewright.plan.fusion.reductions import below_and_above


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes in program order, the references among them, the interesting ones of these, and the values that every plan
    stores."""

    nodes: tuple[Node, ...]
    references: tuple[Reference, ...]
    points: tuple[Reference, ...]
    stored: frozenset[Value]


def split(memo: Memo, references: list[Reference]) -> list[Partition]:
    """The partitions of a graph function, in program order of their first nodes."""
    leader = {node: node for node in memo.entries}

    def find(node: Node) -> Node:
        while leader[node] is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    flow = memo.flow
    for r in references:
        if not is_free(flow.makers[r.value]):
            leader[find(flow.makers[r.value])] = find(r.reader)
    for one, other in _partners(memo, references):
        leader[find(one)] = find(other)
    nodes: defaultdict[Node, dict[Node, None]] = defaultdict(dict)
    among: defaultdict[Node, list[Reference]] = defaultdict(list)
    for node in memo.entries:
        nodes[find(node)][node] = None
    for r in references:
        head = find(r.reader)
        among[head].append(r)
        nodes[head][flow.makers[r.value]] = None
    taken = {(r.value, r.reader) for r in references}
    return [_partition(memo, list(part), among[head], head, taken) for head, part in nodes.items()]


def _partners(memo: Memo, references: list[Reference]) -> Iterator[tuple[Node, Node]]:
    """Pairs of reductions of one kind that read a common value, directly or over maps: each with an earlier one."""
    flow = memo.flow
    keys = {node: key for node in memo.entries if (key := alike(node, flow)) is not None}
    several = {key for key, count in Counter(keys.values()).items() if count > 1}
    taken = {(r.value, r.reader) for r in references}
    first: dict[tuple[Hashable, Value], Node] = {}
    for node, key in keys.items():
        if key not in several:
            continue
        points = flow.elements(node.inputs[0])
        waiting, seen = [node], {node}
        while waiting:
            reader = waiting.pop()
            for v in reader.inputs:
                if (v, reader) in taken and flow.makers[v] not in seen:
                    seen.add(flow.makers[v])
                    waiting.append(flow.makers[v])
                if flow.elements(v) >= points:
                    yield node, first.setdefault((key, v), node)


def _partition(
    memo: Memo, nodes: list[Node], references: list[Reference], head: Node, taken: set[tuple[Value, Node]]
) -> Partition:
    flow = memo.flow
    nodes.sort(key=lambda n: flow.place[n])
    stored = frozenset(
        v
        for node in nodes
        if node is head or not is_free(node)
        for v in node.outputs
        if v in flow.results
        or any((v, n) not in taken for n in flow.readers_of(v))
        or not (flow.readers_of(v) or is_free(node))
    )
    readers = Counter(r.value for r in references)
    switches = memo.partly | _switches(flow, nodes, references)
    points = tuple(
        r
        for r in references
        if not is_free(flow.makers[r.value])
        and (readers[r.value] > 1 or r.value in stored or r in switches or _spreads(r, flow))
    )
    return Partition(tuple(nodes), tuple(references), points, stored)


def _spreads(r: Reference, flow: Dataflow) -> bool:
    """Whether a map broadcasts the value, except along rows, where it is computed once for each row."""
    if r.reader.op.pattern is not Pattern.MAP or not r.value.type.shape or flow.extent(r.value.type.shape[-1]) == 1:
        return False
    return flow.elements(r.value) < flow.elements(r.reader.outputs[0])


def _switches(flow: Dataflow, nodes: list[Node], references: list[Reference]) -> set[Reference]:
    """References between the maps after one reduction and those before another that no kernel holds with it; and
    references that would fuse two such reductions into one reader."""
    below, above = below_and_above(flow, nodes, references)
    into: defaultdict[Node, set[Hashable]] = defaultdict(set)
    for r in references:
        into[r.reader] |= below[flow.makers[r.value]]
    found: set[Reference] = set()
    for r in references:
        before = below[flow.makers[r.value]]
        if (above[r.reader] and len(before | above[r.reader]) > 1) or (before and len(into[r.reader]) > 1):
            found.add(r)
    return found
