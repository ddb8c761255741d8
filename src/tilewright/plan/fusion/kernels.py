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
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.plan.fusion.dataflow import Dataflow, Reference, is_free
from tilewright.plan.fusion.partitions import KERNEL_NODES, Partition, alike
from tilewright.plan.fusion.templates import Entries, take
from tilewright.plan.nests.rows import chains
from tilewright.plan.price.kernels import CostModel, KernelCost

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
        self._made: dict[tuple[Node, Cut], Kernel | None] = {}
        self._taken: dict[tuple[Node, Cut], Entries] = {}
        self._together = Together(partition.nodes, flow, model)

    @property
    def references(self) -> Collection[Reference]:
        """The references of the partition, in the order of their bits."""
        return self._bits.keys()

    @property
    def may_combine(self) -> bool:
        """Whether there are reductions that one kernel may hold together."""
        return self._together.is_possible

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
        return self._together.combine(kernels) if combined and self.may_combine else kernels

    def seconds(self, cut: Cut, *, combined: bool = True) -> float:
        """The seconds of an assignment; infinite if no template takes one of its kernels."""
        kernels = self.under(cut, combined=combined)
        return math.inf if kernels is None else sum(k.cost.seconds for k in kernels)

    def _kernel(self, root: Node, cut: Cut) -> Kernel | None:
        """The kernel with this root, if one template takes all its nodes, one after the other."""
        key = root, cut & self._reached(root)
        if key not in self._made:
            self._made[key] = self._check(root, cut)
        return self._made[key]

    def _check(self, root: Node, cut: Cut) -> Kernel | None:
        entries = self._entries(root, cut)
        if not entries:
            return None
        nodes = sorted(self._back(root, cut), key=lambda n: self._flow.place[n])
        inside = frozenset(r for node in nodes for r, _, bit in self._into[node] if not bit & cut)
        template = next((e for e in entries if e.anchors), entries[-1]).template
        return Kernel(tuple(nodes), inside, template, self._model.kernel(nodes, inside))

    def _back(self, root: Node, cut: Cut) -> set[Node]:
        """The nodes of a root's kernel."""
        waiting, seen = [root], {root}
        while waiting:
            for _, maker, bit in self._into[waiting.pop()]:
                if not bit & cut and maker not in seen:
                    seen.add(maker)
                    waiting.append(maker)
        return seen

    def _reached(self, node: Node) -> Cut:
        """The references that a kernel with this root may contain."""
        if node not in self._reach:
            self._reach[node] = sum(bit for n in self._back(node, 0) for *_, bit in self._into[n])
        return self._reach[node]

    def _entries(self, node: Node, cut: Cut) -> Entries:
        """The kernel's entries at one of its nodes; empty if no template takes the node."""
        key = node, cut & self._reached(node)
        if key not in self._taken:
            fused = {r.value: self._entries(maker, cut) for r, maker, bit in self._into[node] if not bit & cut}
            self._taken[key] = take(node, fused, self._flow) if all(fused.values()) else ()
        return self._taken[key]


class Together:
    """Combines the kernels of some nodes where they are aggregates."""

    def __init__(self, nodes: Iterable[Node], flow: Dataflow, model: CostModel) -> None:
        self._flow = flow
        self._model = model
        self._alike = {node: key for node in nodes if (key := alike(node, flow)) is not None}
        self.is_possible = any(count > 1 for count in Counter(self._alike.values()).values())
        """Whether there are reductions that one kernel may hold."""
        self._most = chains(model.target)
        """So many sums hide the latency of an addition: more only take registers."""
        self._made: dict[tuple[Kernel, ...], Kernel | None] = {}
        self._keys: dict[Kernel, Hashable | None] = {}

    def combine(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """The kernels, with aggregates combined where that is cheaper: in program order, each with the first kernel
        that it fits."""
        made: list[Kernel] = []
        groups: dict[Hashable, list[tuple[Kernel, ...]]] = {}
        for kernel in sorted(kernels, key=lambda k: self._flow.place[k.root]):
            if kernel not in self._keys:
                self._keys[kernel] = self._key(kernel)
            key = self._keys[kernel]
            if key is None:
                made.append(kernel)
                continue
            of_key = groups.setdefault(key, [])
            home = next((n for n, g in enumerate(of_key) if self._joined((*g, kernel)) is not None), None)
            if home is None:
                of_key.append((kernel,))
            else:
                of_key[home] = (*of_key[home], kernel)
        joined = (self._joined(group) for found in groups.values() for group in found)
        return [*made, *(kernel for kernel in joined if kernel is not None)]

    def _key(self, kernel: Kernel) -> Hashable | None:
        """The key of a kernel's only reduction (`alike`). None if other nodes of the kernel need reductions of its
        depth, or if the kernel stores more than one value for each result."""
        inside = [node for node in kernel.nodes if node.op.pattern is Pattern.REDUCE]
        if len(inside) != 1 or inside[0] not in self._alike:
            return None
        (out,) = inside[0].outputs
        small = all(self._flow.elements(v) <= self._flow.elements(out) for v in kernel.outputs)
        shallow = all(self._flow.depths[v] < self._flow.depths[out] for v in kernel.reads())
        return self._alike[inside[0]] if small and shallow else None

    def _joined(self, kernels: tuple[Kernel, ...]) -> Kernel | None:
        """The kernels combined to one; None if they share too little, or if that is not cheaper."""
        if len(kernels) == 1:
            return kernels[0]
        if kernels not in self._made:
            self._made[kernels] = self._checked(kernels)
        return self._made[kernels]

    def _checked(self, kernels: tuple[Kernel, ...]) -> Kernel | None:
        nodes = sorted({n for k in kernels for n in k.nodes}, key=lambda n: self._flow.place[n])
        places = [self._flow.place[k.root] for k in kernels]
        if (
            len(kernels) > self._most
            or len(nodes) > KERNEL_NODES
            or not any(self._wide(kernels[-1]) & self._wide(k) for k in kernels[:-1])
            or any(min(places) < n < max(places) for n in self._flow.shaping)
        ):
            return None
        inside = frozenset[Reference]().union(*(k.inside for k in kernels))
        beside = tuple(k.root for k in kernels if k.root is not nodes[-1])
        cost = self._model.kernel(nodes, inside, beside)
        apart = sum(k.cost.seconds for k in kernels)
        return Kernel(tuple(nodes), inside, MULTI_AGGREGATE, cost, beside) if cost.seconds < apart else None

    def _wide(self, kernel: Kernel) -> set[Value]:
        """The values that a kernel reads or computes for each point that is reduced."""
        (node,) = [n for n in kernel.nodes if n in self._alike]
        points = self._flow.elements(node.inputs[0])
        made = [v for n in kernel.nodes if not is_free(n) for v in n.outputs]
        return {v for v in (*kernel.reads(), *made) if self._flow.elements(v) >= points}
