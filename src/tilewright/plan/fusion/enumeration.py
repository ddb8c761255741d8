"""The cheapest assignment of a partition: exact enumeration with pruning, or a greedy pass if there are too many
interesting points.

The 2^m assignments of m points are scanned in the order of binary numbers; true means stored. The values that an
assignment stores give a lower bound for all assignments with the same prefix. If that is no better than the best plan
so far, 2^(m - last true - 1) assignments are skipped at once, as in MPSkipEnum of Boehm et al. (PVLDB 2018).

The scan begins with the best of four assignments: nothing recomputed, everything recomputed where it is used, nothing
fused at all, and the result of a greedy pass.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.graph.nodes import Node, Value
from tilewright.plan.fusion.dataflow import Dataflow, is_free
from tilewright.plan.fusion.kernels import Cut, Kernels
from tilewright.plan.fusion.partitions import MOST_POINTS, Partition
from tilewright.plan.price.kernels import CostModel, KernelCost

UNFUSED, FUSE_ALL, NO_REDUNDANCY, GREEDY, ENUMERATED = "unfused", "fuse all", "no redundancy", "greedy", "enumerated"
TOGETHER, APART = "reductions together", "reductions apart"
"""Names of alternatives: only reductions fused with each other; the selected plan with a kernel for each reduction."""


@dataclass(slots=True)
class Selection:
    """The selected assignment, its seconds, the seconds of each alternative by name, and how many assignments were
    priced."""

    cut: Cut
    seconds: float
    alternatives: Mapping[str, float]
    priced: int


def select(partition: Partition, kernels: Kernels, flow: Dataflow, model: CostModel) -> Selection:
    """The cheapest assignment that was found; the cheapest of all if there are at most MOST_POINTS points."""
    search = _Search(partition, kernels, flow, model)
    apart = kernels.cut(r for r in partition.references if not is_free(flow.makers[r.value]))
    if kernels.may_combine:
        search.alternatives[UNFUSED] = kernels.seconds(apart, combined=False)
    search.offer(TOGETHER if kernels.may_combine else UNFUSED, apart)
    search.offer(FUSE_ALL, 0)
    readers = Counter(p.value for p in partition.points)
    search.offer(NO_REDUNDANCY, kernels.cut(p for p in partition.points if readers[p.value] > 1))
    if partition.points:
        search.offer(GREEDY, search.descend())
        if len(partition.points) <= MOST_POINTS:
            search.offer(ENUMERATED, search.scan())
    if kernels.may_combine:
        search.alternatives[APART] = kernels.seconds(search.best, combined=False)
    return Selection(search.best, search.least, search.alternatives, search.priced)


class _Search:
    """The search in one partition: the best assignment so far, and the prices of the named ones. A point is an
    assignment of one bit."""

    def __init__(self, partition: Partition, kernels: Kernels, flow: Dataflow, model: CostModel) -> None:
        self._kernels = kernels
        self._points = [kernels.cut([p]) for p in partition.points]
        self._of_value: dict[Value, Cut] = {}
        for p, bit in zip(partition.points, self._points, strict=True):
            self._of_value[p.value] = self._of_value.get(p.value, 0) | bit
        self._start = 0.0 if kernels.may_combine else model.start  # combined kernels start together
        self._floor = _floor(partition, flow, model, self._start)
        self._storing = [
            (bits, _least_read(v, partition, model), model.transfer(v))
            for v, bits in self._of_value.items()
            if v not in partition.stored
        ]
        self.best: Cut = 0
        self.least = math.inf
        self.alternatives: dict[str, float] = {}
        self.priced = 0

    def price(self, cut: Cut) -> float:
        self.priced += 1
        return self._kernels.seconds(cut)

    def offer(self, name: str, cut: Cut) -> None:
        """Prices an assignment under a name, and keeps it if it is the best so far."""
        seconds = self.alternatives[name] = self.price(cut)
        if seconds < self.least:
            self.best, self.least = cut, seconds

    def descend(self) -> Cut:
        """Flips a point, or all points of a value, as long as that is cheaper. Starts from all points true or all
        false, whichever is cheaper."""
        steps = list(dict.fromkeys((*self._points, *self._of_value.values())))
        cut = min((sum(self._points), 0), key=self.price)
        least = self.price(cut)
        improved = True
        while improved:
            improved = False
            for step in steps:
                for turned in {cut | step, cut & ~step} - {cut}:
                    seconds = self.price(turned)
                    if seconds < least:
                        cut, least, improved = turned, seconds, True
        return cut

    def scan(self) -> Cut:
        """The best of all assignments; the best so far, if none is cheaper by more than rounding."""
        best, least = self.best, self.least * (1 - 1e-9)
        count = len(self._points)
        number = 0
        while number < 1 << count:
            cut = sum(p for n, p in enumerate(self._points) if number >> (count - 1 - n) & 1)
            if number and self._bound(cut) >= least:
                number += number & -number
                continue
            seconds = self.price(cut)
            if seconds < least:
                best, least = cut, seconds * (1 - 1e-9)
            number += 1
        return best

    def _bound(self, cut: Cut) -> float:
        """A lower bound, in seconds, for assignments that cut at least these references: each further stored value is
        written by a kernel of its own, and read."""
        start, read, write = self._floor.start, self._floor.read, self._floor.write
        for bits, least_read, written in self._storing:
            if bits & cut:
                start, read, write = start + self._start, read + least_read, write + written
        return KernelCost(start, read, write, self._floor.compute).seconds


def _floor(partition: Partition, flow: Dataflow, model: CostModel, start: float) -> KernelCost:
    """A lower bound for every plan: stored values are written, inputs read and nodes computed at least once, and each
    stored value's kernel takes `start`. Values of which a reader needs only a part do not count."""
    whole = _needed_whole(partition, flow)
    own = {v for node in partition.nodes for v in node.outputs}
    read = dict.fromkeys(v for node in whole if not node.op.reads_part for v in node.inputs if v not in own)
    roots = {flow.makers[v] for v in partition.stored}
    written = sum(map(model.transfer, partition.stored))
    return KernelCost(start * len(roots), sum(map(model.transfer, read)), written, sum(map(model.compute, whole)))


def _least_read(value: Value, partition: Partition, model: CostModel) -> float:
    """What reading a value takes at least, if one of its references is cut."""
    partly = any(r.reader.op.reads_part for r in partition.references if r.value is value)
    return 0.0 if partly else model.transfer(value)


def _needed_whole(partition: Partition, flow: Dataflow) -> list[Node]:
    """The nodes whose results all readers in the partition need completely."""
    partial: set[Node] = set()
    readers: dict[Node, list[Node]] = {}
    for r in partition.references:
        readers.setdefault(flow.makers[r.value], []).append(r.reader)
    for node in reversed(partition.nodes):
        if any(reader.op.reads_part or reader in partial for reader in readers.get(node, ())):
            partial.add(node)
    return [node for node in partition.nodes if node not in partial and not is_free(node)]
