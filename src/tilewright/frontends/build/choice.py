"""Choices between two sub-graphs by a condition from data, as handlers build them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.loop import inside
from tilewright.frontends.build.values import Tensor
from tilewright.graph.build_if import IfBuilder
from tilewright.graph.nodes import Value
from tilewright.graph.op import Pattern

Builder = TypeVar("Builder", bound=Emit)


class Choice(Generic[Builder]):
    """A choice while its branches are built, with `then` and `otherwise`. Sizes that are known outside are known in
    both; those that a branch takes from data are its own."""

    def __init__(self, outside: Builder, name: str, cond: Tensor) -> None:
        self._if = IfBuilder(outside.graph, name, outside.reshape(cond, ()).value)
        self._outside, self.cond = outside, cond
        self.then = outside.within(self._if.then)
        self.otherwise = outside.within(self._if.otherwise)

    def inside(self, branch: Builder, tensor: Tensor) -> Tensor:
        """A tensor from outside, as a branch sees it: the condition is known there."""
        if tensor is self.cond:
            return branch.full(tensor.shape, branch is self.then, tensor.dtype)
        return inside(branch, tensor)

    def is_plain(self) -> bool:
        """Whether both branches compute nothing but maps, which can neither fail nor take long: then a selection of
        the two results is as good."""
        nodes = [*self._if.then.nodes, *self._if.otherwise.nodes]
        return all(not node.binds and node.op.pattern in (Pattern.MAP, Pattern.VIEW) for node in nodes)

    def finish(self, then: Sequence[Tensor], otherwise: Sequence[Tensor]) -> list[Tensor]:
        """The results of the branch that runs, given those of both, of the same element types and ranks. Extents that
        differ are dynamic."""
        results = self._if.finish([t.value for t in then], [t.value for t in otherwise])
        return [self._outside.of_value(v) for v in results]

    def graft(self, side: int) -> dict[Value, Value]:
        """Lets one branch (0 the first) run in any case, in the function outside, where its tensors belong from then
        on. What outside its parameters stand for."""
        becomes = self._if.graft(side)
        (self.then, self.otherwise)[side].graph = self._outside.graph
        return becomes

    def move(self, outside: Builder, becomes: Mapping[Value, Value]) -> None:
        """Takes the choice to another function, which has taken in the one outside: values of that one are others."""
        self._outside = outside
        self._if.move(outside.graph, becomes)
