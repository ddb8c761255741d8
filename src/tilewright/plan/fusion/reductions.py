"""Which reductions a node may share a kernel with: the nearest ones that references connect it to, on both sides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from tilewright.graph.nodes import Node
from tilewright.graph.op import Pattern
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.memo import Reference
from tilewright.plan.fusion.row import rows_of

Kinds = dict[Node, set[Hashable]]


def below_and_above(flow: Dataflow, nodes: Sequence[Node], references: Iterable[Reference]) -> tuple[Kinds, Kinds]:
    """For each node, the nearest reductions on paths of references that end in it, and on those that begin in it."""
    into: defaultdict[Node, list[Node]] = defaultdict(list)
    out_of: defaultdict[Node, list[Node]] = defaultdict(list)
    for r in references:
        maker = flow.makers[r.value]
        into[r.reader].append(maker)
        out_of[maker].append(r.reader)
    below: Kinds = {}
    above: Kinds = {}
    kinds = {node: _kind(node, bool(out_of[node])) for node in nodes}
    for node in nodes:
        kind = kinds[node]
        below[node] = {kind} if kind is not None else set().union(*(below[m] for m in into[node]))
    for node in reversed(nodes):
        kind = kinds[node]
        above[node] = {kind} if kind is not None else set().union(*(above[n] for n in out_of[node]))
    return below, above


def _kind(node: Node, goes_on: bool) -> Hashable | None:
    """A key that differs between reductions that one kernel cannot hold; None for maps, and for a padding that is
    computed in a window's kernel. Reductions along the same rows share a key."""
    if node.op.pattern is Pattern.MAP or (node.op.pattern is Pattern.OPAQUE and goes_on):
        return None
    rows = rows_of(node)
    return node if rows is None else rows
