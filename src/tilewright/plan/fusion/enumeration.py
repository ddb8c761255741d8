"""The cheapest assignment of a partition: exact enumeration with pruning, or a greedy pass if there are too many
interesting points.

The 2^m assignments of m points are scanned in the order of binary numbers; true means stored. For each,

    cost pruning          the values that it stores give a lower bound for all assignments with the same prefix. If that
                          is no better than the best plan so far, 2^(m - last true - 1) assignments are skipped at once
    structural pruning    the points of a cut set come first: if all are true, the others fall into groups that no
                          kernel joins, and each group is solved independently

as in MPSkipEnum of Boehm et al. (PVLDB 2018). If kernels may be combined (multi_aggregate.py), groups are never solved
independently, and a stored value need not have a kernel of its own. The scan begins with the best of four assignments:
nothing recomputed, everything recomputed where it is used, nothing fused at all, and the result of a greedy pass.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.graph.nodes import Node, Value
from tilewright.plan.fusion.dataflow import Dataflow, is_free
from tilewright.plan.fusion.kernels import Cut, Kernels
from tilewright.plan.fusion.memo import Reference
from tilewright.plan.fusion.partitions import Partition
from tilewright.plan.price.kernels import CostModel

MOST_POINTS = 14
"""With more points than this, assignments are not enumerated."""

WORTH_PARTING = 5
"""With fewer points than this, no cut set is searched for."""

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
    apart = kernels.cut([r for r in partition.references if not is_free(flow.makers[r.value])])
    if kernels.may_combine:
        search.alternatives[UNFUSED] = kernels.seconds(apart, combined=False)
        search.offer(TOGETHER, apart)
    else:
        search.offer(UNFUSED, apart)
    search.offer(FUSE_ALL, 0)
    readers = Counter(p.value for p in partition.points)
    search.offer(NO_REDUNDANCY, kernels.cut([p for p in partition.points if readers[p.value] > 1]))
    if partition.points:
        search.offer(GREEDY, search.descend())
        if len(partition.points) <= MOST_POINTS:
            found = search.solve(search.points, 0)
            search.offer(ENUMERATED, search.best if found is None else found)
    if kernels.may_combine:
        search.alternatives[APART] = kernels.seconds(search.best, combined=False)
    return Selection(search.best, search.least, search.alternatives, search.priced)


class _Search:
    """The search in one partition: the best assignment so far, and the prices of the named ones. A point is an
    assignment of one bit."""

    def __init__(self, partition: Partition, kernels: Kernels, flow: Dataflow, model: CostModel) -> None:
        self._kernels = kernels
        self.points = [kernels.cut([p]) for p in partition.points]
        self.best: Cut = 0
        self.least = math.inf
        self.alternatives: dict[str, float] = {}
        self.priced = 0
        of_value: dict[Value, list[Reference]] = {}
        for p in partition.points:
            of_value.setdefault(p.value, []).append(p)
        self._of_value = {v: kernels.cut(found) for v, found in of_value.items()}
        self._storing = [
            (bits, model.transfer(v), flow.makers[v]) for v, bits in self._of_value.items() if v not in partition.stored
        ]
        self._each = model.start
        self._start = 0.0 if kernels.may_combine else model.start
        self._floor = static_bound(partition, flow, model, self._start)

    def price(self, cut: Cut, roots: frozenset[Node] | None = None) -> float:
        self.priced += 1
        return self._kernels.seconds(cut, roots)

    def offer(self, name: str, cut: Cut) -> None:
        """Prices an assignment under a name, and keeps it if it is the best so far."""
        seconds = self.alternatives[name] = self.price(cut)
        if seconds < self.least:
            self.best, self.least = cut, seconds

    def descend(self) -> Cut:
        """Flips a point, or all points of a value, as long as that is cheaper. Starts from all points true or all
        false, whichever is cheaper."""
        steps = list(dict.fromkeys((*self.points, *self._of_value.values())))
        cut = min((sum(self.points), 0), key=self.price)
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

    def solve(self, points: Sequence[Cut], fixed: Cut, roots: frozenset[Node] | None = None) -> Cut | None:
        """The best assignment of these points, with all others as in `fixed`; None if none is better than the best so
        far. With `roots`, only the kernels of these are priced."""
        first, groups = self._cut_set(points, fixed)
        order = (*first, *(p for p in points if p not in first))
        count = len(order)
        end = ((1 << len(first)) - 1) << (count - len(first)) if first else 1 << count
        best: Cut | None = None
        least = self.least if roots is None else math.inf
        number = 0
        while number < end:
            cut = fixed | sum(p for n, p in enumerate(order) if number >> (count - 1 - n) & 1)
            if number and self._bound(cut, roots) >= least:
                number += number & -number
                continue
            seconds = self.price(cut, roots)
            if seconds < least:
                best, least = cut, seconds
            number += 1
        if first and self._bound(fixed | sum(first), roots) < least:
            parted = self._solve_apart(groups, fixed | sum(first))
            if parted is not None and self.price(parted, roots) < least:
                best = parted
        return best

    def _solve_apart(self, groups: Sequence[Sequence[Cut]], cut: Cut) -> Cut | None:
        """The best assignment of groups that no kernel joins, each solved independently; None if one has none."""
        deciding = self._kernels.deciding(cut, self.points)
        for group in groups:
            found = self.solve(group, cut, frozenset().union(*(deciding[p] for p in group)))
            if found is None:
                return None
            cut = found
        return cut

    def _bound(self, cut: Cut, roots: frozenset[Node] | None) -> float:
        """A lower bound, in seconds, for assignments that cut at least these references: each further stored value is
        written by a kernel of its own, and read."""
        stored = [(seconds, maker) for bits, seconds, maker in self._storing if bits & cut]
        if roots is None:
            return (self._floor + sum(self._start + 2 * seconds for seconds, _ in stored)) * (1 - 1e-9)
        return sum(self._each + seconds for seconds, maker in stored if maker in roots) * (1 - 1e-9)

    def _cut_set(self, points: Sequence[Cut], fixed: Cut) -> tuple[tuple[Cut, ...], list[tuple[Cut, ...]]]:
        """The smallest cut set, of the points of one value or two, and the groups that it leaves; empty if there is
        none."""
        if len(points) < WORTH_PARTING or self._kernels.may_combine:
            return (), []
        by_value = [tuple(p for p in points if p & bits) for bits in self._of_value.values()]
        by_value = [found for found in by_value if found]
        sets = [*by_value, *(a + b for a, b in itertools.combinations(by_value, 2))]
        best: tuple[float, tuple[Cut, ...], list[tuple[Cut, ...]]] | None = None
        for chosen in sets:
            rest = [p for p in points if p not in chosen]
            groups = self._groups(rest, fixed | sum(chosen))
            if len(groups) < 2:
                continue
            work = 2.0 ** len(points) - 2.0 ** len(rest) + sum(2.0 ** len(g) for g in groups)
            if best is None or work < best[0]:
                best = work, chosen, groups
        return ((), []) if best is None else best[1:]

    def _groups(self, points: Sequence[Cut], cut: Cut) -> list[tuple[Cut, ...]]:
        """The points, in groups that no kernel joins when these references are cut."""
        deciding = self._kernels.deciding(cut, points)
        groups: list[tuple[set[Node], tuple[Cut, ...]]] = []
        for p in points:
            roots: set[Node] = deciding[p]
            joined: tuple[Cut, ...] = (p,)
            for g in [g for g in groups if g[0] & roots]:
                groups.remove(g)
                roots, joined = roots | g[0], (*g[1], *joined)
            groups.append((roots, joined))
        return [joined for _, joined in groups]


def static_bound(partition: Partition, flow: Dataflow, model: CostModel, start: float) -> float:
    """A lower bound, in seconds, for every plan: stored values are written, inputs read and nodes computed at least
    once, and each stored value's kernel takes `start`. Values of which a reader needs only a part do not count."""
    whole = _needed_whole(partition, flow)
    compute = sum(model.compute(node) for node in whole)
    own = {v for node in partition.nodes for v in node.outputs}
    read = dict.fromkeys(v for node in whole if not node.op.reads_part for v in node.inputs if v not in own)
    written = sum(model.transfer(v) for v in partition.stored)
    roots = {flow.makers[v] for v in partition.stored}
    return start * len(roots) + written + max(compute, sum(model.transfer(v) for v in read))


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
