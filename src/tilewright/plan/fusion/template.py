"""What a template is: a kind of kernel, by the operators it opens on, takes in and closes on.

    h = contract(x, w)        contraction: opens
    a = add(h, bias)          contraction: takes it in, at the same points as h;     cell: opens
    m = reduce(a, max)        contraction: does not;       row: takes in what cell has opened

A kernel grows from what it reads to what it writes. An `Entry` is a kernel as far as it has come at a node; `take` is
the one question a template answers, so that exploring (which kernels may there be?) and checking (are these nodes a
kernel?) go by the same rules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.expr.nodes import Expr
from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.plan.fusion.dataflow import Dataflow

CELL = "cell"


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel at a node: its template, its reductions, the points or rows that what follows them keeps to, and whether
    it may grow further."""

    template: str
    anchors: frozenset[Node] = frozenset()
    over: tuple[Expr, ...] | None = None
    is_open: bool = True


Entries = tuple[Entry, ...]
Fused = Mapping[Value, Entries]
"""The inputs of a node that are computed in its kernel, with the kernels that their makers may be part of."""


class Template(ABC):
    """A kind of kernel."""

    name: str

    @abstractmethod
    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | None:
        """The kernel at `node` when it computes these inputs, too; with none the kernel opens. None where it is not of
        this kind. Inputs that are not in `fused` are read from memory."""


def plain(entries: Entries) -> Entry | None:
    """The entry that is made of maps alone."""
    for e in entries:
        if e.template == CELL and not e.anchors:
            return e
    return None


class Anchored(Template):
    """Kernels of one reduction: what comes before it is the template's to say, what comes after is its epilogue, maps
    over the points of its result."""

    @abstractmethod
    def opens(self, node: Node, fused: Fused, flow: Dataflow) -> bool:
        """Whether `node` is such a reduction, and may compute these inputs itself."""

    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | None:
        if node.op.pattern is Pattern.REDUCE:
            opened = len(node.outputs) == 1 and self.opens(node, fused, flow)
            return Entry(self.name, frozenset({node}), node.outputs[0].type.shape) if opened else None
        if not node.op.elementwise:
            return None
        found: Entry | None = None
        for entries in fused.values():
            own = next((e for e in entries if e.template == self.name and e.anchors), None)
            if own is None and plain(entries) is None:
                return None
            if own is not None and found is not None and own != found:
                return None
            found = own or found
        return found if found is not None and node.outputs[0].type.shape == found.over else None
