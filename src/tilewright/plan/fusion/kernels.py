"""Kernels of a partition under an assignment: what the kernel of each stored value computes, and its cost.

An assignment is a number with a bit for each reference of the partition: 1 for a cut reference, whose reader reads the
stored value. Every stored value is the root of a kernel, which contains all nodes that it reaches over references that
are not cut. A node that two kernels reach is computed in both.

Kernels of one reduction each, over the same points, become one where that is cheaper: a *multi aggregate*. Values that
they share are read once and computed once.

    a = sum_ij x[i, j] * y[i, j]      b = sum_ij x[i, j] * z[i, j]      m = max_ij x[i, j]

No combined kernel may depend on another one. That follows from *depth*, the most reductions on a path that ends in a
value: kernels that read only values of less depth than they make do not depend on each other if their results have the
same depth, and neither do groups of them. Kernels on different sides of a node that binds or checks a size stay apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.plan.fusion.dataflow import Dataflow, Reference, is_free
from tilewright.plan.fusion.partitions import KERNEL_NODES, Partition
from tilewright.plan.fusion.templates import Entries, take
from tilewright.plan.price.kernels import CostModel, KernelCost
from tilewright.plan.price.points import chains

Cut = int
"""References of a partition, bit n for the n-th."""

MULTI_AGGREGATE = "multi aggregate"


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """The nodes of a kernel in program order, the references inside it, its template and its price. The last node is
    its root; the values of `beside` are results, too."""

    nodes: tuple[Node, ...]
    inside: frozenset[Reference]
    template: str
    cost: KernelCost
    beside: tuple[Node, ...] = ()

    @property
    def root(self) -> Node:
        return self.nodes[-1]

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The values that the kernel stores."""
        return tuple(v for node in (*self.beside, self.root) for v in node.outputs)

    def reads(self) -> tuple[Value, ...]:
        """The values that the kernel reads from memory, in program order."""
        return tuple(dict.fromkeys(v for n in self.nodes for v in n.inputs if Reference(v, n) not in self.inside))


