"""The window template: convolutions, pooling and the transforms around Winograd's and Strassen's products, with maps
over the result.

    y[o, i, j] = sum_cab x[c, i + a, j + b] * f[o, c, a, b]      then      z[o, i, j] = relu(y[o, i, j] + b[o])

A padding that only one convolution or pool reads is computed in its kernel; where the schedule can, a few rows at a
time.
"""

from __future__ import annotations

from tilewright.graph.nodes import Node
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.movement import PadAttributes
from tilewright.plan.fusion.contraction import has_windows
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.template import OTHER_PARTS, Anchored, Entry, Fused, Refusal, plain


class Window(Anchored):
    """A reduction over windows of its input."""

    name = "window"

    def obstacle(self, node: Node, fused: Fused, flow: Dataflow) -> Refusal | None:
        if node.op.rereads and not isinstance(node.attrs, ContractAttributes):
            padded = node.op.takes_padding and all(_padded(e) for e in fused.values())
            return None if padded or not fused else "{op} reads each element several times, and computes none itself"
        if not isinstance(node.attrs, ContractAttributes) or not (fused or has_windows(node)):
            return "{op} reads no windows"
        if len(fused) > 1 or not all(node.inputs.count(v) == 1 and _padded(e) for v, e in fused.items()):
            return "{op} reads its operands many times, and computes none but one that is padded for it alone"
        return None

    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
        if isinstance(node.attrs, PadAttributes):
            if any(plain(e) is None for e in fused.values()):
                return OTHER_PARTS
            (out,) = node.outputs
            readers = flow.readers_of(out)
            alone = len(readers) == 1 and readers[0].op.takes_padding and out not in flow.results
            return Entry(self.name) if alone else "what {op} makes is not for one convolution or pool alone"
        return super().take(node, fused, flow)


def _padded(entries: tuple[Entry, ...]) -> bool:
    return any(e.template == Window.name and not e.anchors for e in entries)
