"""Loops over tensors of a model: scans, as handlers build them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Tensor
from tilewright.graph.build_scan import ScanBuilder
from tilewright.graph.symbolic import Direction
from tilewright.types.tensor import dim

Builder = TypeVar("Builder", bound=Emit)

Results = tuple[list[Tensor], list[Tensor]]
"""The states after the last step; the stacked outputs, the steps along their leading axis."""


class Loop(Generic[Builder]):
    """A loop while its body is built with `b`, from `states` and `slices` of the scanned tensors."""

    def __init__(
        self,
        outside: Builder,
        name: str,
        steps: Size,
        initial: Sequence[Tensor],
        scanned: Sequence[Tensor],
        reverse: Sequence[bool],
    ) -> None:
        operands = [(t.value, _direction(back)) for t, back in zip(scanned, reverse, strict=True)]
        self._scan = ScanBuilder(outside.graph, name, dim(steps), [t.value for t in initial], operands)
        self._outside = outside
        self.b = outside.within(self._scan.body)
        self.states = [self.b.of_value(v) for v in self._scan.states]
        self.slices = [self.b.of_value(v) for v in self._scan.slices]

    def whole(self, tensor: Tensor) -> Tensor:
        """A tensor from outside, as every step sees it."""
        return self.b.of_value(self._scan.whole(tensor.value), tensor.name)

    def inside(self, tensor: Tensor) -> Tensor:
        """A tensor from outside with what is known of it; a parameter of the body when it is used as data."""
        return inside(self.b, tensor)

    def finish(self, states: Sequence[Tensor], stacked: Sequence[Tensor], reverse: Sequence[bool]) -> Results:
        """The scan itself, from the next states and the outputs of a step; a reversed output is stacked from the
        last step to the first."""
        slices = [(t.value, _direction(back)) for t, back in zip(stacked, reverse, strict=True)]
        last, stacks = self._scan.finish([t.value for t in states], slices)
        return [self._outside.of_value(v) for v in last], [self._outside.of_value(v) for v in stacks]


def inside(body: Emit, tensor: Tensor) -> Tensor:
    """A tensor from outside of a body with what is known of it; a parameter of the body when it is used as data."""
    return Tensor(
        body,
        tensor.dtype,
        tensor.shape,
        make=lambda: tensor.value,
        content=tensor.content,
        array=tensor.array,
        name=tensor.name,
    )


def _direction(reverse: bool) -> Direction:
    return Direction.REVERSE if reverse else Direction.FORWARD
