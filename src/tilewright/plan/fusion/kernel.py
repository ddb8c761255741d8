"""A kernel of a plan: what it computes and stores, and its cost."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.nodes import Node, Value
from tilewright.plan.fusion.memo import Reference
from tilewright.plan.price.kernels import KernelCost


@dataclass(frozen=True, slots=True)
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
