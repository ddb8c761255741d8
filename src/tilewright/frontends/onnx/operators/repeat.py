"""Scans over tensors of the model: what the handlers of loops build with."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.onnx.emit import Emit
from tilewright.frontends.onnx.reading import Size
from tilewright.frontends.onnx.values import Tensor
from tilewright.graph.build_scan import ScanBuilder
from tilewright.graph.symbolic import Direction
from tilewright.types.tensor import dim


class Loop:
    """A loop while its body is built with `b`, from `states` and `slices` of the scanned tensors."""

    def __init__(
        self,
        outside: Emit,
        name: str,
        steps: Size,
        initial: Sequence[Tensor],
        scanned: Sequence[Tensor],
        reverse: Sequence[bool],
    ) -> None:
        operands = [(t.value, _direction(back)) for t, back in zip(scanned, reverse, strict=True)]
        self._scan = ScanBuilder(outside.graph, name, dim(steps), [t.value for t in initial], operands)
        self._outside = outside
        self.b = Emit(self._scan.body, outside.importer)
        self.b.opset = outside.opset
        self.states = [self.b.of_value(v) for v in self._scan.states]
        self.slices = [self.b.of_value(v) for v in self._scan.slices]

    def whole(self, tensor: Tensor) -> Tensor:
        """A tensor from outside, as every step sees it."""
        return self.b.of_value(self._scan.whole(tensor.value), tensor.name)

    def finish(
        self, states: Sequence[Tensor], stacked: Sequence[Tensor], reverse: Sequence[bool]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """(the states after the last step, the stacked outputs)"""
        slices = [(t.value, _direction(back)) for t, back in zip(stacked, reverse, strict=True)]
        last, stacks = self._scan.finish([t.value for t in states], slices)
        return [self._outside.of_value(v) for v in last], [self._outside.of_value(v) for v in stacks]


def _direction(reverse: bool) -> Direction:
    return Direction.REVERSE if reverse else Direction.FORWARD
