"""The row template: reductions along rows with what lies between them, a row at a time, each pass finding it in cache.

m[i] = max_j x[i, j]      s[i] = sum_j exp(x[i, j] - m[i])      y[i, j] = exp(x[i, j] - m[i]) / s[i]
"""

from __future__ import annotations

from tilewright.expr.nodes import Expr
from tilewright.graph.nodes import Node
from tilewright.graph.op import Pattern
from tilewright.ops.reduce import ReduceAttributes
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.template import Entry, Fused, Template, plain


class Row(Template):
    """Reductions over the trailing axes of the same rows, and maps that keep to the rows."""

    name = "row"

    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | None:
        anchors: frozenset[Node] = frozenset()
        over: tuple[Expr, ...] | None = None
        for entries in fused.values():
            own = next((e for e in entries if e.template == self.name), None)
            if own is None and plain(entries) is None:
                return None
            if own is not None:
                if over is not None and over != own.over:
                    return None
                over, anchors = own.over, anchors | own.anchors
        rows = rows_of(node)
        if rows is not None:
            return Entry(self.name, anchors | {node}, rows) if over is None or over == rows else None
        if node.op.pattern is not Pattern.MAP or over is None:
            return None
        return Entry(self.name, anchors, over) if node.outputs[0].type.shape[: len(over)] == over else None


def rows_of(node: Node) -> tuple[Expr, ...] | None:
    """The leading dimensions of a reduction over trailing axes: its rows. None for any other node."""
    if not isinstance(node.attrs, ReduceAttributes) or not node.attrs.axes:
        return None
    shape = node.inputs[0].type.shape
    kept = len(shape) - len(node.attrs.axes)
    trailing = sorted(node.attrs.axes) == list(range(kept, len(shape)))
    return shape[:kept] if trailing and kept else None
