"""The plan of a graph function: the memo table, its partitions, the cheapest assignment of each, and its kernels.

The 2^m assignments of the m interesting points of a partition are scanned in the order of binary numbers; true means
stored. The values that an assignment stores give a lower bound for all assignments with the same prefix. If that is no
better than the best plan so far, 2^(m - last true - 1) assignments are skipped at once, as in MPSkipEnum of Boehm et
al. (PVLDB 2018). The scan begins with the best of four assignments: nothing recomputed, everything recomputed where it
is used, nothing fused at all, and the result of a greedy pass, which is the plan where there are too many points.

Attentions hold more than templates grow to: two products with a softmax between them. They are recognised as a whole,
before references are explored, and planned if that is priced below the best plan of the same nodes by templates.
Partitions that are alike, such as the layers of a network, are solved once.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from tilewright.analysis.dataflow import Dataflow, Reference, is_free, makes_kernels
from tilewright.graph.edit import in_order
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.plan.attention.recognise import attentions
from tilewright.plan.fusion.kernels import Cut, Kernel, Kernels
from tilewright.plan.fusion.partitions import MOST_POINTS, Partition, partitions, split, within_size
from tilewright.plan.fusion.templates import explore
from tilewright.plan.price.kernels import CostModel, KernelCost
from tilewright.target import Target

UNFUSED, FUSE_ALL, NO_REDUNDANCY, GREEDY, ENUMERATED = "unfused", "fuse all", "no redundancy", "greedy", "enumerated"
TOGETHER, APART = "reductions together", "reductions apart"
"""Names of alternatives: only reductions fused with each other; the selected plan with a kernel for each reduction."""

ATTENTION, WHOLE, PIECES = "attention", "whole", "by templates"
"""The name of the template and of its price, and that of the price of the best plan without it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected assignment, its seconds, the seconds of each alternative by name, and how many assignments were
    priced."""

    cut: Cut
    seconds: float
    alternatives: Mapping[str, float]
    priced: int


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
    model = CostModel(Dataflow(function), target)
    whole = _whole(model)
    if whole:
        model = CostModel(Dataflow(function, Plan((), tuple(whole)).aside), target)
    parts = (*whole, *_by_templates(model, partitions(explore(model.flow))))
    return Plan(tuple(in_order(_kernels(parts, model), Kernel.reads, lambda k: k.outputs)), parts)


def unfused(function: GraphFunction, target: Target) -> Plan:
    """The plan with a kernel for each operator; maps without inputs are still recomputed where they are used."""
    model = CostModel(Dataflow(function), target)
    memo = explore(model.flow)
    free = within_size(memo, [r for r in memo.references if is_free(model.flow.makers[r.value])])
    return Plan(tuple(_kernels(_by_templates(model, split(memo, free), combines=False), model)))


def _kernels(parts: Iterable[Part], model: CostModel) -> list[Kernel]:
    """The kernels of these parts, in program order."""
    return sorted((k for part in parts for k in part.kernels), key=lambda k: model.flow.place[k.root])


def _by_templates(model: CostModel, found: Iterable[Partition], *, combines: bool = True) -> list[Part]:
    """These partitions with the cheapest assignment of each; without reductions combined, if so asked."""
    solved: dict[Hashable, Selection] = {}
    parts: list[Part] = []
    for partition in found:
        kernels, key = Kernels(partition, model, combines=combines), _shape(partition, model.flow)
        if key not in solved:
            solved[key] = select(kernels)
        made = kernels.under(solved[key].cut)
        assert made is not None, "the unfused plan is always one"
        parts.append(Part(partition, solved[key], tuple(made)))
    return parts


def _whole(model: CostModel) -> list[Part]:
    """The kernels that are recognised as a whole, unless a plan of the same nodes by templates is cheaper. Those that
    are alike are priced once."""
    solved: dict[Hashable, Selection] = {}
    parts: list[Part] = []
    for nodes in attentions(model.flow):
        kernel = whole_kernel(nodes, model)
        partition = Partition(nodes, (), (), frozenset(kernel.outputs))
        key = _shape(partition, model.flow)
        if key not in solved:
            ends = {"params": kernel.reads(), "results": kernel.outputs}
            names = tuple(v.name for v in kernel.outputs)
            alone = model.flow.function.replace(nodes=kernel.nodes, result_names=names, **ends)
            pieces = CostModel(Dataflow(alone), model.target)
            found = _by_templates(pieces, partitions(explore(pieces.flow)))
            prices = {
                UNFUSED: sum(model.kernel((n,), frozenset()).seconds for n in nodes if makes_kernels(n)),
                PIECES: sum(part.selection.seconds for part in found),
                WHOLE: kernel.cost.seconds,
            }
            priced = 1 + sum(part.selection.priced for part in found)
            solved[key] = Selection(0, kernel.cost.seconds, prices, priced)
        if solved[key].seconds <= min(solved[key].alternatives.values()):
            parts.append(Part(partition, solved[key], (kernel,)))
    return parts


def whole_kernel(nodes: tuple[Node, ...], model: CostModel) -> Kernel:
    """The kernel of these nodes and the maps without inputs that they read."""
    makers, place = model.flow.makers, model.flow.place
    read = {makers[v] for n in nodes for v in n.inputs if v in makers}
    held = tuple(sorted({*nodes, *filter(is_free, read)}, key=place.__getitem__))
    inside = frozenset(Reference(v, n) for n in held for v in n.inputs if makers.get(v) in held)
    return Kernel(held, inside, ATTENTION, model.kernel(held, inside))


def _shape(partition: Partition, flow: Dataflow) -> Hashable:
    """A key that two partitions share if one plan fits both: the same operators on values of the same types, joined in
    the same way."""
    values = dict.fromkeys(v for node in partition.nodes for v in (*node.inputs, *node.outputs))
    number, taken = {v: n for n, v in enumerate(values)}, set(partition.references)
    depths = sorted({flow.depths[v] for node in partition.nodes for v in node.outputs})
    rows: list[Hashable] = [(v.type, v in flow.constants, v in partition.stored) for v in values]
    for node in partition.nodes:
        inputs = tuple([(number[v], Reference(v, node) in taken) for v in node.inputs])
        outputs = tuple([(number[v], depths.index(flow.depths[v])) for v in node.outputs])
        rows.append((node.op.name, node.attrs, inputs, outputs))
    return tuple(rows)


def select(kernels: Kernels) -> Selection:
    """The cheapest assignment of a partition that was found; the cheapest of all if there are at most MOST_POINTS
    points."""
    search, points = _Search(kernels), kernels.partition.points
    makers = kernels.flow.makers
    alone = kernels.cut(r for r in kernels.partition.references if not is_free(makers[r.value]))
    if kernels.may_combine:
        search.alternatives[UNFUSED] = kernels.seconds(alone, combined=False)
    search.offer(TOGETHER if kernels.may_combine else UNFUSED, alone)
    search.offer(FUSE_ALL, 0)
    readers = Counter(p.value for p in points)
    search.offer(NO_REDUNDANCY, kernels.cut(p for p in points if readers[p.value] > 1))
    if points:
        search.offer(GREEDY, search.descend())
        if len(points) <= MOST_POINTS:
            search.offer(ENUMERATED, search.scan())
    if kernels.may_combine:
        search.alternatives[APART] = kernels.seconds(search.best, combined=False)
    return Selection(search.best, search.least, search.alternatives, search.priced)


class _Search:
    """The search in one partition: the best assignment so far, and the prices of the named ones. A point is an
    assignment of one bit."""

    def __init__(self, kernels: Kernels) -> None:
        partition, model = kernels.partition, kernels.model
        self._kernels = kernels
        self._points = [kernels.cut([p]) for p in partition.points]
        of_value: defaultdict[Value, Cut] = defaultdict(int)
        for p, bit in zip(partition.points, self._points, strict=True):
            of_value[p.value] |= bit
        self._steps = list(dict.fromkeys((*self._points, *of_value.values())))
        self._floor = self._least_cost()
        read_in_part = {r.value for r in partition.references if r.reader.op.reads_part}
        self._storing = [
            (bits, self._start(v), 0.0 if v in read_in_part else model.transfer(v), model.transfer(v))
            for v, bits in of_value.items()
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
        cut = min((sum(self._points), 0), key=self.price)
        least = self.price(cut)
        improved = True
        while improved:
            improved = False
            for step in self._steps:
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
        for bits, own, least_read, written in self._storing:
            if bits & cut:
                start, read, write = start + own, read + least_read, write + written
        return KernelCost(start, read, write, self._floor.compute).seconds

    def _start(self, value: Value) -> float:
        """The seconds in which a kernel that stores this value begins: none where it may begin as one with others."""
        return 0.0 if self._kernels.may_be_joined(value) else self._kernels.model.start

    def _least_cost(self) -> KernelCost:
        """A lower bound for every plan: stored values are written, inputs read and nodes computed at least once, and
        each stored value's kernel takes a start. Values of which a reader needs only a part do not count."""
        partition, makers, model = self._kernels.partition, self._kernels.flow.makers, self._kernels.model
        partial: set[Node] = set()
        for r in reversed(partition.references):  # backwards: before a value, all that is made of it
            if r.reader.op.reads_part or r.reader in partial:
                partial.add(makers[r.value])
        whole = [node for node in partition.nodes if node not in partial and not is_free(node)]
        own = {v for node in partition.nodes for v in node.outputs}
        read = dict.fromkeys(v for node in whole if not node.op.reads_part for v in node.inputs if v not in own)
        start = sum(max(map(self._start, node.outputs)) for node in {makers[v] for v in partition.stored})
        written = sum(map(model.transfer, partition.stored))
        return KernelCost(start, sum(map(model.transfer, read)), written, sum(map(model.compute, whole)))
