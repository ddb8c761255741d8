"""Kernels of a partition under an assignment: what the kernel of each stored value computes, and its cost.

An assignment is a number with a bit for each reference of the partition: 1 for a cut reference, whose reader reads the
stored value. Every stored value is the root of a kernel, which contains all nodes that it reaches over references that
are not cut. A node that two kernels reach is computed in both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from tilewright.graph.nodes import Node, Value
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.kernel import Kernel
from tilewright.plan.fusion.memo import Reference, take
from tilewright.plan.fusion.multi_aggregate import Together
from tilewright.plan.fusion.partitions import Partition
from tilewright.plan.fusion.prune import KERNEL_NODES
from tilewright.plan.fusion.template import Entries
from tilewright.plan.price.kernels import CostModel

Cut = int
"""References of a partition, bit n for the n-th."""


class Kernels:
    """The kernels of one partition; each is checked and priced once."""

    def __init__(self, partition: Partition, flow: Dataflow, model: CostModel) -> None:
        self._flow = flow
        self._model = model
        self.references = partition.references
        self._bits = {r: 1 << n for n, r in enumerate(partition.references)}
        self._into: dict[Node, list[tuple[Value, Node, Cut]]] = {node: [] for node in partition.nodes}
        self._storing: dict[Node, Cut] = {}
        """For each node whose value is not stored in every plan: the references that store it if they are cut."""
        for r, bit in self._bits.items():
            maker = flow.makers[r.value]
            self._into[r.reader].append((r.value, maker, bit))
            self._storing[maker] = self._storing.get(maker, 0) | bit
        self._forced = [node for node in partition.nodes if not partition.stored.isdisjoint(node.outputs)]
        for node in self._forced:
            self._storing.pop(node, None)
        self._made: dict[tuple[Node, Cut], Kernel | None] = {}
        self._relevant: dict[Node, Cut] = {}
        self._taken: dict[tuple[Node, Cut], Entries] = {}
        self._together = Together(partition.nodes, flow, model)

    @property
    def may_combine(self) -> bool:
        """Whether there are reductions that one kernel may hold together."""
        return self._together.is_possible

    def cut(self, references: Collection[Reference]) -> Cut:
        """The assignment that cuts these references."""
        return sum(self._bits[r] for r in references)

    def under(self, cut: Cut, *, combined: bool = True) -> list[Kernel] | None:
        """The kernels of an assignment, unordered; with `combined`, reductions are combined where that is cheaper. None
        if no template takes one of the kernels."""
        made = [self._kernel(root, cut) for root in self._roots(cut)]
        if None in made:
            return None
        kernels = [k for k in made if k is not None]
        return self._together.combine(kernels) if combined and self.may_combine else kernels

    def seconds(self, cut: Cut, roots: Collection[Node] | None = None, *, combined: bool = True) -> float:
        """The seconds of an assignment, or of the kernels of these roots; infinite if no template takes one of them."""
        if combined and self.may_combine:
            made = self.under(cut)
            return math.inf if made is None else sum(k.cost.seconds for k in made)
        total = 0.0
        for root in self._roots(cut):
            if roots is None or root in roots:
                kernel = self._kernel(root, cut)
                if kernel is None:
                    return math.inf
                total += kernel.cost.seconds
        return total

    def deciding(self, cut: Cut, points: Sequence[Cut]) -> dict[Cut, set[Node]]:
        """For each point, the roots of the kernels that cutting it may change, while `cut` stays cut."""
        found: dict[Cut, set[Node]] = {p: {node for node, bits in self._storing.items() if bits & p} for p in points}
        for root in self._roots(cut | sum(points)):
            seen, _ = self._back(root, cut)
            reached = sum(bit for node in seen for *_, bit in self._into[node])
            for p in points:
                if p & reached:
                    found[p].add(root)
        return found

    def _roots(self, cut: Cut) -> list[Node]:
        return [*self._forced, *(node for node, bits in self._storing.items() if bits & cut)]

    def _back(self, root: Node, cut: Cut) -> tuple[set[Node], Cut]:
        """The nodes of a root's kernel, and the references inside it."""
        inside: Cut = 0
        waiting, seen = [root], {root}
        while waiting:
            for _, maker, bit in self._into[waiting.pop()]:
                if not bit & cut:
                    inside |= bit
                    if maker not in seen:
                        seen.add(maker)
                        waiting.append(maker)
        return seen, inside

    def _kernel(self, root: Node, cut: Cut) -> Kernel | None:
        key = root, cut & self._reach(root)
        if key not in self._made:
            self._made[key] = self._check(root, cut)
        return self._made[key]

    def _reach(self, node: Node) -> Cut:
        """The references that a kernel with this root may contain."""
        if node not in self._relevant:
            self._relevant[node] = self._back(node, 0)[1]
        return self._relevant[node]

    def _check(self, root: Node, cut: Cut) -> Kernel | None:
        """The kernel, if one template takes all its nodes, one after the other."""
        entries = self._entries(root, cut)
        if not entries:
            return None
        seen, bits = self._back(root, cut)
        if len(seen) > KERNEL_NODES:
            return None
        inside = frozenset(self._of_bits(bits))
        nodes = sorted(seen, key=lambda n: self._flow.place[n])
        template = next((e for e in entries if e.anchors), entries[-1]).template
        return Kernel(tuple(nodes), inside, template, self._model.kernel(nodes, inside))

    def _of_bits(self, bits: Cut) -> list[Reference]:
        """The references of these bits."""
        found: list[Reference] = []
        while bits:
            lowest = bits & -bits
            found.append(self.references[lowest.bit_length() - 1])
            bits ^= lowest
        return found

    def _entries(self, node: Node, cut: Cut) -> Entries:
        """The kernel's entries at one of its nodes; empty if no template takes the node."""
        key = node, cut & self._reach(node)
        if key not in self._taken:
            fused: dict[Value, Entries] = {}
            for value, maker, bit in self._into[node]:
                if not bit & cut:
                    fused[value] = self._entries(maker, cut)
            whole = all(fused.values())
            self._taken[key] = take(node, fused, self._flow) if whole else ()
        return self._taken[key]
