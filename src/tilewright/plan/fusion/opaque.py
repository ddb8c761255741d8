"""The opaque template: operators that are a kernel by themselves (sorting, scattering, joining), with maps of inputs
that they read once."""

from __future__ import annotations

from tilewright.graph.nodes import Node
from tilewright.graph.op import Pattern
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.template import OTHER_PARTS, Entry, Fused, Refusal, Template, plain


class Opaque(Template):
    """One operator. Only maps before it are fused with it."""

    name = "opaque"

    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
        if node.op.pattern is not Pattern.OPAQUE:
            return "it ends with an operator of a kind of its own, and {op} is none"
        if fused and node.op.rereads:
            return "{op} reads elements of its inputs several times, or in an order of its own"
        return Entry(self.name, is_open=False) if all(plain(e) is not None for e in fused.values()) else OTHER_PARTS
