"""The multi-aggregate template: several reductions over the same points that read something in common, in one kernel.

    a = sum_ij x[i, j] * y[i, j]      b = sum_ij x[i, j] * z[i, j]      m = max_ij x[i, j]

The template never opens a kernel. It combines kernels of one reduction each, with the maps before and after it. Shared
values are read once and computed once. No combined kernel may depend on another one. That follows from *depth*, the
most reductions on a path that ends in a value: kernels that read only values of less depth than they make do not depend
on each other if their results have the same depth, and neither do groups of them. Kernels on different sides of a node
that binds or checks a size are not combined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.ops.reduce import ReduceAttributes
from tilewright.plan.fusion.dataflow import Dataflow, is_free
from tilewright.plan.fusion.kernel import Kernel
from tilewright.plan.fusion.prune import KERNEL_NODES
from tilewright.plan.price.kernels import CostModel

MULTI_AGGREGATE = "multi aggregate"

MOST_RESULTS = 4
"""The most reductions in one kernel: each keeps vectors of partial results in registers."""


def alike(node: Node, flow: Dataflow) -> Hashable | None:
    """A key that reductions share if one kernel may hold them: points, axes and depth. None for other nodes."""
    if not isinstance(node.attrs, ReduceAttributes) or not node.attrs.axes:
        return None
    return node.inputs[0].type.shape, frozenset(node.attrs.axes), flow.depth(node.outputs[0])


class Together:
    """Combines the kernels of some nodes where they are aggregates."""

    def __init__(self, nodes: Iterable[Node], flow: Dataflow, model: CostModel) -> None:
        self._flow = flow
        self._model = model
        self._alike = {node: key for node in nodes if (key := alike(node, flow)) is not None}
        self.is_possible = any(count > 1 for count in Counter(self._alike.values()).values())
        """Whether there are reductions that one kernel may hold."""
        self._made: dict[tuple[int, ...], Kernel | None] = {}
        self._keys: dict[int, Hashable | None] = {}

    def combine(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """The kernels, with aggregates combined where that is cheaper: in program order, each with the first kernel
        that it fits. The kernels must stay alive as long as this object."""
        made: list[Kernel] = []
        groups: dict[Hashable, list[list[Kernel]]] = {}
        for kernel in sorted(kernels, key=lambda k: self._flow.place[k.root]):
            key = self._keys[id(kernel)] if id(kernel) in self._keys else self._key(kernel)
            self._keys[id(kernel)] = key
            if key is None:
                made.append(kernel)
                continue
            of_key = groups.setdefault(key, [])
            home = next((g for g in of_key if self._together((*g, kernel)) is not None), None)
            if home is None:
                of_key.append([kernel])
            else:
                home.append(kernel)
        for group in (g for found in groups.values() for g in found):
            whole = self._together(tuple(group)) if len(group) > 1 else group[0]
            assert whole is not None
            made.append(whole)
        return made

    def _key(self, kernel: Kernel) -> Hashable | None:
        """The key of a kernel's only reduction (`alike`). None if other nodes of the kernel need reductions of its
        depth, or if the kernel stores more than one value for each result."""
        inside = [node for node in kernel.nodes if node.op.pattern is Pattern.REDUCE]
        if len(inside) != 1 or inside[0] not in self._alike:
            return None
        (node,) = inside
        depth = self._flow.depth(node.outputs[0])
        small = all(self._flow.elements(v) <= self._flow.elements(node.outputs[0]) for v in kernel.outputs)
        return self._alike[node] if small and all(self._flow.depth(v) < depth for v in kernel.reads()) else None

    def _together(self, kernels: tuple[Kernel, ...]) -> Kernel | None:
        """The kernels combined to one; None if they share too little, or if that is not cheaper."""
        key = tuple(id(k) for k in kernels)
        if key not in self._made:
            self._made[key] = self._checked(kernels)
        return self._made[key]

    def _checked(self, kernels: tuple[Kernel, ...]) -> Kernel | None:
        nodes = sorted({n for k in kernels for n in k.nodes}, key=lambda n: self._flow.place[n])
        shared = any(self._wide(kernels[-1]) & self._wide(k) for k in kernels[:-1])
        if len(kernels) > MOST_RESULTS or len(nodes) > KERNEL_NODES or not shared:
            return None
        places = [self._flow.place[k.root] for k in kernels]
        if any(min(places) < n < max(places) for n in self._flow.shaping):
            return None
        inside = frozenset().union(*(k.inside for k in kernels))
        beside = tuple(k.root for k in kernels if k.root is not nodes[-1])
        cost = self._model.kernel(nodes, inside, beside)
        if cost.seconds >= sum(k.cost.seconds for k in kernels):
            return None
        return Kernel(tuple(nodes), inside, MULTI_AGGREGATE, cost, beside)

    def _wide(self, kernel: Kernel) -> set[Value]:
        """The values that a kernel reads or computes for each point that is reduced."""
        (node,) = [n for n in kernel.nodes if n in self._alike]
        points = self._flow.elements(node.inputs[0])
        made = [v for n in kernel.nodes if not is_free(n) for v in n.outputs]
        return {v for v in (*kernel.reads(), *made) if self._flow.elements(v) >= points}
