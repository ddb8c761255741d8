"""Leaves references that hardly any good plan uses out of partitions that are too large for exact enumeration.

- stored anyway: the value is in memory for another reader, and computing it again is not cheaper;
- small and shared: a mask or a scale with many readers, which costs next to nothing to read;
- apart: a map after a reduction, for readers that no kernel holds together; its value is stored in place of the
  reduction's.

References that would make kernels of more than KERNEL_NODES nodes are left out of all partitions.
"""

from __future__ import annotations

from collections import defaultdict

from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.memo import Memo, Reference
from tilewright.plan.fusion.reductions import below_and_above

KERNEL_NODES = 48
"""The most nodes of one kernel: larger ones take longer to compile without a gain."""

MANY_READERS = 4
"""A small value with at least this many readers is stored."""


def prune(memo: Memo, references: list[Reference]) -> list[Reference]:
    """The references, in program order, without those that hardly any good plan uses."""
    references = [r for r in references if not _is_small_and_shared(r.value, memo.flow)]
    return _without_apart(memo, _without_stored(memo.flow, references))


def _may_pay(value: Value, flow: Dataflow) -> bool:
    """Whether computing a stored value again is likely to be cheaper than reading it. It is not if its inputs are as
    large as the value: reading them takes as long, unless the reader needs them, too."""
    maker = flow.makers[value]
    if maker.op.pattern is not Pattern.MAP:
        return False
    return sum(flow.bytes(v) for v in dict.fromkeys(maker.inputs)) < flow.bytes(value)


def _is_small_and_shared(value: Value, flow: Dataflow) -> bool:
    readers, size = flow.readers_of(value), flow.elements(value)
    if len(readers) < MANY_READERS or not flow.makers[value].inputs:
        return False
    return all(flow.elements(v) > size for reader in readers for v in reader.outputs)


def _without_stored(flow: Dataflow, references: list[Reference]) -> list[Reference]:
    known = {(r.value, r.reader) for r in references}
    stored = {
        v
        for v in {r.value for r in references}
        if v in flow.results or any((v, reader) not in known for reader in flow.readers_of(v))
    }
    return [r for r in references if r.value not in stored or _may_pay(r.value, flow)]


def _without_apart(memo: Memo, references: list[Reference]) -> list[Reference]:
    """Several kernels would compute such a value from its reduction's stored result, which is as large. So the value is
    stored instead of that result. This separates the layers of a network with residual connections."""
    flow = memo.flow
    below, _ = below_and_above(flow, list(memo.entries), references)
    readers: defaultdict[Value, list[Node]] = defaultdict(list)
    for r in references:
        readers[r.value].append(r.reader)
    ends = _ends(memo, references)
    stored = {
        v
        for v, found in readers.items()
        if len(found) > 1 and below[flow.makers[v]] and not frozenset.intersection(*(ends[n] for n in found))
    }
    return [r for r in references if r.value not in stored or _may_pay(r.value, flow)]


def _ends(memo: Memo, references: list[Reference]) -> dict[Node, frozenset[Node]]:
    """For each node, itself and the nodes that references lead to from it."""
    out_of: defaultdict[Node, list[Node]] = defaultdict(list)
    for r in references:
        out_of[memo.flow.makers[r.value]].append(r.reader)
    ends: dict[Node, frozenset[Node]] = {}
    for node in reversed(memo.entries):
        ends[node] = frozenset({node}).union(*(ends[n] for n in out_of[node]))
    return ends


def within_size(memo: Memo, references: list[Reference]) -> list[Reference]:
    """The references, in program order, without those that would make kernels of more than KERNEL_NODES nodes."""
    kept: list[Reference] = []
    reach: dict[Node, frozenset[Node]] = {node: frozenset({node}) for node in memo.entries}
    for r in references:
        together = reach[r.reader] | reach[memo.flow.makers[r.value]]
        if len(together) <= KERNEL_NODES:
            reach[r.reader] = together
            kept.append(r)
    return kept
