"""The window template: convolutions, pooling and the transforms around Winograd's products, with maps over the result.

    y[o, i, j] = sum_cab x[c, i + a, j + b] * f[o, c, a, b]      then      z[o, i, j] = relu(y[o, i, j] + b[o])

A padding that only one convolution reads is computed in its kernel, a few rows at a time where the schedule can.
"""

from __future__ import annotations

from tilewright.graph.nodes import Node
from tilewright.plan.fusion.contraction import has_windows
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.template import Anchored, Entry, Fused, plain

WINDOWS = frozenset({"window_reduce", "winograd_input", "winograd_output"})


class Window(Anchored):
    """A reduction over windows of its input."""

    name = "window"

    def opens(self, node: Node, fused: Fused, flow: Dataflow) -> bool:
        if node.op.name in WINDOWS:
            return not fused
        if node.op.name != "contract" or len(fused) > 1 or not (fused or has_windows(node)):
            return False
        return all(node.inputs.count(v) == 1 and _padded(entries) for v, entries in fused.items())

    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | None:
        if node.op.name == "pad" and all(plain(e) is not None for e in fused.values()):
            (out,) = node.outputs
            readers = [reader.op.name for reader in flow.readers_of(out)]
            return Entry(self.name) if readers == ["contract"] and out not in flow.results else None
        return super().take(node, fused, flow)


def _padded(entries: tuple[Entry, ...]) -> bool:
    return any(e.template == Window.name and not e.anchors for e in entries)
