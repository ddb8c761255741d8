"""What a template is: a kind of kernel, described by the operators that it opens with, takes and closes with.

    h = contract(x, w)        contraction: opens
    a = add(h, bias)          contraction: takes it, at the same points as h;     cell: opens
    m = reduce(a, max)        contraction: refuses;       row: takes it, with the maps that cell has opened

A kernel grows from its inputs to its outputs. An `Entry` is a kernel up to a node. A template answers one question,
`take`, so that exploring (which kernels are possible?), checking (are these nodes a kernel?) and explaining (why not?)
follow the same rules.
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
    """A kernel up to a node: its template, its reductions, the points or rows that later maps must share, and whether
    it may grow further."""

    template: str
    anchors: frozenset[Node] = frozenset()
    over: tuple[Expr, ...] | None = None
    is_open: bool = True


Entries = tuple[Entry, ...]
Fused = Mapping[Value, Entries]
"""The inputs of a node that are computed in its kernel, with the entries of their makers."""

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
        """The kernel up to `node` if it computes the inputs in `fused`, too, or the reason why it is not of this kind.
        Other inputs are read from memory. Without fused inputs, the kernel opens."""


def plain(entries: Entries) -> Entry | None:
    """The entry that consists of maps alone."""
    for e in entries:
        if e.template == CELL and not e.anchors:
            return e
    return None


class Anchored(Template):
    """Kernels of one reduction. The template decides what may come before it; its epilogue follows, maps over the
    points of its result."""

    @abstractmethod
    def obstacle(self, node: Node, fused: Fused, flow: Dataflow) -> Refusal | None:
        """Why `node` is no such reduction, or may not compute these inputs itself; None if it may."""

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
