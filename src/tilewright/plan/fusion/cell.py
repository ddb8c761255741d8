"""The cell template: maps (one expression per point), and at most one reduction with maps after it.

y[i] = max_j f(a[i, j], b[j])      then      z[i] = g(y[i], c[i])
"""

from __future__ import annotations

from tilewright.graph.nodes import Node
from tilewright.graph.op import Pattern
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.template import CELL, OTHER_PARTS, Anchored, Entry, Fused, Refusal, plain


class Cell(Anchored):
    """Maps of any shapes, fused into their readers. A reduction that reads each input once may follow, and after it
    maps over the reduction's points."""

    name = CELL

    def obstacle(self, node: Node, fused: Fused, flow: Dataflow) -> Refusal | None:
        if node.op.rereads:
            return "{op} reads elements of its inputs several times"
        return None if all(plain(e) is not None for e in fused.values()) else OTHER_PARTS

    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
        if node.op.pattern is Pattern.MAP and all(plain(e) is not None for e in fused.values()):
            return Entry(CELL)
        return super().take(node, fused, flow)
