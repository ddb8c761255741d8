"""What a template is: a kind of kernel, by the operators it opens on, takes in and closes on.

    h = contract(x, w)        contraction: opens
    a = add(h, bias)          contraction: takes it in, at the same points as h;     cell: opens
    m = reduce(a, max)        contraction: does not;       row: takes in what cell has opened

A kernel grows from what it reads to what it writes. An `Entry` is a kernel as far as it has come at a node; `take` is
the one question a template answers, so that exploring (which kernels may there be?), checking (are these nodes a
kernel?) and explaining (why are they none?) go by the same rules.
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

Refusal = str
"""Why a template does not take a node in: half a sentence, in which `{op}` stands for the node's operator."""

OTHER_PARTS = "it does not hold what makes an input of {op}"
OTHER_POINTS = "what follows its reduction keeps to the reduction's points, and {op} has others"
NO_MAP = "{op} neither is a map nor begins such a kernel"


class Template(ABC):
    """A kind of kernel."""

    name: str

    @abstractmethod
    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
        """The kernel at `node` when it computes these inputs, too; with none the kernel opens. Where it is not of this
        kind, the reason. Inputs that are not in `fused` are read from memory."""


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
    def obstacle(self, node: Node, fused: Fused, flow: Dataflow) -> Refusal | None:
        """Why `node` is no such reduction, or may not compute these inputs itself; None where it may."""

    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
        if node.op.pattern is Pattern.REDUCE:
            obstacle = "{op} has several results" if len(node.outputs) != 1 else self.obstacle(node, fused, flow)
            return obstacle or Entry(self.name, frozenset({node}), node.outputs[0].type.shape)
        if not node.op.elementwise:
            return "what follows its reduction is elementwise, and {op} is not"
        found: Entry | None = None
        for entries in fused.values():
            own = next((e for e in entries if e.template == self.name and e.anchors), None)
            if own is None and plain(entries) is None:
                return OTHER_PARTS
            if own is not None and found is not None and own != found:
                return "it holds one reduction, and {op} reads two"
            found = own or found
        if found is None:
            return "it begins with a reduction"
        return found if node.outputs[0].type.shape == found.over else OTHER_POINTS