class Kernels:
    """The kernels of one partition; each is checked and priced once."""

    def __init__(self, partition: Partition, flow: Dataflow, model: CostModel) -> None:
        self._flow = flow
        self._model = model
        self._bits = {r: 1 << n for n, r in enumerate(partition.references)}
        self._into: dict[Node, list[tuple[Reference, Node, Cut]]] = {node: [] for node in partition.nodes}
        self._storing: dict[Node, Cut] = {}
        """For each node whose value is not stored in every plan: the references that store it if they are cut."""
        for r, bit in self._bits.items():
            maker = flow.makers[r.value]
            self._into[r.reader].append((r, maker, bit))
            self._storing[maker] = self._storing.get(maker, 0) | bit
        self._forced = [node for node in partition.nodes if not partition.stored.isdisjoint(node.outputs)]
        for node in self._forced:
            self._storing.pop(node, None)
        self._reach: dict[Node, Cut] = {}
        """The references that a kernel with each root may contain."""
        for node in partition.nodes:
            self._reach[node] = 0
            for _, maker, bit in self._into[node]:
                self._reach[node] |= bit | self._reach[maker]
        self._made: dict[tuple[Node, Cut], Kernel | None] = {}
        self._taken: dict[tuple[Node, Cut], Entries] = {}
        self._sums: dict[Kernel, Hashable | None] = {}
        self._pairs: dict[tuple[Kernel, Kernel], Kernel | None] = {}
        counts = Counter(flow.alike[node] for node in partition.nodes if node in flow.alike)
        self.may_combine = any(count > 1 for count in counts.values())
        """Whether there are reductions that one kernel may hold together."""
        self._most_sums = chains(model.target)
        """So many sums hide the latency of an addition: more only take registers."""

    def cut(self, references: Iterable[Reference]) -> Cut:
        """The assignment that cuts these references."""
        return sum(self._bits[r] for r in references)

    def under(self, cut: Cut, *, combined: bool = True) -> list[Kernel] | None:
        """The kernels of an assignment, unordered; with `combined`, reductions are combined where that is cheaper. None
        if no template takes one of the kernels."""
        kernels: list[Kernel] = []
        for root in (*self._forced, *(node for node, bits in self._storing.items() if bits & cut)):
            kernel = self._kernel(root, cut)
            if kernel is None:
                return None
            kernels.append(kernel)
        return self._combine(kernels) if combined and self.may_combine else kernels

    def seconds(self, cut: Cut, *, combined: bool = True) -> float:
        """The seconds of an assignment; infinite if no template takes one of its kernels."""
        kernels = self.under(cut, combined=combined)
        return math.inf if kernels is None else sum(k.cost.seconds for k in kernels)

    def _kernel(self, root: Node, cut: Cut) -> Kernel | None:
        """The kernel with this root, if one template takes all its nodes, one after the other."""
        key = root, cut & self._reach[root]
        if key not in self._made:
            entries = self._entries(root, cut)
            self._made[key] = self._check(root, cut, entries) if entries else None
        return self._made[key]

    def _check(self, root: Node, cut: Cut, entries: Entries) -> Kernel:
        held, waiting = {root}, [root]
        while waiting:
            for _, maker, bit in self._into[waiting.pop()]:
                if not bit & cut and maker not in held:
                    held.add(maker)
                    waiting.append(maker)
        nodes = self._in_order(held)
        inside = frozenset(r for node in nodes for r, _, bit in self._into[node] if not bit & cut)
        template = next((e for e in entries if e.anchors), entries[-1]).template
        return Kernel(nodes, inside, template, self._model.kernel(nodes, inside))

    def _in_order(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        return tuple(sorted(nodes, key=lambda n: self._flow.place[n]))

    def _entries(self, node: Node, cut: Cut) -> Entries:
        """The kernel's entries at one of its nodes; empty if no template takes the node."""
        key = node, cut & self._reach[node]
        if key not in self._taken:
            fused = {r.value: self._entries(maker, cut) for r, maker, bit in self._into[node] if not bit & cut}
            self._taken[key] = take(node, fused, self._flow) if all(fused.values()) else ()
        return self._taken[key]

    def _combine(self, kernels: Iterable[Kernel]) -> list[Kernel]:
        """The kernels, with aggregates combined where that is cheaper: in program order, each with the first kernel
        that it fits."""
        groups: dict[Hashable, list[Kernel]] = {}
        for kernel in sorted(kernels, key=lambda k: self._flow.place[k.root]):
            if kernel not in self._sums:
                self._sums[kernel] = self._sum_of(kernel)
            found = groups.setdefault(self._sums[kernel] or kernel, [])
            for n, other in enumerate(found):
                joined = self._joined(other, kernel)
                if joined is not None:
                    found[n] = joined
                    break
            else:
                found.append(kernel)
        return [kernel for found in groups.values() for kernel in found]

    def _sum_of(self, kernel: Kernel) -> Hashable | None:
        """The key of a kernel's only reduction (`Dataflow.alike`). None if other nodes of the kernel need reductions of
        its depth, or if the kernel stores more than one value for each result."""
        flow = self._flow
        inside = [node for node in kernel.nodes if node.op.pattern is Pattern.REDUCE]
        if len(inside) != 1 or inside[0] not in flow.alike:
            return None
        (out,) = inside[0].outputs
        small = all(flow.elements(v) <= flow.elements(out) for v in kernel.outputs)
        shallow = all(flow.depths[v] < flow.depths[out] for v in kernel.reads())
        return flow.alike[inside[0]] if small and shallow else None

    def _joined(self, one: Kernel, other: Kernel) -> Kernel | None:
        """Two kernels of sums as one; None if they share too little, or if that is not cheaper."""
        if (one, other) not in self._pairs:
            self._pairs[one, other] = self._join(one, other)
        return self._pairs[one, other]

    def _join(self, one: Kernel, other: Kernel) -> Kernel | None:
        nodes = self._in_order({*one.nodes, *other.nodes})
        roots = (*one.beside, one.root, *other.beside, other.root)
        places = [self._flow.place[root] for root in roots]
        if (
            len(roots) > self._most_sums
            or len(nodes) > KERNEL_NODES
            or self._wide(one).isdisjoint(self._wide(other))
            or any(min(places) < n < max(places) for n in self._flow.shaping)
        ):
            return None
        inside, beside = one.inside | other.inside, tuple(n for n in roots if n is not nodes[-1])
        cost = self._model.kernel(nodes, inside, beside)
        apart = one.cost.seconds + other.cost.seconds
        return Kernel(nodes, inside, MULTI_AGGREGATE, cost, beside) if cost.seconds < apart else None

    def _wide(self, kernel: Kernel) -> set[Value]:
        """The values that a kernel of sums reads or computes for each point that is reduced."""
        points = next(self._flow.elements(n.inputs[0]) for n in kernel.nodes if n in self._flow.alike)
        made = [v for n in kernel.nodes if not is_free(n) for v in n.outputs]
        return {v for v in (*kernel.reads(), *made) if self._flow.elements(v) >= points}
