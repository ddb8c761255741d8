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
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cache

from tilewright.analysis.cost import total_of
from tilewright.analysis.dataflow import Reference, is_free
from tilewright.expr.build import minimum
from tilewright.expr.nodes import Expr, Var
from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.plan.fusion.partitions import KERNEL_NODES, Partition
from tilewright.plan.fusion.templates import Entries, take
from tilewright.plan.price.kernels import CostModel, KernelCost
from tilewright.plan.price.points import additions

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

    @property
    def seconds(self) -> float:
        """What a call is expected to take, for the sizes that were assumed; for all, where it has no symbols."""
        return self.cost.seconds

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of its nodes, in program order."""
        return tuple(n.op.name for n in self.nodes if n.inputs)

    @property
    def bytes(self) -> Expr:
        """The bytes that the kernel reads and writes, of each value once."""
        moved = [(self._read(v), v) for v in self.reads()] + [(v.type.size, v) for v in self.outputs]
        return total_of([elements * v.type.dtype.bytes for elements, v in moved])

    def _read(self, value: Value) -> Expr:
        """The elements of a value that the kernel reads. From a table, at most the rows that it gathers."""
        readers = [n for n in self.nodes if value in n.inputs]
        if any(not n.op.reads_part or value in n.inputs[1:] for n in readers):
            return value.type.size
        return minimum(value.type.size, total_of([n.outputs[0].type.size for n in readers]))

    @property
    def source(self) -> tuple[str, ...]:
        """The front end's operators that the kernel was made of."""
        return tuple(dict.fromkeys(n.source for n in self.nodes if n.source))

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The symbols in the types of the values that its nodes read and make."""
        shapes = (v.type.shape for n in self.nodes for v in (*n.inputs, *n.outputs))
        return tuple(dict.fromkeys(s for shape in shapes for e in shape for s in e.variables))

    def reads(self) -> tuple[Value, ...]:
        """The values that the kernel reads from memory, in program order."""
        return tuple(dict.fromkeys(v for n in self.nodes for v in n.inputs if Reference(v, n) not in self.inside))


class Kernels:
    """The kernels of one partition; each is checked and priced once."""

    def __init__(self, partition: Partition, model: CostModel, *, combines: bool = True) -> None:
        self.partition, self.flow, self.model = partition, model.flow, model
        self._bits = {r: 1 << n for n, r in enumerate(partition.references)}
        self._into: dict[Node, list[tuple[Reference, Node, Cut]]] = {node: [] for node in partition.nodes}
        self._storing: dict[Node, Cut] = {}
        """For each node whose value is not stored in every plan: the references that store it if they are cut."""
        for r, bit in self._bits.items():
            maker = self.flow.makers[r.value]
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
        sums = [node for node in partition.nodes if node in self.flow.alike] if combines else []
        alike = {key for key, count in Counter(map(self.flow.alike.__getitem__, sums)).items() if count > 1}
        self.may_combine = bool(alike)
        """Whether there are reductions that one kernel may hold together."""
        results = [self.flow.elements(v) for node in sums if self.flow.alike[node] in alike for v in node.outputs]
        self._most_joined = max(results, default=0)
        self._most_sums = additions(model.target)
        """So many sums hide the latency of an addition: more only take registers."""
        self._kernel, self._entries = cache(self._make), cache(self._grow)
        self._sum_of, self._joined = cache(self._find_sum), cache(self._join)
        self._wide = cache(self._find_wide)

    def cut(self, references: Iterable[Reference]) -> Cut:
        """The assignment that cuts these references."""
        return sum(self._bits[r] for r in references)

    def may_be_joined(self, value: Value) -> bool:
        """Whether a kernel that stores this value may be combined with others: it stores as much as reductions make."""
        return self.flow.elements(value) <= self._most_joined

    def under(self, cut: Cut, *, combined: bool = True) -> list[Kernel] | None:
        """The kernels of an assignment, unordered; with `combined`, reductions are combined where that is cheaper. None
        if no template takes one of the kernels."""
        kernels: list[Kernel] = []
        for root in (*self._forced, *(node for node, bits in self._storing.items() if bits & cut)):
            kernel = self._kernel(root, cut & self._reach[root])
            if kernel is None:
                return None
            kernels.append(kernel)
        return self._combine(kernels) if combined and self.may_combine else kernels

    def seconds(self, cut: Cut, *, combined: bool = True) -> float:
        """The seconds of an assignment; infinite if no template takes one of its kernels."""
        kernels = self.under(cut, combined=combined)
        return math.inf if kernels is None else sum(k.cost.seconds for k in kernels)

    def _make(self, root: Node, cut: Cut) -> Kernel | None:
        """The kernel with this root under an assignment of its reach, if one template takes all its nodes, one after
        the other."""
        entries = self._entries(root, cut)
        if not entries:
            return None
        held, inside, waiting = {root}, set[Reference](), [root]
        while waiting:
            for r, maker, bit in self._into[waiting.pop()]:
                if not bit & cut:
                    inside.add(r)
                    waiting += [] if maker in held else [maker]
                    held.add(maker)
        nodes, template = self._in_order(held), next((e for e in entries if e.anchors), entries[-1]).template
        return Kernel(nodes, frozenset(inside), template, self.model.kernel(nodes, inside))

    def _grow(self, node: Node, cut: Cut) -> Entries:
        """The entries at a node under an assignment of its reach; none if no template takes the node."""
        fused = {r.value: self._entries(n, cut & self._reach[n]) for r, n, bit in self._into[node] if not bit & cut}
        return take(node, fused, self.flow) if all(fused.values()) else ()

    def _in_order(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        return tuple(sorted(nodes, key=self.flow.place.__getitem__))

    def _combine(self, kernels: Iterable[Kernel]) -> list[Kernel]:
        """The kernels, with aggregates combined where that is cheaper: in program order, each with the first kernel
        that it fits."""
        groups: defaultdict[Hashable, list[Kernel]] = defaultdict(list)
        for kernel in sorted(kernels, key=lambda k: self.flow.place[k.root]):
            found = groups[self._sum_of(kernel) or kernel]
            for n, other in enumerate(found):
                joined = self._joined(other, kernel)
                if joined is not None:
                    found[n] = joined
                    break
            else:
                found.append(kernel)
        return [kernel for found in groups.values() for kernel in found]

    def _find_sum(self, kernel: Kernel) -> Hashable | None:
        """The key of a kernel's only reduction (`Dataflow.alike`). None if other nodes of the kernel need reductions of
        its depth, or if the kernel stores more than one value for each result."""
        flow = self.flow
        inside = [node for node in kernel.nodes if node.op.pattern is Pattern.REDUCE]
        if len(inside) != 1 or inside[0] not in flow.alike:
            return None
        (out,) = inside[0].outputs
        small = all(flow.elements(v) <= flow.elements(out) for v in kernel.outputs)
        shallow = all(flow.depths[v] < flow.depths[out] for v in kernel.reads())
        return flow.alike[inside[0]] if small and shallow else None

    def _join(self, one: Kernel, other: Kernel) -> Kernel | None:
        """Two kernels of sums as one; None if they share too little, or if that is not cheaper."""
        roots = (*one.beside, one.root, *other.beside, other.root)
        if len(roots) > self._most_sums or self._wide(one).isdisjoint(self._wide(other)):
            return None
        nodes, places = self._in_order({*one.nodes, *other.nodes}), [self.flow.place[root] for root in roots]
        first, last = min(places), max(places)
        if len(nodes) > KERNEL_NODES or any(first < n < last for n in self.flow.shaping):
            return None
        inside, beside = one.inside | other.inside, tuple(n for n in roots if n is not nodes[-1])
        cost = self.model.kernel(nodes, inside, beside)
        apart = one.cost.seconds + other.cost.seconds
        return Kernel(nodes, inside, MULTI_AGGREGATE, cost, beside) if cost.seconds < apart else None

    def _find_wide(self, kernel: Kernel) -> set[Value]:
        """The values that a kernel of sums reads or computes for each point that is reduced."""
        points = next(self.flow.elements(n.inputs[0]) for n in kernel.nodes if n in self.flow.alike)
        made = [v for n in kernel.nodes if not is_free(n) for v in n.outputs]
        return {v for v in (*kernel.reads(), *made) if self.flow.elements(v) >= points}
