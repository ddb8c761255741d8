"""The row template: reductions along rows and the maps between them, a row at a time, so that each pass hits the cache.

m[i] = max_j x[i, j]      s[i] = sum_j exp(x[i, j] - m[i])      y[i, j] = exp(x[i, j] - m[i]) / s[i]
"""

from __future__ import annotations

from tilewright.expr.nodes import Expr
from tilewright.graph.nodes import Node
from tilewright.graph.op import Pattern
from tilewright.ops.reduce import ReduceAttributes
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.template import NO_MAP, OTHER_PARTS, Entry, Fused, Refusal, Template, plain

OTHER_ROWS = "it keeps to the rows of its reduction, and {op} has others"


class Row(Template):
    """Reductions over the trailing axes of the same rows, and maps over these rows."""

    name = "row"

    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
        anchors: frozenset[Node] = frozenset()
        over: tuple[Expr, ...] | None = None
        for entries in fused.values():
            own = next((e for e in entries if e.template == self.name), None)
            if own is None and plain(entries) is None:
                return OTHER_PARTS
            if own is not None:
                if over is not None and over != own.over:
                    return "it keeps to the rows of one reduction, and {op} reads two with different rows"
                over, anchors = own.over, anchors | own.anchors
        rows = rows_of(node)
        if rows is not None:
            return Entry(self.name, anchors | {node}, rows) if over is None or over == rows else OTHER_ROWS
        if node.op.pattern is not Pattern.MAP:
            return NO_MAP
        if over is None:
            return "it begins with a reduction over trailing axes"
        return Entry(self.name, anchors, over) if node.outputs[0].type.shape[: len(over)] == over else OTHER_ROWS


def rows_of(node: Node) -> tuple[Expr, ...] | None:
    """The leading dimensions of a reduction over trailing axes: its rows. None for any other node."""
    if not isinstance(node.attrs, ReduceAttributes) or not node.attrs.axes:
        return None
    shape = node.inputs[0].type.shape
    kept = len(shape) - len(node.attrs.axes)
    trailing = sorted(node.attrs.axes) == list(range(kept, len(shape)))
    return shape[:kept] if trailing and kept else None
